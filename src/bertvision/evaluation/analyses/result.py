"""The result of an analysis: a table, a text that explains it, and plots described as data.

Analyses are pure functions from predictions or scores to a :class:`Finding`. The report renders it and the
workflows save it; other code can use the rows directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Cell = str | int | float | None
Rows = tuple[Mapping[str, Cell], ...]
Point = tuple[float, float, str]
"""x, y and a label."""
Span = tuple[float, float, float]
"""x, lowest y and highest y."""
Kind = Literal["lines", "bars", "points", "heat"]
KINDS: tuple[Kind, ...] = ("lines", "bars", "points", "heat")


@dataclass(frozen=True)
class Plot:
    """A plot as data: named series of points.

    For ``bars``, ``names`` holds the group names. For ``heat``, a series is a row, x the column and y the value;
    rows and columns share ``names``.
    """

    kind: Kind
    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    names: tuple[str, ...] = ()  # bars, heat: labels of x = 0, 1, ...
    rules: Mapping[str, float] = field(default_factory=dict)  # horizontal reference lines
    spread: Mapping[str, Sequence[Span]] = field(default_factory=dict)  # lines: range over seeds, by series
    log: bool = False  # logarithmic x axis
    legend: str = ""  # heat: meaning of the values


@dataclass(frozen=True)
class Finding:
    """One analysis of one run."""

    name: str
    title: str
    about: str
    columns: Mapping[str, str]  # key in a row -> column title
    rows: Rows
    plots: tuple[Plot, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        return asdict(self)


def share(count: float, total: float) -> float | None:
    """Percentage, or None for an empty total."""
    return 100 * count / total if total else None


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean, or None for no values."""
    return sum(values) / len(values) if values else None


def bars(names: Sequence[str], series: Mapping[str, Sequence[float | None]], y: str) -> Plot:
    """A bar plot with one group per name and one bar per series; unknown heights are left out."""
    points: dict[str, list[Point]] = {}
    for title, heights in series.items():
        defined = [(group, height) for group, height in enumerate(heights) if height is not None]
        points[title] = [(float(group), height, f"{names[group]}, {title}") for group, height in defined]
    return Plot("bars", "", y, points, tuple(names))


def as_float(cell: Cell) -> float | None:
    """The cell if it is a float, else None."""
    return cell if isinstance(cell, float) else None
