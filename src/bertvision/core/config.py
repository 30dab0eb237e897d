"""Settings as frozen dataclasses with their help texts, and reading them from TOML files and ``--set``.

Precedence: default < task < recipe < flag < ``--set``. An unknown key is an error. The resolved recipe is written into
the run and is itself a valid recipe. The command line generates its flags from the fields (``cli/options.py``).
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
from bertvision.core.summaries import APART, NO_TOKENS, PAIRS, TOGETHER

T = TypeVar("T")

Defaults = Callable[[str, str], Mapping[str, Any]]
"""Maps a task name and a tuning method to the settings that they preset in place of the defaults."""


def setting(
    default: Any, about: str, flag: str | None = None, metavar: str | None = None, choices: Sequence[str] | None = None
) -> Any:
    """A dataclass field with its help text and, if it is a command-line option, its flag."""
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
    added=("metric",),
)
@dataclass(frozen=True)
class DataConfig:
    """Where the examples come from; the task decides which settings apply."""

    train: tuple[str, ...] = setting((), "training files: CSV, TSV, JSON Lines, Parquet or SQuAD JSON", "--train", "F")
    dev: tuple[str, ...] = setting(
        (), "evaluation files (default: a tenth of the training data becomes the dev split)", "--dev", "F"
    )
    extra: tuple[str, ...] = setting((), "SQuAD: additional training files, never used for validation", "--extra", "F")
    data: str | None = setting(None, "GLUE: folder with the official files, or its parent folder", "--data", "FOLDER")
    hub: str | None = setting(None, "dataset on the Hugging Face Hub, instead of files", "--hub", "NAME[:CONFIG]")
    text_column: str | None = setting(None, "column with the text (default: detected)", "--text-column", "NAME")
    pair_column: str | None = setting(
        None, "column of the second text of a pair (default: detected)", "--pair-column", "NAME"
    )
    label_column: tuple[str, ...] = setting(
        (), "column to predict, or several 0/1 columns, one per label (default: detected)", "--label-column", "NAME"
    )
    label_separator: str | None = setting(
        None, "separator between labels in one cell (default: detected from | ; ,)", "--label-separator", "S"
    )
    encoding: str | None = setting(
        None, "text encoding of CSV, TSV and JSON Lines files, e.g. cp1252 (default: detected)", "--encoding", "NAME"
    )
    kind: str | None = setting(
        None,
        "classify: one label; multilabel: any number of labels; regress: a number (default: classify or regress, "
        "detected from the labels)",
        "--kind",
        choices=("classify", "multilabel", "regress"),
    )
    class_weights: str | None = setting(
        None,
        "balanced: give rare labels a higher weight in the loss (default: none)",
        "--class-weights",
        choices=("none", "balanced"),
    )
    merge: str | None = setting(
        None,
        "answerability: rule for combining the windows of a long context: any-answerable (default) or any-unanswerable",
        "--merge",
        "RULE",
    )
    threshold: float | None = setting(
        None,
        "SQuAD 2.0: no-answer threshold (default: fitted on inner, the validation split; 0 means no offset)",
        "--threshold",
        "X",
    )
    no_answer_share: float | None = setting(
        None,
        "SQuAD: drop questions until this fraction is unanswerable (default: keep all)",
        "--no-answer-share",
        "X",
    )
    split_seed: int | None = setting(
        None, "random seed for splitting off dev when --dev is not given (default: 0)", "--split-seed", "N"
    )
    limit: int | None = setting(
        None, "sample N training examples and at most N dev examples (default: use all)", "--limit", "N"
    )
    metric: str | None = setting(
        None,
        "metric that epochs, heads and the recommended row are chosen by (default: set by the task)",
        "--metric",
        "NAME",
    )
    skip_bad: bool = setting(
        False, "skip malformed rows and report how many (default: stop with an error)", "--skip-bad"
    )
    max_length: int | None = setting(
        None, "maximum number of tokens per window (default: depends on the task)", "--max-length", "N"
    )
    overlap: int | None = setting(
        None, "context tokens shared by neighbouring windows (default: depends on the task)", "--overlap", "N"
    )


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
    """How the encoder is fine-tuned before its hidden states are extracted."""

    method: str = setting(
        "full",
        "tuning method: full (default), freeze:k=K, adapters:size=64,share=none|layer|3|all, bitfit or lora:r=8",
        "--method",
        "SPEC",
    )
    epochs: float = setting(
        1.0,
        "number of tuning epochs, e.g. 0.3; 0 skips tuning (default: depends on task and method, otherwise 1)",
        "--epochs",
        "X",
    )
    head: str | None = setting(
        None,
        "head trained together with the encoder (default: a linear layer on the last hidden state)",
        "--tune-head",
        "SPEC",
    )
    lr: float | None = setting(
        None, "peak learning rate for tuning (default: depends on method, task and encoder width)", "--lr", "X"
    )
    bert_lr: float | None = setting(
        None, "learning rate for encoders of BERT's width, if lr is not set; a preset of tasks"
    )
    batch: int = setting(16, "windows per batch")
    warmup: float = setting(0.1, "fraction of the steps with a rising learning rate")
    decay: str = setting("linear", "learning rate schedule after warm-up: linear or constant")
    weight_decay: float = setting(0.01, "weight decay")
    clip: float = setting(1.0, "maximum norm of the gradient")
    accumulate: int = setting(1, "gradient accumulation: number of pieces that each batch is split into")
    checkpointing: bool = setting(
        False, "gradient checkpointing: recompute activations in the backward pass to save memory"
    )
    bf16: bool | None = setting(None, "compute in bfloat16 (default: on CUDA devices that support it)")
    save_minutes: float = setting(5.0, "minutes between checkpoints; an interrupted run resumes from the last one")
    seed: int = setting(0, "random seed")
    device: str = setting("auto", "device to tune on")

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch": 1, "warmup": 0, "weight_decay": 0, "accumulate": 1, "save_minutes": 0}
        _check_numbers(self, "tune", least, ("lr", "bert_lr", "clip"))
        if self.decay not in ("linear", "constant"):
            raise BadInput(f"tune.decay is {shorten(self.decay)}; expected linear or constant")


@hashed_as(
    "dtype", "layers", "tokens", "live", "max_gb", "shard_mb", "batch_tokens", "seed", "device", added=("pairs",)
)
@dataclass(frozen=True)
class ExtractConfig:
    """How hidden states are computed and stored."""

    dtype: str = setting(
        "f16",
        "number format of stored states (default: f16); int8 takes half the space of f16",
        "--dtype",
        choices=("f32", "f16", "int8"),
    )
    layers: str = setting(
        "all", "layers to store; 0 is the embedding layer (default: all)", "--layers", "all|last4|first6|every2|0+3+6"
    )
    tokens: str = setting(
        "all",
        "states to store for each text: auto (what the heads read; default of run for labels and values), all (every "
        "token; default otherwise), context (context tokens and CLS; question answering only), or summaries, one or "
        "more of cls, last, mean, max in this order, joined by + (only for heads that need nothing else)",
        "--tokens",
        "all|context|cls+mean+max",
    )
    pairs: str = setting(
        TOGETHER,
        "pairs of texts: encode them together as one input, apart (each text by itself), both, or auto (both if the "
        "encoder is not tuned, else together; default of run)",
        "--pairs",
        choices=("auto", *PAIRS),
    )
    live: bool = setting(
        False, "do not store the states; run the encoder again in every epoch of head training", "--live"
    )
    max_gb: float | None = setting(
        None, "stop before extraction if the store would exceed X gigabytes (default: no limit)", "--max-gb", "X"
    )
    shard_mb: int = setting(256, "maximum megabytes per shard file (default: 256)", "--shard-mb", "N")
    batch_tokens: int = setting(4096, "tokens per encoder batch")
    seed: int = setting(0, "random seed")
    device: str = setting("auto", "device to run the encoder on")

    def __post_init__(self) -> None:
        _check_numbers(self, "extract", {"shard_mb": 1, "batch_tokens": 1, "seed": 0}, ("max_gb",))
        if self.pairs not in ("auto", *PAIRS):
            raise BadInput(
                f"extract.pairs is {shorten(self.pairs)}; expected auto, {', '.join(PAIRS[:-1])} or {PAIRS[-1]}"
            )

    @property
    def stored_tokens(self) -> str:
        """What is stored of the tokens of a window: nothing if no window is encoded."""
        return NO_TOKENS if self.pairs == APART else self.tokens


@hashed_as(
    "epochs",
    "lr",
    "rates",
    "batch",
    "warmup",
    "weight_decay",
    "clip",
    "order_seed",
    "device",
    added=("validation",),
)
@dataclass(frozen=True)
class FitConfig:
    """How heads are trained on stored hidden states."""

    epochs: int = setting(5, "training epochs of the heads")
    lr: float = setting(3e-3, "peak learning rate of the heads")
    rates: tuple[float, ...] = setting(
        (), "more learning rates to try in the same pass; each head keeps its best on inner"
    )
    batch: int = setting(32, "windows per batch")
    warmup: float = setting(0.1, "fraction of the steps with a rising learning rate")
    weight_decay: float = setting(0.01, "weight decay")
    clip: float = setting(1.0, "maximum norm of the gradient")
    order_seed: int = setting(0, "random seed of the batch order")
    device: str = setting("auto", "device to train heads on")
    validation: str = setting(
        "auto",
        "what heads are selected on: inner, or folds (out-of-fold predictions of train and inner); auto: folds for up "
        "to 10,000 rows if the encoder has not seen the labels",
    )

    def __post_init__(self) -> None:
        if self.validation not in ("auto", "inner", "folds"):
            raise BadInput(f"fit.validation is {shorten(self.validation)}; expected auto, inner or folds")
        least = {"epochs": 1, "batch": 1, "warmup": 0, "weight_decay": 0, "order_seed": 0}
        _check_numbers(self, "fit", least, ("lr", "clip"))


@hashed_as("task", "encoder", "heads", "seeds", "data", "tune", "extract", "fit", added=("prefer",))
@dataclass(frozen=True)
class Recipe:
    """All settings of a run."""

    task: str
    encoder: str = setting(
        "minilm",
        "encoder: minilm (default, no download), a folder, or a name on the Hugging Face Hub",
        "--encoder",
        "E",
    )
    heads: tuple[str, ...] = ("quick",)
    seeds: tuple[int, ...] = (0, 1)
    data: DataConfig = field(default_factory=DataConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    prefer: str = setting(
        "best",
        "which of the rows that are within a standard error of the best is recommended and saved: best (default), "
        "small (fewest parameters) or fast (fewest encoder layers)",
        "--prefer",
        choices=("best", "small", "fast"),
    )

    def __post_init__(self) -> None:
        if self.prefer not in ("best", "small", "fast"):
            raise BadInput(f"prefer is {shorten(self.prefer)}; expected best, small or fast")
        if not self.seeds:
            raise BadInput("seeds is empty; expected at least one whole number, e.g. 0,1")


def _check_numbers(config: object, section: str, least: Mapping[str, float], above_zero: Sequence[str] = ()) -> None:
    """Check lower bounds, so that bad numbers fail early; the comparisons are written so that NaN fails them too."""
    for name, bound in least.items():
        value = getattr(config, name)
        if not bound <= value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected at least {bound}")
    for name in above_zero:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{section}.{name} is {value}; expected more than 0")


# Conversion from and to plain data


@cache
def setting_types(cls: type[Any]) -> dict[str, Any]:
    """The type of each setting, by name."""
    return typing.get_type_hints(cls)


class RawText(str):
    """Text from the command line, still to be parsed according to the type of its setting."""


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a config from plain data; ``where`` names the file or flag in error messages."""
    types = setting_types(cls)  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key not in types:
            raise BadInput(f"{where}: {unknown_name('setting', key, types)}")
        arguments[key] = _convert(types[key], value, f"{where}: {key}")
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


