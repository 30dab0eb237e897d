"""What is reproduced, as data: a table or figure is a list of rows, each with where its numbers come from.

``workflows/recipes/shared.toml`` names data sets, encoders and everything that several tables use;
``reproduce/NAME.toml`` is one table or figure; ``published.csv`` holds the printed numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bertvision.core.config import from_mapping, merge_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import hashed_as, hashed_fields
from bertvision.core.registry import unknown_name
from bertvision.heads.base import canonical_spec

RECIPES = Path(__file__).parents[1] / "recipes"
SCALES = ("paper", "laptop")
KINDS = ("leaderboard", "curve", "methods", "ablation", "analysis", "learning", "counts")
PICTURES = ("lines", "states", "points", "bars", "heat")
MIX = "max:"
"""Before a head that is mixed with the encoder."""
ENCODER, NOBODY = "encoder", "nobody"
"""Predictors that are no heads: the tuned encoder itself, and who never answers."""
MANY_SEEDS = 6
"""Seeds whose range encloses the median of all seeds with 97 %: 1 - 2 / 2^6."""
TABLES = ("files", "options", "tune", "extract", "fit")
"""Settings of data sets and sources that are tables themselves."""

HASHED_ROW: Mapping[str, Any] = {
    "row": "",
    "run": None,
    "curve": None,
    "tune": None,
    "count": None,
    "data": None,
    "who": ENCODER,
    "study": None,
    "against": None,
    "share": None,
    "limited": False,
    "epoch": None,
    "at": None,
    "method": "full",
    "head": None,
    "without": None,
    "mean": None,
    "only": None,
    "layers": 24,
    "width": 1024,
    "tokens": 386,
    "shape": "span",
    "outputs": 2,
    "series": "",
    "each": (),
}
"""Keys of a row in the hashes of kept documents, and what stands there for a kind of row without that setting."""
HASHED_NAMES = {"name": "row", "predictor": "who", "versus": "against"}
"""Fields of rows that have another key in hashes."""

T = TypeVar("T")


def _hashed_row(cls: type[T]) -> type[T]:
    """Decorator of a kind of row: its fields have the keys of :data:`HASHED_ROW`."""
    keys = {item.name: HASHED_NAMES.get(item.name, item.name) for item in fields(cls)}  # type: ignore[arg-type]
    for key in set(keys.values()) - set(HASHED_ROW):
        raise TypeError(f"{cls.__name__}: {key} has no key in hashes; see HASHED_ROW")
    return hashed_as(**keys)(cls)


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """What every kind of row has: its name in the table, and what its parameters are counted on."""

    name: str
    data: str | None = None  # where the run or tuning leaves it open
    only: str | None = None  # the scale that the row is for
    series: str = ""  # the line of the picture that the row is a point of
    layers: int = 24
    width: int = 1024
    tokens: int = 386
    shape: str = "span"
    outputs: int = 2

    @property
    def source(self) -> str | None:
        """Key of the run, curve or tuning that the row is read from."""
        for kind in ("run", "curve", "tune"):
            if hasattr(self, kind):
                return f"{kind}:{getattr(self, kind)}"
        return None

    def facts(self) -> dict[str, Any]:
        """The row under the keys that do not change, for hashes."""
        return {**HASHED_ROW, **hashed_fields(self)}


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class BoardRow(RowSpec):
    """A predictor of a run: encoder, a head, max:HEAD, or nobody."""

    run: str
    predictor: str = ENCODER

    @property
    def label(self) -> str:
        """The run on its data."""
        return f"{self.run}/{self.data or ''}"

    @property
    def heads(self) -> list[str]:
        """Heads that must be on the leaderboard of the run."""
        head = head_of(self.predictor)
        return [] if head is None else [head]


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class AnalysisRow(BoardRow):
    """A row of an analysis of the run."""

    study: str
    versus: str | None = None  # the analysis' row of the predictor and not of this one

    @property
    def heads(self) -> list[str]:
        head = None if self.versus is None else head_of(self.versus)
        return [*super().heads, *([] if head is None else [head])]


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class EpochRow(BoardRow):
    """The predictor after so many epochs of its fit, on inner."""

    epoch: int


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class SubsetRow(BoardRow):
    """The predictor fitted on a share of the training data."""

    share: float
    limited: bool = False  # the encoder was tuned on that share too


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class CurveRow(RowSpec):
    """A checkpoint of one tuning, at so many epochs."""

    curve: str
    at: float


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class TunedRow(RowSpec):
    """An encoder alone, tuned by a method."""

    tune: str
    method: str = "full"
    head: str | None = None  # what the encoder is tuned with


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class AblationRow(TunedRow):
    """An adapted encoder with adapters switched off."""

    without: str  # all, or each (one layer at a time, the worst)


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class CountRow(RowSpec):
    """Parameters of a head or of a method; nothing is run."""

    count: str


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class MeanRow(RowSpec):
    """Mean of the metric over all rows above that match, e.g. "* / full"."""

    mean: str


ROW_KINDS: Mapping[str, type[RowSpec]] = {
    "mean": MeanRow,
    "count": CountRow,
    "curve": CurveRow,
    "without": AblationRow,
    "tune": TunedRow,
    "study": AnalysisRow,
    "epoch": EpochRow,
    "share": SubsetRow,
    "run": BoardRow,
}
"""Kinds of rows by the setting that tells them; the first that a row has."""


def head_of(predictor: str) -> str | None:
    """The head that a row is about; None where it is the encoder's or nobody's."""
    spec = predictor.removeprefix(MIX)
    return None if spec in (ENCODER, NOBODY) else canonical_spec(spec)


def metric_title(metric: str) -> str:
    """A metric as tables and figures call it."""
    return str(_shared_file()["titles"].get(metric, metric))


def board_name(predictor: str) -> str:
    """A predictor's name on the leaderboard."""
    return head_of(predictor) or ENCODER


