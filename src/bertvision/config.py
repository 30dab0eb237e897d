"""Settings as frozen dataclasses, TOML in and out; a key that no setting has is refused.

Precedence: default < task < recipe < flag < ``--set``. The resolved recipe is written into the run
and is itself a valid recipe.
"""

from __future__ import annotations

import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bertvision.errors import BadInput, shorten
from bertvision.registry import read_value, unknown

T = TypeVar("T")

QUICK_HEADS = (
    "probe:layers=last1",
    "mean-pool",
    "learned-pool",
    "probe",
    "compress:size=64",
    "compress:size=64,skip=true",
)
"""``--heads quick``: the control and the heads that are cheap and usually best."""


@dataclass(frozen=True)
class DataConfig:
    """Where the examples come from; which keys apply depends on the task."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    encoding: str | None = None
    kind: str | None = None
    limit: int | None = None
    skip_bad: bool = False
    max_length: int | None = None
    overlap: int | None = None


@dataclass(frozen=True)
class TuneConfig:
    """How the encoder is tuned before its states are taken."""

    method: str = "full"
    epochs: float = 1.0
    head: str | None = None
    lr: float = 1e-4
    batch: int = 16
    warmup: float = 0.1
    decay: str = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class ExtractConfig:
    """How states are computed and stored."""

    dtype: str = "f16"
    layers: str = "all"
    shard_mb: int = 256
    batch_tokens: int = 4096
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class FitConfig:
    """How heads are fitted on stored states."""

    epochs: int = 5
    lr: float = 1e-3
    batch: int = 32
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    order_seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class Recipe:
    """Everything one run does."""

    task: str
    encoder: str = "minilm"
    heads: tuple[str, ...] = QUICK_HEADS
    seeds: tuple[int, ...] = (0, 1)
    data: DataConfig = field(default_factory=DataConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    fit: FitConfig = field(default_factory=FitConfig)


BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "squad2": {"tune": {"epochs": 1.0, "lr": 1.5e-4}},
    "squad1": {"tune": {"epochs": 1.0, "lr": 1.5e-4}},
    "text": {"tune": {"epochs": 1.0, "lr": 5e-5}},
}
"""What differs from the defaults by task."""


def built_in_recipe(task: str, **values: Any) -> Recipe:
    """The recipe that a bare task name stands for; ``values`` are the top-level settings and sections."""
    plain: dict[str, Any] = {"task": task, **BUILT_IN.get(task, {})}
    for key, value in values.items():
        section = plain.get(key, {}) if isinstance(value, Mapping) else None
        plain[key] = {**section, **value} if section is not None else value
    return from_mapping(Recipe, plain, f"recipe for {task}")


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a config from plain data; ``where`` names the file or flag for the message."""
    known = typing.get_type_hints(cls)
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise BadInput(f"{where}: {unknown('setting', key, known)}")
        read[key] = _convert(known[key], value, f"{where}: {key}")
    try:
        return cls(**read)
    except TypeError as error:
        raise BadInput(f"{where}: {error}") from error


def to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of :func:`from_mapping`; settings that are None are left out, as TOML has no null."""
    plain: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            plain[item.name] = to_mapping(value)
        elif value is not None:
            plain[item.name] = list(value) if isinstance(value, tuple) else value
    return plain


def _convert(wanted: Any, value: Any, where: str) -> Any:
    """Check one value against its annotation; whole numbers pass as floats, lists as tuples."""
    if is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, Mapping):
            return from_mapping(wanted, value, where)
        raise BadInput(f"{where}: got {shorten(value)}, expected a table")
    if isinstance(wanted, types.UnionType):
        inner = [kind for kind in typing.get_args(wanted) if kind is not type(None)]
        return None if value is None else _convert(inner[0], value, where)
    if typing.get_origin(wanted) is tuple:
        items = [value] if isinstance(value, str | int | float) else list(value)
        return tuple(_convert(typing.get_args(wanted)[0], item, where) for item in items)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise BadInput(f"{where}: got {shorten(value)}, expected {wanted.__name__}")
    return value


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a TOML recipe: {error}") from error
    return from_mapping(Recipe, values, str(path))


def write_recipe(recipe: Recipe, path: Path) -> None:
    """The resolved recipe, ready to be run again."""
    import tomli_w

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(to_mapping(recipe)), encoding="utf-8")


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Apply ``--set fit.lr=1e-3`` style settings, last word wins."""
    plain = to_mapping(recipe)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise BadInput(f"--set {shorten(setting)}: expected key=value, e.g. fit.lr=1e-3")
        _put(plain, path.split("."), text, setting)
    return from_mapping(Recipe, plain, "--set")


def _put(plain: dict[str, Any], path: Sequence[str], text: str, setting: str) -> None:
    """Set one dotted key; lists are written with commas."""
    table = plain
    for key in path[:-1]:
        if not isinstance(table.get(key), dict):
            raise BadInput(f"--set {shorten(setting)}: {unknown('section', key, _sections(plain))}")
        table = table[key]
    current = table.get(path[-1])
    # Specs hold commas themselves, so a list of words is separated by blanks, one of numbers by commas.
    if isinstance(current, list):
        numbers = all(isinstance(item, int | float) for item in current) and current
        table[path[-1]] = [read_value(item) for item in text.split(",")] if numbers else text.split()
    else:
        table[path[-1]] = read_value(text)


def _sections(plain: Mapping[str, Any]) -> list[str]:
    return [key for key, value in plain.items() if isinstance(value, dict)]


def updated(config: T, **values: Any) -> T:
    """A copy with the values that are not None."""
    return replace(config, **{key: value for key, value in values.items() if value is not None})  # type: ignore[type-var]
