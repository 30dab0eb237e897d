"""Tables and figures as data: each is a list of rows, which say where their numbers come from.

``workflows/recipes/shared.toml`` names data sets, encoders and everything that several tables use, on top of the
settings in ``defaults.toml``; ``reproduce/NAME.toml`` is one table or figure; ``published.csv`` holds the printed
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar

from bertvision.core.config import from_mapping, merge_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import hashed_as, hashed_fields
from bertvision.core.registry import unknown_name
from bertvision.workflows.reproduce.defaults import RECIPES, read_toml, recipe_head

SCALES = ("paper", "laptop")
KINDS = ("leaderboard", "curve", "methods", "ablation", "analysis", "learning", "counts")
PICTURES = ("lines", "states", "points", "bars", "heat")
MAX_PREFIX = "max:"
"""Prefix of a head that is combined with the encoder by the larger probability."""
ENCODER, NO_ANSWER_ROW = "encoder", "nobody"
"""Predictors that are not heads, under their names in recipes and hashes: the tuned encoder, and one that never
answers."""
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
"""Keys of a row in the hashes of saved documents, with the values for kinds of rows without that setting."""
HASHED_NAMES = {"name": "row", "predictor": "who", "versus": "against"}
"""Fields of rows with another key in hashes."""

T = TypeVar("T")


def _hashed_row(cls: type[T]) -> type[T]:
    """Class decorator: checks that the fields of a kind of row have keys in :data:`HASHED_ROW`."""
    keys = {item.name: HASHED_NAMES.get(item.name, item.name) for item in fields(cls)}  # type: ignore[arg-type]
    for key in set(keys.values()) - set(HASHED_ROW):
        raise TypeError(f"{cls.__name__}: {key} has no key in hashes; see HASHED_ROW")
    return hashed_as(**keys)(cls)


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """Settings of every kind of row: its name in the table, and the shape that parameters are counted on."""

    name: str
    data: str | None = None  # if the run or tuning does not set it
    only: str | None = None  # the only scale with this row
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
        """The row under its stable keys, for hashes."""
        return {**HASHED_ROW, **hashed_fields(self)}


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class BoardRow(RowSpec):
    """A predictor of a run: encoder, a head, max:HEAD, or the constant row without any answer."""

    run: str
    predictor: str = ENCODER

    @property
    def run_key(self) -> str:
        """The run's name and data."""
        return f"{self.run}/{self.data or ''}"

    @property
    def required_heads(self) -> list[str]:
        """Heads that must be on the leaderboard of the run."""
        head = head_of(self.predictor, self.shape)
        return [] if head is None else [head]


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class AnalysisRow(BoardRow):
    """A row of an analysis of the run."""

    study: str
    versus: str | None = None  # another predictor, for analyses of pairs

    @property
    def required_heads(self) -> list[str]:
        head = None if self.versus is None else head_of(self.versus, self.shape)
        return [*super().required_heads, *([] if head is None else [head])]


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class EpochRow(BoardRow):
    """The predictor on inner after this many epochs of its fit."""

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
    """A checkpoint of a tuning curve, at this many epochs."""

    curve: str
    at: float


@_hashed_row
@dataclass(frozen=True, kw_only=True)
class TunedRow(RowSpec):
    """An encoder tuned by a method, with its own head."""

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
"""Kinds of rows by the setting that identifies them; the first one that a row has decides."""


def head_of(predictor: str, shape: str) -> str | None:
    """The head of a predictor in a row of this shape; None for the encoder, and for no answer."""
    spec = predictor.removeprefix(MAX_PREFIX)
    return None if spec in (ENCODER, NO_ANSWER_ROW) else recipe_head(spec, shape)


def metric_title(metric: str) -> str:
    """Title of a metric in tables and figures."""
    return str(_shared_file()["titles"].get(metric, metric))


def board_name(predictor: str, shape: str) -> str:
    """A predictor's name on the leaderboard."""
    return head_of(predictor, shape) or ENCODER


def heads_by_run(rows: Iterable[RowSpec]) -> dict[str, list[str]]:
    """Heads that the rows need on the leaderboard of each run, by its key."""
    heads: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, BoardRow):
            of_run = heads.setdefault(row.run_key, [])
            of_run += [head for head in dict.fromkeys(row.required_heads) if head not in of_run]
    return heads


@dataclass(frozen=True)
class Picture:
    """A figure of a table's values: metrics on the y axis; on the x axis a metric, or the x value of the rows."""

    kind: str
    y: tuple[str, ...]
    x: str = ""
    log: bool = False  # logarithmic x axis
    one_per_metric: bool = False  # several pictures, if there are too many lines for one

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
    """A data set: its files in the data folder, and its size (windows, and mean tokens per window).

    Alternative names of a file are separated by bars: ``one.json|other.json``.
    """

    name: str
    task: str
    about: str
    url: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    windows: int = 0
    learned: int = 0  # windows of the training data
    tokens: int = 0

    @property
    def file_names(self) -> dict[str, list[str]]:
        """Its files by role; alternative names are still separated by bars."""
        return {key: [names] if isinstance(names, str) else list(names) for key, names in self.files.items()}