def heads_by_run(rows: Iterable[RowSpec]) -> dict[str, list[str]]:
    """Heads that must be on the leaderboard of every run that the rows name, by the run's label."""
    heads: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, BoardRow):
            known = heads.setdefault(row.label, [])
            known += [head for head in dict.fromkeys(row.heads) if head not in known]
    return heads


@dataclass(frozen=True)
class Picture:
    """A figure of a table's values: metrics upwards, and across a metric or what the rows grow by."""

    kind: str
    up: tuple[str, ...]
    across: str = ""
    log: bool = False  # whether across is on a logarithmic scale
    apart: bool = False  # a picture for each metric: together their lines could not be told apart

    def __post_init__(self) -> None:
        if self.kind not in PICTURES:
            raise BadInput(f"recipes: {unknown_name('picture', self.kind, list(PICTURES))}")


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    name: str
    title: str
    source: str
    kind: str
    rows: tuple[RowSpec, ...]
    metrics: tuple[str, ...]
    note: str = ""
    picture: Picture | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"recipe {self.name}: {unknown_name('kind', self.kind, list(KINDS))}")


@hashed_as("name", "task", "about", "url", "files", "options", "windows", "learned", "tokens")
@dataclass(frozen=True)
class DataSet:
    """Where a data set lies below the data folder, and how large it is (windows, and tokens a window on average).

    A file that may have either of two names is ``one.json|other.json``.
    """

    name: str
    task: str
    about: str
    url: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    windows: int = 0
    learned: int = 0  # of these
    tokens: int = 0

    @property
    def file_names(self) -> dict[str, list[str]]:
        """Its files by what they are for; one that may have several names is all of them, with bars between."""
        return {key: [names] if isinstance(names, str) else list(names) for key, names in self.files.items()}


@hashed_as("name", "kind", "encoder", "data", "tune", "extract", "fit", "options", "at", available="there")
@dataclass(frozen=True)
class Source:
    """A run, a curve or a tuning that tables share."""

    name: str
    kind: str
    encoder: str
    data: str | None = None
    tune: Mapping[str, Any] = field(default_factory=dict)
    extract: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the data
    at: tuple[float, ...] = ()
    available: bool = True  # at this scale


@dataclass(frozen=True)
class Shared:
    """Everything that tables refer to, at one scale."""

    scale: str
    encoders: Mapping[str, str]
    shapes: Mapping[str, tuple[int, int]]  # layers and width
    rates: Mapping[str, float]  # tokens tuned a second; an assumption, for plans
    seeds: tuple[int, ...]
    single_seed: tuple[str, ...]  # heads that begin so are fitted with the first seed only
    extra_seeds: tuple[str, ...]  # and those with MANY_SEEDS
    substitutes: Mapping[str, str]  # heads whose width is that of the paper's encoder, and what is fitted instead
    data: Mapping[str, DataSet]
    sources: Mapping[str, Source]  # by "run:squad-1" and the like

    def rows_of(self, item: Item) -> list[RowSpec]:
        """An item's rows at this scale, with the heads that are fitted at it."""
        return [self.substituted(row) for row in item.rows if row.only in (None, self.scale)]

    def substituted(self, row: RowSpec) -> RowSpec:
        """The row with the heads that are fitted at this scale."""
        if isinstance(row, BoardRow):
            row = replace(row, predictor=self._substitute(row.predictor))
        if isinstance(row, AnalysisRow) and row.versus is not None:
            row = replace(row, versus=self._substitute(row.versus))
        return row

    def _substitute(self, predictor: str) -> str:
        """A head, also where it is mixed with the encoder."""
        spec = predictor.removeprefix(MIX)
        return predictor.removesuffix(spec) + self.substitutes.get(spec, spec)

    def seeds_of(self, spec: str) -> tuple[int, ...]:
        """The first alone for a costly head, more for one whose spread over seeds is reported."""
        if spec.startswith(self.extra_seeds):
            return tuple(range(MANY_SEEDS))
        return self.seeds[:1] if spec.startswith(self.single_seed) else self.seeds

    def source_of(self, row: RowSpec) -> Source | None:
        """The run, curve or tuning that a row is read from."""
        return None if row.source is None else self.sources[row.source]

    def data_of(self, row: RowSpec) -> str | None:
        """Name of the data that a row's source learns from and is scored on."""
        source = self.source_of(row)
        return None if source is None else row.data or source.data

    def source_chain(self, source: Source) -> Iterator[Source]:
        """A source, what its encoder was tuned by, and so on down to an encoder of the scale."""
        yield source
        while source.encoder not in self.encoders:
            name, at, _ = source.encoder.partition("@")
            source = self.sources[f"{'curve' if at else 'tune'}:{name}"]
            yield source

    def base_encoder(self, source: Source) -> str:
        """The encoder that everything below a source begins with, by its name in the scale."""
        return list(self.source_chain(source))[-1].encoder


