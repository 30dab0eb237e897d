"""What is reproduced, as data: a recipe is a table's rows, each with where it comes from; several share what they need.

``recipes/shared.toml`` names data sets, encoders and everything that more than one recipe uses;
``recipes/reproduce/NAME.toml`` is one table or figure; ``recipes/published.csv`` holds the printed numbers.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bertvision.core.config import from_mapping, merged
from bertvision.core.errors import BadInput
from bertvision.core.files import hashed_as
from bertvision.core.registry import unknown

SCALES = ("paper", "laptop")
KINDS = ("leaderboard", "curve", "methods", "ablation", "analysis", "learning", "counts")
PICTURES = ("lines", "states", "points", "bars", "heat")


MIX = "max:"
"""Before a head that is mixed with the encoder."""
OFTEN = 6
"""Seeds whose range encloses the median of all seeds with 97 %: 1 - 2 / 2^6."""
TABLES = ("files", "options", "tune", "extract", "fit")
"""Settings of data sets and sources that are tables themselves."""


@hashed_as(
    "row",
    "run",
    "curve",
    "tune",
    "count",
    "data",
    "who",
    "study",
    "against",
    "share",
    "limited",
    "epoch",
    "at",
    "method",
    "head",
    "without",
    "mean",
    "only",
    "layers",
    "width",
    "tokens",
    "shape",
    "outputs",
    "series",
    "each",
)
@dataclass(frozen=True)
class Line:
    """One row of a table: what it is called there, and which run, curve, tuning or count it is read from."""

    row: str
    run: str | None = None  # heads on states: who (encoder, a head, max:HEAD, nobody), and what is asked of it
    curve: str | None = None  # a checkpoint of one tuning, at so many epochs
    tune: str | None = None  # an encoder alone, by a method
    count: str | None = None  # parameters of a head or of a method; nothing is run
    data: str | None = None  # where the run or tuning leaves it open
    who: str = "encoder"
    study: str | None = None  # an analysis of the run; the row of who
    against: str | None = None  # the analysis' row of who and not of this one
    share: float | None = None  # who fitted on this share of the training data
    limited: bool = False  # the encoder was tuned on that share too
    epoch: int | None = None  # who after so many epochs of its fit, on inner
    at: float | None = None
    method: str = "full"
    head: str | None = None  # what the encoder is tuned with
    without: str | None = None  # adapters switched off: all, or each (one layer at a time, the worst)
    mean: str | None = None  # of the metric over all rows that match, e.g. "* / full"
    only: str | None = None  # the scale that the row is for
    layers: int = 24
    width: int = 1024
    tokens: int = 386
    shape: str = "span"
    outputs: int = 2
    series: str = ""  # the line of the picture that the row is a point of
    each: tuple[str, ...] = ()  # the same row for each of these, put in place of {}


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
            raise BadInput(f"recipes: {unknown('picture', self.kind, list(PICTURES))}")


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    name: str
    title: str
    source: str
    kind: str
    lines: tuple[Line, ...]
    metrics: tuple[str, ...]
    note: str = ""
    picture: Picture | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"recipe {self.name}: {unknown('kind', self.kind, list(KINDS))}")


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


def file_names(data: DataSet) -> dict[str, list[str]]:
    """Its files by what they are for; one that may have several names is all of them, with bars between."""
    return {key: [names] if isinstance(names, str) else list(names) for key, names in data.files.items()}


@hashed_as("name", "kind", "encoder", "data", "tune", "extract", "fit", "options", "at", "there")
@dataclass(frozen=True)
class Source:
    """A run, a curve or a tuning that recipes share."""

    name: str
    kind: str
    encoder: str
    data: str | None = None
    tune: Mapping[str, Any] = field(default_factory=dict)
    extract: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the data
    at: tuple[float, ...] = ()
    there: bool = True  # false: not at this scale


@dataclass(frozen=True)
class Shared:
    """Everything that recipes refer to, at one scale."""

    scale: str
    encoders: Mapping[str, str]
    shapes: Mapping[str, tuple[int, int]]  # layers and width
    rates: Mapping[str, float]  # tokens tuned a second; an assumption, for plans
    seeds: tuple[int, ...]
    once: tuple[str, ...]  # heads that begin so are fitted with the first seed only
    often: tuple[str, ...]  # and those with OFTEN seeds
    narrow: Mapping[str, str]  # heads whose width is that of the paper's encoder, and what is fitted in their place
    data: Mapping[str, DataSet]
    sources: Mapping[str, Source]  # by "run:squad-1" and the like

    def lines_of(self, item: Item) -> list[Line]:
        """An item's rows at this scale, with the heads that are fitted at it."""
        return [self.narrowed(line) for line in item.lines if line.only in (None, self.scale)]

    def narrowed(self, line: Line) -> Line:
        """The row with the heads that are fitted at this scale."""
        against = None if line.against is None else self._narrow(line.against)
        return replace(line, who=self._narrow(line.who), against=against)

    def seeds_of(self, spec: str) -> tuple[int, ...]:
        """Of a costly head only the first; more of one that something is told of by its spread over seeds."""
        if spec.startswith(self.often):
            return tuple(range(OFTEN))
        return self.seeds[:1] if spec.startswith(self.once) else self.seeds

    def _narrow(self, who: str) -> str:
        """A head, also where it is mixed with the encoder."""
        spec = who.removeprefix(MIX)
        return who.removesuffix(spec) + self.narrow.get(spec, spec)