@hashed_as("name", "kind", "encoder", "data", "tune", "extract", "fit", "options", "at", available="there")
@dataclass(frozen=True)
class Source:
    """A run, curve or tuning that tables share."""

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
    rates: Mapping[str, float]  # tokens tuned per second, assumed in plans
    seeds: tuple[int, ...]
    single_seed: tuple[str, ...]  # prefixes of heads that are fitted with the first seed only
    extra_seeds: tuple[str, ...]  # prefixes of heads that are fitted with MANY_SEEDS
    substitutes: Mapping[str, str]  # heads with the width of the paper's encoder -> heads that are fitted instead
    data: Mapping[str, DataSet]
    sources: Mapping[str, Source]  # by "run:squad-1" and the like

    def rows_of(self, item: Item) -> list[RowSpec]:
        """An item's rows at this scale, with the heads of the scale."""
        return [self.substitute_heads(row) for row in item.rows if row.only in (None, self.scale)]

    def substitute_heads(self, row: RowSpec) -> RowSpec:
        """The row with the heads of this scale."""
        if isinstance(row, BoardRow):
            row = replace(row, predictor=self._substitute(row.predictor))
        if isinstance(row, AnalysisRow) and row.versus is not None:
            row = replace(row, versus=self._substitute(row.versus))
        return row

    def _substitute(self, predictor: str) -> str:
        """The head of this scale, also if it is combined with the encoder."""
        spec = predictor.removeprefix(MAX_PREFIX)
        return predictor.removesuffix(spec) + self.substitutes.get(spec, spec)

    def seeds_of(self, spec: str) -> tuple[int, ...]:
        """Seeds of a head: one if it is expensive, more if its range over seeds is reported."""
        if spec.startswith(self.extra_seeds):
            return tuple(range(MANY_SEEDS))
        return self.seeds[:1] if spec.startswith(self.single_seed) else self.seeds

    def source_of(self, row: RowSpec) -> Source | None:
        """The run, curve or tuning that a row is read from."""
        return None if row.source is None else self.sources[row.source]

    def data_of(self, row: RowSpec) -> str | None:
        """Name of the data set of a row."""
        source = self.source_of(row)
        return None if source is None else row.data or source.data

    def source_chain(self, source: Source) -> Iterator[Source]:
        """A source, the source of its encoder, and so on down to an encoder of the scale."""
        yield source
        while source.encoder not in self.encoders:
            name, at, _ = source.encoder.partition("@")
            source = self.sources[f"{'curve' if at else 'tune'}:{name}"]
            yield source

    def base_encoder(self, source: Source) -> str:
        """Name of the untuned encoder that a source starts from."""
        return list(self.source_chain(source))[-1].encoder


@cache
def all_items() -> Mapping[str, Item]:
    """All tables and figures, in the order of the papers."""
    order = _shared_file()["order"]
    return {name: _item(name, read_toml(RECIPES / "reproduce" / f"{name}.toml")) for name in order}


def find_items(name: str) -> list[Item]:
    """The item of this name, or every one for ``all``."""
    items = all_items()
    if name == "all":
        return list(items.values())
    if name not in items:
        raise BadInput(unknown_name("table or figure", name, [*items, "all", "list"]))
    return [items[name]]


@cache
def shared_at(scale: str) -> Shared:
    """Settings that tables share at a scale; those under the scale's name override the general ones."""
    if scale not in SCALES:
        raise BadInput(unknown_name("scale", scale, list(SCALES)))
    values = _shared_file()
    own = values["scale"][scale]
    sources = {}
    for kind in ("run", "curve", "tune"):
        for name, table in values[kind].items():
            sources[f"{kind}:{name}"] = _at_scale(Source, name, {"kind": kind, **table}, scale)
    return Shared(
        scale=scale,
        encoders=own["encoders"],
        shapes={name: (int(layers), int(width)) for name, (layers, width) in own["shapes"].items()},
        rates={name: float(rate) for name, rate in own["rates"].items()},
        seeds=tuple(own["seeds"]),
        single_seed=tuple(own.get("single_seed", ())),
        extra_seeds=tuple(own.get("extra_seeds", ())),
        substitutes=own.get("substitutes", {}),
        data={name: _at_scale(DataSet, name, table, scale) for name, table in values["data"].items()},
        sources=sources,
    )


def _at_scale(cls: type[T], name: str, table: Mapping[str, Any], scale: str) -> T:
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
    settings = {"title", "source", "kind", "note"}
    for key in head:
        if key not in settings:
            raise BadInput(f"{where}: {unknown_name('setting', key, sorted(settings))}")
    return Item(name=name, rows=rows, metrics=tuple(values["metrics"]), picture=picture, **head)


def _rows(table: Mapping[str, Any], where: str) -> Iterator[RowSpec]:
    """A row, or a row for each name in ``each``, which replaces {}."""
    settings = {key: value for key, value in table.items() if key != "each"}
    kind = next((ROW_KINDS[key] for key in ROW_KINDS if key in settings), None)
    if kind is None:
        raise BadInput(f"{where}: row {table.get('name')} has none of {', '.join(ROW_KINDS)}")
    for name in table.get("each", ["{}"]):
        named = {key: value.replace("{}", name) if isinstance(value, str) else value for key, value in settings.items()}
        yield from_mapping(kind, named, where)


@cache
def _shared_file() -> dict[str, Any]:
    return read_toml(RECIPES / "shared.toml")
