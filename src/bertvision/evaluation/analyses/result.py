"""What an analysis gives: a table as data, how to read it, and pictures described as data.

Analyses are pure: predictions or scores in, a :class:`Finding` out. The report draws it and writes it
down; anything else may use the rows as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Cell = str | int | float | None
Rows = tuple[Mapping[str, Cell], ...]
Point = tuple[float, float, str]
"""Across, up, and what it is."""
Span = tuple[float, float, float]
"""Across, lowest and highest."""
Kind = Literal["lines", "bars", "points", "heat"]
KINDS: tuple[Kind, ...] = ("lines", "bars", "points", "heat")


@dataclass(frozen=True)
class Plot:
    """A picture as data: named series of points; of ``bars`` the names of the groups stand in ``names``.

    Of ``heat`` a series is a row, across is the column, up the value; rows and columns have the same names.
    """

    kind: Kind
    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    names: tuple[str, ...] = ()  # bars, heat: what stands at 0, 1, ...
    rules: Mapping[str, float] = field(default_factory=dict)  # horizontal lines
    spread: Mapping[str, Sequence[Span]] = field(default_factory=dict)  # lines: how far apart seeds are, by series
    log: bool = False  # whether across is on a logarithmic scale
    legend: str = ""  # heat: what the values are


@dataclass(frozen=True)
class Finding:
    """One analysis of one run."""

    name: str
    title: str
    about: str
    columns: Mapping[str, str]  # key of a row's cell -> what stands above its column
    rows: Rows
    plots: tuple[Plot, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        return asdict(self)


def share(count: float, total: float) -> float | None:
    """Per cent; nothing of nothing is not known."""
    return 100 * count / total if total else None


def mean(values: Sequence[float]) -> float | None:
    """Of no values it is not known."""
    return sum(values) / len(values) if values else None


def bars(names: Sequence[str], series: Mapping[str, Sequence[float | None]], y: str) -> Plot:
    """A group of bars a name, a bar a series; a height that is not known is left out."""
    points = {
        title: [
            (float(place), height, f"{names[place]}, {title}")
            for place, height in enumerate(heights)
            if height is not None
        ]
        for title, heights in series.items()
    }
    return Plot("bars", "", y, points, tuple(names))


def as_float(cell: Cell) -> float | None:
    """A cell as a height in a picture; what is no measured number has none."""
    return cell if isinstance(cell, float) else None