@cache
def all_items() -> Mapping[str, Item]:
    """All tables and figures, in the order of the papers."""
    order = _shared_file()["order"]
    return {name: _item(name, _read(RECIPES / "reproduce" / f"{name}.toml")) for name in order}


def find_items(name: str) -> list[Item]:
    """One by name, or ``all``."""
    items = all_items()
    if name == "all":
        return list(items.values())
    if name not in items:
        raise BadInput(unknown_name("table or figure", name, [*items, "all", "list"]))
    return [items[name]]


@cache
def shared_at(scale: str) -> Shared:
    """What the tables share; settings under the scale's name lie over those that stand above it."""
    if scale not in SCALES:
        raise BadInput(unknown_name("scale", scale, list(SCALES)))
    values = _shared_file()
    own = values["scale"][scale]
    sources = {}
    for kind in ("run", "curve", "tune"):
        for name, table in values[kind].items():
            sources[f"{kind}:{name}"] = _scaled(Source, name, {"kind": kind, **table}, scale)
    return Shared(
        scale,
        own["encoders"],
        {name: (int(layers), int(width)) for name, (layers, width) in own["shapes"].items()},
        {name: float(rate) for name, rate in own["rates"].items()},
        tuple(own["seeds"]),
        tuple(own.get("single_seed", ())),
        tuple(own.get("extra_seeds", ())),
        own.get("substitutes", {}),
        {name: _scaled(DataSet, name, table, scale) for name, table in values["data"].items()},
        sources,
    )


def _scaled(cls: type[T], name: str, table: Mapping[str, Any], scale: str) -> T:
    common = {key: value for key, value in table.items() if key not in SCALES}
    plain, tables = {}, {}
    for key, value in {**merge_settings(common, table.get(scale, {})), "name": name}.items():
        if not isinstance(value, Mapping):
            plain[key] = value
        elif key in TABLES:
            tables[key] = value
        else:
            raise BadInput(f"shared.toml, {name}: {unknown_name('table', key, list(TABLES))}")
    return replace(from_mapping(cls, plain, f"shared.toml, {name}"), **tables)  # type: ignore[type-var]


def _item(name: str, values: Mapping[str, Any]) -> Item:
    where = f"recipe {name}"
    rows = tuple(row for table in values["rows"] for row in _rows(table, where))
    picture = from_mapping(Picture, values["picture"], where) if "picture" in values else None
    head = {key: value for key, value in values.items() if key not in ("rows", "metrics", "picture")}
    known = {"title", "source", "kind", "note"}
    for key in head:
        if key not in known:
            raise BadInput(f"{where}: {unknown_name('setting', key, sorted(known))}")
    return Item(name=name, rows=rows, metrics=tuple(values["metrics"]), picture=picture, **head)


def _rows(table: Mapping[str, Any], where: str) -> Iterator[RowSpec]:
    """A row, or one for each of ``each``, which stands in place of {}."""
    settings = {key: value for key, value in table.items() if key != "each"}
    kind = next((ROW_KINDS[key] for key in ROW_KINDS if key in settings), None)
    if kind is None:
        raise BadInput(f"{where}: row {table.get('name')} has none of {', '.join(ROW_KINDS)}")
    for name in table.get("each", ["{}"]):
        named = {key: value.replace("{}", name) if isinstance(value, str) else value for key, value in settings.items()}
        yield from_mapping(kind, named, where)


@cache
def _shared_file() -> dict[str, Any]:
    return _read(RECIPES / "shared.toml")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