def merge_settings(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two levels of settings; values of ``over`` win."""
    plain = dict(under)
    for key, value in over.items():
        section = plain.get(key)
        if isinstance(section, Mapping) and isinstance(value, Mapping):
            plain[key] = {**section, **value}
        else:
            plain[key] = value
    return plain


def with_settings(config: T, **values: Any) -> T:
    """A copy of a config with the given values; None means unchanged."""
    return replace(config, **{key: value for key, value in values.items() if value is not None})  # type: ignore[type-var]


def _convert(annotation: Any, value: Any, where: str) -> Any:
    """Convert a value to its annotated type; accepts whole numbers as floats and lists as tuples."""
    if isinstance(value, RawText):
        value = _parse_text(annotation, value)
    if is_dataclass(annotation) and isinstance(annotation, type):
        if isinstance(value, Mapping):
            return from_mapping(annotation, value, where)
        raise BadInput(f"{where}: got {shorten(value)}, expected a table")
    if isinstance(annotation, types.UnionType):  # X | None
        return None if value is None else _convert(typing.get_args(annotation)[0], value, where)
    if typing.get_origin(annotation) is tuple:
        entries = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(typing.get_args(annotation)[0], entry, where) for entry in entries)
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, annotation) or (annotation is not bool and isinstance(value, bool)):
        raise BadInput(f"{where}: got {shorten(value)}, expected {annotation.__name__}")
    return value


def _parse_text(annotation: Any, text: str) -> Any:
    """Parse text as the setting's type; text that cannot be parsed is returned, and :func:`_convert` rejects it.

    Lists of text are separated by spaces, because specs contain commas; lists of numbers by commas. Empty text
    unsets an optional setting.
    """
    if isinstance(annotation, types.UnionType):
        return _parse_text(typing.get_args(annotation)[0], text) if text else None
    if typing.get_origin(annotation) is tuple:
        kind = typing.get_args(annotation)[0]
        return [_parse_text(kind, part) for part in (text.split() if kind is str else text.split(","))]
    if annotation is bool:
        return {"true": True, "false": False}.get(text, str(text))
    try:
        return annotation(text) if annotation in (int, float) else str(text)
    except ValueError:
        return str(text)


# Recipes


def _with_presets(values: Mapping[str, Any], defaults: Defaults | None, where: str) -> Recipe:
    """A recipe from plain data, on top of the presets of its task and tuning method."""
    tune = values.get("tune")
    method = tune.get("method", "full") if isinstance(tune, Mapping) else "full"
    presets = defaults(str(values.get("task")), str(method)) if defaults else {}
    return from_mapping(Recipe, merge_settings(presets, values), where)


def built_in_recipe(task: str, defaults: Defaults | None = None, **values: Any) -> Recipe:
    """The default recipe of a task; ``values`` are top-level settings and sections that override it."""
    return _with_presets({"task": task, **values}, defaults, f"recipe for {task}")


def read_recipe(path: Path, defaults: Defaults | None = None, over: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe from a TOML file, on top of the presets of its task and method; ``over`` overrides both."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a TOML recipe: {error}") from error
    return _with_presets(merge_settings(values, over or {}), defaults, str(path))


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe of a run; the defaults if the folder was made by ``fit`` and has none."""
    path = folder / "recipe.toml"
    return read_recipe(path) if path.exists() else Recipe(task="fit")


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write the resolved recipe as TOML."""
    import tomli_w

    with atomic_open(path) as file:
        file.write(tomli_w.dumps(to_mapping(recipe)))


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Apply settings such as ``fit.lr=1e-3``; the last one wins."""
    plain = to_mapping(recipe)
    for text in settings:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise BadInput(f"--set {shorten(text)}: expected key=value, e.g. fit.lr=1e-3")
        *sections, key = path.split(".")
        table = plain
        for section in sections:
            if not isinstance(table.get(section), dict):
                sections = [name for name, content in plain.items() if isinstance(content, dict)]
                raise BadInput(f"--set {shorten(text)}: {unknown_name('section', section, sections)}")
            table = table[section]
        table[key] = RawText(value)
    return from_mapping(Recipe, plain, "--set")