def recipes_folder() -> Path:
    """In a checkout beside ``src``; where the package was installed, below its prefix."""
    places = (Path(__file__).parents[4] / "recipes", Path(sys.prefix) / "share" / "bertvision" / "recipes")
    for place in places:
        if (place / "shared.toml").exists():
            return place
    raise BadInput(f"the recipes are in none of {', '.join(map(str, places))}; use a checkout of the project")


@cache
def all_items() -> Mapping[str, Item]:
    """All tables and figures, in the order of the papers."""
    folder = recipes_folder()
    order = _read(folder / "shared.toml")["order"]
    return {name: _item(name, _read(folder / "reproduce" / f"{name}.toml")) for name in order}


def find_items(name: str) -> list[Item]:
    """One by name, or ``all``."""
    items = all_items()
    if name == "all":
        return list(items.values())
    if name not in items:
        raise BadInput(unknown("table or figure", name, [*items, "all", "list"]))
    return [items[name]]


@cache
def shared_at(scale: str) -> Shared:
    """What the recipes share; settings under the scale's name lie over those that stand above it."""
    if scale not in SCALES:
        raise BadInput(unknown("scale", scale, list(SCALES)))
    values = _read(recipes_folder() / "shared.toml")
    own = values["scale"][scale]
    data = {name: _scaled(DataSet, name, table, scale) for name, table in values["data"].items()}
    sources = {
        f"{kind}:{name}": _scaled(Source, name, {"kind": kind, **table}, scale)
        for kind in ("run", "curve", "tune")
        for name, table in values[kind].items()
    }
    shapes = {name: (int(pair[0]), int(pair[1])) for name, pair in own["shapes"].items()}
    rates = {name: float(rate) for name, rate in own["rates"].items()}
    seeds = tuple(map(int, own["seeds"]))
    once, often = (tuple(map(str, own.get(key, ()))) for key in ("once", "often"))
    return Shared(scale, own["encoders"], shapes, rates, seeds, once, often, own.get("narrow", {}), data, sources)


def _scaled(cls: Any, name: str, table: Mapping[str, Any], scale: str) -> Any:
    common = {key: value for key, value in table.items() if key not in SCALES}
    values = {**merged(common, table.get(scale, {})), "name": name}
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    strange = [key for key in tables if key not in TABLES]
    if strange:
        raise BadInput(f"shared.toml, {name}: {unknown('table', strange[0], list(TABLES))}")
    made = from_mapping(cls, plain, f"shared.toml, {name}")
    return cls(**{**vars(made), **tables})


def _item(name: str, values: Mapping[str, Any]) -> Item:
    where = f"recipe {name}"
    lines = tuple(line for table in values["rows"] for line in _lines(table, where))
    head = {key: value for key, value in values.items() if key not in ("rows", "metrics", "picture")}
    picture = from_mapping(Picture, values["picture"], where) if "picture" in values else None
    known = {"title", "source", "kind", "note"}
    for key in head:
        if key not in known:
            raise BadInput(f"{where}: {unknown('setting', key, sorted(known))}")
    return Item(name=name, lines=lines, metrics=tuple(values["metrics"]), picture=picture, **head)


def _lines(table: Mapping[str, Any], where: str) -> Iterator[Line]:
    """A row, or one for each of ``each``."""
    for one in table.get("each", [None]):
        plain = {key: value for key, value in table.items() if key != "each"}
        if one is not None:
            plain = {key: value.replace("{}", one) if isinstance(value, str) else value for key, value in plain.items()}
        yield from_mapping(Line, plain, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
