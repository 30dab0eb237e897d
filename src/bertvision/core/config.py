"""Settings as frozen dataclasses with their help texts, and how they are read from TOML files and ``--set``.

Precedence: default < task < recipe < flag < ``--set``. An unknown key is an error. The resolved recipe is written into
the run and is itself a valid recipe. The command line makes its flags from the fields (``cli/options.py``).
"""

from __future__ import annotations

import math
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import atomic_open, hashed_as
from bertvision.core.registry import unknown_name

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
"""From a task's name and a tuning method to the settings they preset; these override the defaults."""


def setting(
    default: Any, about: str, flag: str | None = None, metavar: str | None = None, choices: Sequence[str] | None = None
) -> Any:
    """A field with its help text; one with a flag can be given on the command line."""
    return field(default=default, metadata={"help": about, "flag": flag, "metavar": metavar, "choices": choices})


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

    train: tuple[str, ...] = setting((), "training files: SQuAD JSON, CSV, TSV, JSON Lines or Parquet", "--train", "F")
    dev: tuple[str, ...] = setting((), "evaluation files; default: a tenth of the training data", "--dev", "F")
    extra: tuple[str, ...] = setting((), "more training files, never used for validation (SQuAD)", "--extra", "F")
    data: str | None = setting(None, "GLUE's official files: the task's folder or its parent", "--data", "FOLDER")
    hub: str | None = setting(None, "dataset of the Hub to use instead of files", "--hub", "NAME[:CONFIG]")
    text_column: str | None = setting(None, "text column; guessed by default, as the next two", "--text-column", "NAME")
    pair_column: str | None = setting(None, "column of the second text of a pair", "--pair-column", "NAME")
    label_column: tuple[str, ...] = setting(
        (), "column to predict; several: one 0/1 column per label", "--label-column", "NAME"
    )
    label_separator: str | None = setting(
        None, "separator of the labels in a cell; detected by default: | ; ,", "--label-separator", "S"
    )
    encoding: str | None = setting(
        None, "encoding of CSV, TSV and JSON Lines, e.g. cp1252; detected by default", "--encoding", "NAME"
    )
    kind: str | None = setting(
        None,
        "what to predict: one label, any number of labels (never guessed), or a number",
        "--kind",
        choices=("classify", "multilabel", "regress"),
    )
    class_weights: str | None = setting(
        None, "weight rare labels higher in the loss", "--class-weights", choices=("none", "balanced")
    )
    merge: str | None = setting(None, "answerability: any-answerable (default) or any-unanswerable", "--merge", "RULE")
    threshold: float | None = setting(
        None, "SQuAD 2.0: no-answer threshold to use instead of fitting one (0: no offset)", "--threshold", "X"
    )
    no_answer_share: float | None = setting(
        None, "SQuAD: subsample so that this fraction of questions is unanswerable", "--no-answer-share", "X"
    )
    split_seed: int | None = setting(None, "random seed of the dev split, where there is no --dev", "--split-seed", "N")
    limit: int | None = setting(None, "use a sample of N training examples, and at most N of dev", "--limit", "N")
    skip_bad: bool = setting(False, "skip malformed rows and report how many", "--skip-bad")
    max_length: int | None = setting(None, "tokens per window; longer contexts are split", "--max-length", "N")
    overlap: int | None = setting(None, "context tokens that neighbouring windows share", "--overlap", "N")


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

    method: str = setting(
        "full",
        "full (default), freeze:k=K, adapters:size=64,share=none|layer|3|all, bitfit, lora:r=8",
        "--method",
        "SPEC",
    )
    epochs: float = setting(1.0, "tuning epochs; may be a fraction, 0 for none", "--epochs", "X")
    head: str | None = setting(None, "tune with this head instead of a plain linear one", "--tune-head", "SPEC")
    lr: float | None = setting(None, "peak learning rate of tuning; default: by method and encoder width", "--lr", "X")
    bert_lr: float | None = setting(None, "the task's learning rate for encoders as wide as BERT, if lr is not set")
    batch: int = setting(16, "windows per batch")
    warmup: float = setting(0.1, "share of the steps in which the learning rate rises")
    decay: str = setting("linear", "learning rate after warm-up: linear or constant")
    weight_decay: float = setting(0.01, "weight decay")
    clip: float = setting(1.0, "maximum norm of the gradient")
    accumulate: int = setting(1, "pieces that each batch is split into: the same result with less memory")
    checkpointing: bool = setting(False, "recompute activations in the backward pass instead of keeping them")
    bf16: bool | None = setting(None, "compute in bfloat16; default: on CUDA devices that support it")
    save_minutes: float = setting(5.0, "minutes between checkpoints, from which an interrupted run resumes")
    seed: int = setting(0, "random seed")
    device: str = setting("auto", "device to tune on")

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch": 1, "warmup": 0, "weight_decay": 0, "accumulate": 1, "save_minutes": 0}
        _check_numbers(self, "tune", least, ("lr", "bert_lr", "clip"))
        if self.decay not in ("linear", "constant"):
            raise BadInput(f"tune.decay is {shorten(self.decay)}; expected linear or constant")


