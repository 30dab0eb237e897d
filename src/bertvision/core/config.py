"""Settings as frozen dataclasses, TOML in and out; a key that no setting has is refused.

Precedence: default < task < recipe < flag < ``--set``. The resolved recipe is written into the run
and is itself a valid recipe.
"""

from __future__ import annotations

import math
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import atomic_open, hashed_as
from bertvision.core.registry import unknown

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

Defaults = Callable[[str, str], Mapping[str, Any]]
"""A task's name and a tune method to the settings that they bring themselves; they lie over the defaults."""


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a config from plain data; ``where`` names the file or flag for the message."""
    known = typing.get_type_hints(cls)
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise BadInput(f"{where}: {unknown('setting', key, known)}")
        read[key] = _convert(known[key], value, f"{where}: {key}")
    missing = [item.name for item in fields(cls) if item.name not in read and _is_required(item)]  # type: ignore[arg-type]
    if missing:
        raise BadInput(f"{where}: setting {missing[0]!r} is missing")
    return cls(**read)


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


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
    if isinstance(value, Typed):
        value = _read_typed(wanted, value)
    if is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, Mapping):
            return from_mapping(wanted, value, where)
        raise BadInput(f"{where}: got {shorten(value)}, expected a table")
    if isinstance(wanted, types.UnionType):
        inner = [kind for kind in typing.get_args(wanted) if kind is not type(None)]
        return None if value is None else _convert(inner[0], value, where)
    if typing.get_origin(wanted) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(typing.get_args(wanted)[0], item, where) for item in items)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise BadInput(f"{where}: got {shorten(value)}, expected {wanted.__name__}")
    return value


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings laid over others, section by section."""
    plain = dict(under)
    for key, value in over.items():
        below = plain.get(key)
        plain[key] = {**below, **value} if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return plain


class Typed(str):
    """A value as a user typed it; what it means depends on the setting."""


def _read_typed(wanted: Any, text: str) -> Any:
    """Text as the setting's type; what cannot be read stays text, and is refused as such.

    Specs hold commas themselves, so a list of words is separated by blanks, one of numbers by commas.
    Nothing at all takes an optional setting back.
    """
    if isinstance(wanted, types.UnionType):
        return _read_typed(typing.get_args(wanted)[0], text) if text else None
    if typing.get_origin(wanted) is tuple:
        kind = typing.get_args(wanted)[0]
        return [_read_typed(kind, part) for part in (text.split() if kind is str else text.split(","))]
    if wanted is bool:
        return {"true": True, "false": False}.get(text, str(text))
    try:
        return wanted(text) if wanted in (int, float) else str(text)
    except ValueError:
        return str(text)