@hashed_as("dtype", "layers", "tokens", "live", "max_gb", "shard_mb", "batch_tokens", "seed", "device")
@dataclass(frozen=True)
class ExtractConfig:
    """How states are computed and stored."""

    dtype: str = setting(
        "f16", "number format of stored states; default f16, int8 halves it", "--dtype", choices=("f32", "f16", "int8")
    )
    layers: str = setting("all", "states to store; 0: embeddings", "--layers", "all|last4|first6|every2|0+3+6")
    tokens: str = setting(
        "all",
        "tokens to store: context includes CLS, for spans; cls and mean are one vector per text",
        "--tokens",
        choices=("all", "context", "cls", "mean"),
    )
    live: bool = setting(False, "store no states; run the encoder again in every epoch", "--live")
    max_gb: float | None = setting(None, "maximum size of a store in gigabytes; refuse a larger one", "--max-gb", "X")
    shard_mb: int = setting(256, "maximum megabytes per shard file; default 256", "--shard-mb", "N")
    batch_tokens: int = setting(4096, "tokens per batch of the encoder")
    seed: int = setting(0, "random seed")
    device: str = setting("auto", "device to run the encoder on")

    def __post_init__(self) -> None:
        _check_numbers(self, "extract", {"shard_mb": 1, "batch_tokens": 1, "seed": 0}, ("max_gb",))


@hashed_as("epochs", "lr", "rates", "batch", "warmup", "weight_decay", "clip", "order_seed", "device")
@dataclass(frozen=True)
class FitConfig:
    """How heads are fitted on stored states."""

    epochs: int = setting(5, "training epochs of the heads")
    lr: float = setting(3e-3, "peak learning rate of the heads")
    rates: tuple[float, ...] = setting(
        (), "more learning rates to try in the same pass; each head keeps the one that is best on inner"
    )
    batch: int = setting(32, "windows per batch")
    warmup: float = setting(0.1, "share of the steps in which the learning rate rises")
    weight_decay: float = setting(0.01, "weight decay")
    clip: float = setting(1.0, "maximum norm of the gradient")
    order_seed: int = setting(0, "random seed of the order of the batches")
    device: str = setting("auto", "device to fit on")

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch": 1, "warmup": 0, "weight_decay": 0, "order_seed": 0}
        _check_numbers(self, "fit", least, ("lr", "clip"))


@hashed_as("task", "encoder", "heads", "seeds", "data", "tune", "extract", "fit")
@dataclass(frozen=True)
class Recipe:
    """Everything one run does."""

    task: str
    encoder: str = setting("minilm", "minilm (embedded, default), a folder, or a Hub name", "--encoder", "E")
    heads: tuple[str, ...] = QUICK_HEADS
    seeds: tuple[int, ...] = (0, 1)
    data: DataConfig = field(default_factory=DataConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise BadInput("seeds is empty; expected at least one whole number, e.g. 0,1")


def _check_numbers(config: object, section: str, least: Mapping[str, float], above_zero: Sequence[str] = ()) -> None:
    """Reject numbers with which a step would fail late or do nothing; NaN passes no comparison."""
    for name, bound in least.items():
        value = getattr(config, name)
        if not bound <= value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected at least {bound}")
    for name in above_zero:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected more than 0")


# From and to plain data


@cache
def setting_types(cls: type[Any]) -> dict[str, Any]:
    """By setting its type."""
    return typing.get_type_hints(cls)


class RawText(str):
    """A value as a user typed it; its meaning depends on the type of the setting."""


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a config from plain data; ``where`` names the file or flag for the message."""
    known = setting_types(cls)  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise BadInput(f"{where}: {unknown_name('setting', key, known)}")
        arguments[key] = _convert(known[key], value, f"{where}: {key}")
    for item in fields(cls):  # type: ignore[arg-type]
        required = item.default is MISSING and item.default_factory is MISSING
        if required and item.name not in arguments:
            raise BadInput(f"{where}: setting {item.name!r} is missing")
    return cls(**arguments)


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


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings overridden by others, section by section."""
    plain = dict(under)
    for key, value in over.items():
        below = plain.get(key)
        plain[key] = {**below, **value} if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return plain


def with_settings(config: T, **values: Any) -> T:
    """A copy with the values that are not None."""
    return replace(config, **{key: value for key, value in values.items() if value is not None})  # type: ignore[type-var]


def _convert(wanted: Any, value: Any, where: str) -> Any:
    """Check one value against its annotation; whole numbers pass as floats, lists as tuples."""
    if isinstance(value, RawText):
        value = _read_typed(wanted, value)
    if is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, Mapping):
            return from_mapping(wanted, value, where)
        raise BadInput(f"{where}: got {shorten(value)}, expected a table")
    if isinstance(wanted, types.UnionType):  # X | None
        return None if value is None else _convert(typing.get_args(wanted)[0], value, where)
    if typing.get_origin(wanted) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(typing.get_args(wanted)[0], item, where) for item in items)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise BadInput(f"{where}: got {shorten(value)}, expected {wanted.__name__}")
    return value


def _read_typed(wanted: Any, text: str) -> Any:
    """Text as the setting's type; what cannot be read stays text, which :func:`_convert` rejects.

    Specs contain commas, so words of a list are separated by spaces and numbers by commas. Empty text unsets an
    optional setting.
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


# Recipes


def _with_presets(values: Mapping[str, Any], defaults: Defaults | None, where: str) -> Recipe:
    """A recipe from plain data, over what its task and tuning method preset."""
    tune = values.get("tune")
    method = tune.get("method", "full") if isinstance(tune, Mapping) else "full"
    presets = defaults(str(values.get("task")), str(method)) if defaults else {}
    return from_mapping(Recipe, merged(presets, values), where)


def built_in_recipe(task: str, defaults: Defaults | None = None, **values: Any) -> Recipe:
    """The recipe that a bare task name stands for; ``values`` are the top-level settings and sections."""
    return _with_presets({"task": task, **values}, defaults, f"recipe for {task}")


def read_recipe(path: Path, defaults: Defaults | None = None, over: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from a TOML file, over what its task and method preset; ``over`` overrides both."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a TOML recipe: {error}") from error
    return _with_presets(merged(values, over or {}), defaults, str(path))


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe that a run was made by; the defaults for a folder that only ``fit`` made."""
    path = folder / "recipe.toml"
    return read_recipe(path) if path.exists() else Recipe(task="fit")


def write_recipe(recipe: Recipe, path: Path) -> None:
    """The resolved recipe, ready to be run again."""
    import tomli_w

    with atomic_open(path) as file:
        file.write(tomli_w.dumps(to_mapping(recipe)))


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Apply ``--set fit.lr=1e-3`` style settings; the last one wins."""
    plain = to_mapping(recipe)
    for text in settings:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise BadInput(f"--set {shorten(text)}: expected key=value, e.g. fit.lr=1e-3")
        *sections, key = path.split(".")
        table = plain
        for section in sections:
            if not isinstance(table.get(section), dict):
                known = [name for name, content in plain.items() if isinstance(content, dict)]
                raise BadInput(f"--set {shorten(text)}: {unknown_name('section', section, known)}")
            table = table[section]
        table[key] = RawText(value)
    return from_mapping(Recipe, plain, "--set")