@hashed_as(
    "train",
    "dev",
    "extra",
    "data",
    "hub",
    "text_column",
    "pair_column",
    "label_column",
    "label_separator",
    "encoding",
    "kind",
    "class_weights",
    "merge",
    "threshold",
    "no_answer_share",
    "split_seed",
    "limit",
    "skip_bad",
    "max_length",
    "overlap",
)
@dataclass(frozen=True)
class DataConfig:
    """Where the examples come from; which keys apply depends on the task."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    data: str | None = None
    hub: str | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: tuple[str, ...] = ()  # several: a column of 0 and 1 for each label
    label_separator: str | None = None
    encoding: str | None = None
    kind: str | None = None
    class_weights: str | None = None
    merge: str | None = None
    threshold: float | None = None
    no_answer_share: float | None = None
    split_seed: int | None = None
    limit: int | None = None
    skip_bad: bool = False
    max_length: int | None = None
    overlap: int | None = None


@hashed_as(
    "method",
    "epochs",
    "head",
    "lr",
    "bert_lr",
    "batch",
    "warmup",
    "decay",
    "weight_decay",
    "clip",
    "accumulate",
    "checkpointing",
    "bf16",
    "save_minutes",
    "seed",
    "device",
)
@dataclass(frozen=True)
class TuneConfig:
    """How the encoder is tuned before its states are taken."""

    method: str = "full"
    epochs: float = 1.0
    head: str | None = None
    lr: float | None = None  # None: what suits an encoder of this width
    bert_lr: float | None = None  # the task's own choice where lr is None and the encoder as wide as BERT
    batch: int = 16
    warmup: float = 0.1
    decay: str = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0
    accumulate: int = 1  # pieces that a batch goes through the encoder in: the same result with less memory
    checkpointing: bool = False  # compute states again on the way back instead of keeping them
    bf16: bool | None = None  # None: on CUDA devices that have it
    save_minutes: float = 5.0  # how often the state is written down, to be taken up after an interruption
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch": 1, "warmup": 0, "weight_decay": 0, "accumulate": 1, "save_minutes": 0}
        _check_numbers(self, "tune", least, ("lr", "bert_lr", "clip"))
        if self.decay not in ("linear", "constant"):
            raise BadInput(f"tune.decay is {shorten(self.decay)}; expected linear or constant")


@hashed_as("dtype", "layers", "tokens", "live", "max_gb", "shard_mb", "batch_tokens", "seed", "device")
@dataclass(frozen=True)
class ExtractConfig:
    """How states are computed and stored."""

    dtype: str = "f16"  # f32, f16 or int8
    layers: str = "all"
    tokens: str = "all"  # all, context (and CLS), cls, or mean: one vector a text
    live: bool = False  # keep no states: the encoder runs again each time they are read
    max_gb: float | None = None  # refuse a larger store before anything is written
    shard_mb: int = 256
    batch_tokens: int = 4096
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        _check_numbers(self, "extract", {"shard_mb": 1, "batch_tokens": 1, "seed": 0}, ("max_gb",))


@hashed_as("epochs", "lr", "rates", "batch", "warmup", "weight_decay", "clip", "order_seed", "device")
@dataclass(frozen=True)
class FitConfig:
    """How heads are fitted on stored states."""

    epochs: int = 5
    lr: float = 3e-3
    rates: tuple[float, ...] = ()  # more rates, from the same read; a head keeps the one that is best on inner
    batch: int = 32
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    order_seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch": 1, "warmup": 0, "weight_decay": 0, "order_seed": 0}
        _check_numbers(self, "fit", least, ("lr", "clip"))


@hashed_as("task", "encoder", "heads", "seeds", "data", "tune", "extract", "fit")
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

    def __post_init__(self) -> None:
        if not self.seeds:
            raise BadInput("seeds is empty; expected at least one whole number, e.g. 0,1")


def built_in_recipe(task: str, defaults: Defaults | None = None, **values: Any) -> Recipe:
    """The recipe that a bare task name stands for; ``values`` are the top-level settings and sections."""
    values = {"task": task, **values}
    return from_mapping(Recipe, merged(_brought(values, defaults), values), f"recipe for {task}")


def _brought(values: Mapping[str, Any], defaults: Defaults | None) -> dict[str, Any]:
    """What the task and the method that are asked for bring."""
    tune = values.get("tune")
    method = tune.get("method", "full") if isinstance(tune, Mapping) else "full"
    return dict(defaults(str(values.get("task")), str(method))) if defaults else {}


def _check_numbers(config: object, section: str, least: Mapping[str, float], above_zero: Sequence[str] = ()) -> None:
    """Refuse numbers with which a step would fail late, or do nothing in silence; NaN is never large enough."""
    for name, bound in least.items():
        value = getattr(config, name)
        if not bound <= value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected at least {bound}")
    for name in above_zero:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected more than 0")


def read_recipe(path: Path, defaults: Defaults | None = None, over: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from a TOML file, laid over what its task and method bring; ``over`` lies over both."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a TOML recipe: {error}") from error
    asked = merged(values, over or {})
    return from_mapping(Recipe, merged(_brought(asked, defaults), asked), str(path))


def recipe_of_run(folder: Path) -> Recipe:
    """What a run was made by; of a folder that only ``fit`` made, the defaults."""
    path = folder / "recipe.toml"
    return read_recipe(path) if path.exists() else Recipe(task="fit")


def write_recipe(recipe: Recipe, path: Path) -> None:
    """The resolved recipe, ready to be run again."""
    import tomli_w

    with atomic_open(path) as file:
        file.write(tomli_w.dumps(to_mapping(recipe)))


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
    """Set one dotted key."""
    table = plain
    for key in path[:-1]:
        if not isinstance(table.get(key), dict):
            raise BadInput(f"--set {shorten(setting)}: {unknown('section', key, _sections(plain))}")
        table = table[key]
    table[path[-1]] = Typed(text)


def _sections(plain: Mapping[str, Any]) -> list[str]:
    return [key for key, value in plain.items() if isinstance(value, dict)]


def updated(config: T, **values: Any) -> T:
    """A copy with the values that are not None."""
    return replace(config, **{key: value for key, value in values.items() if value is not None})  # type: ignore[type-var]
