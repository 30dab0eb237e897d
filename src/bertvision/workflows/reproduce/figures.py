"""The papers' figures drawn from their tables: ours, and the published numbers in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertvision.evaluation.analyses.adapter_ablation import by_span
from bertvision.evaluation.analyses.cost import BEHIND, FRONT, pareto
from bertvision.evaluation.analyses.result import Plot, Point, bars
from bertvision.report.charts import draw, write_picture
from bertvision.workflows.reproduce.specs import Item, Line, Picture
from bertvision.workflows.reproduce.text import title

Values = Mapping[str, Mapping[str, float]]
"""By row and metric."""
STATE, LOST = "state ", "decrease "
"""Before the number of a state, and before the layers without adapters, in the names of values."""


def write_pictures(item: Item, rows: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """``NAME.svg`` and, where enough was published, ``NAME-published.svg``; their names."""
    names = []
    for one in _apart(item):
        for whose, end in (("ours", ""), ("published", "-published")):
            plot = plot_of(one, {row["row"]: row[whose] for row in rows})
            if plot is not None:
                names.append(f"{one.name}{end}.svg")
                write_picture(draw(plot), folder / names[-1])
    return names


def _apart(item: Item) -> list[Item]:
    """The item, or one for each metric, named after it."""
    picture = item.picture
    if picture is None or not picture.apart:
        return [item]
    return [replace(item, name=f"{item.name}-{up}", picture=replace(picture, up=(up,))) for up in picture.up]


def plot_of(item: Item, values: Values) -> Plot | None:
    """The figure as data; None where a recipe has none, or fewer than two points are known."""
    if item.picture is None:
        return None
    plot = _DRAWN[item.picture.kind](item, item.picture, values)
    return plot if plot is not None and sum(map(len, plot.series.values())) > 1 else None


def across(line: Line) -> float | None:
    """Where a row stands: epochs of tuning, per cent of the data, or epochs of a fit."""
    share = None if line.share is None else 100 * line.share
    return next((float(place) for place in (line.at, share, line.epoch) if place is not None), None)


def _lines(item: Item, picture: Picture, values: Values) -> Plot:
    """A line a series and metric; rows that stand nowhere are level lines, of the last metric."""
    series: dict[str, list[Point]] = {}
    rules: dict[str, float] = {}
    for line in item.lines:
        told, place = values.get(line.row, {}), across(line)
        for metric in picture.up:
            if metric in told and place is not None:
                name = " ".join(part for part in (line.series, metric if len(picture.up) > 1 else "") if part)
                series.setdefault(name or metric, []).append((place, told[metric], line.row))
        if place is None and picture.up[-1] in told:
            rules[line.row] = told[picture.up[-1]]
    ordered = {name: sorted(points) for name, points in series.items()}  # recipes have rows in the paper's order
    return Plot("lines", picture.across, ", ".join(picture.up), ordered, rules=rules)


def _states(item: Item, picture: Picture, values: Values) -> Plot:
    """A line a row, over the encoder's states."""
    series: dict[str, list[Point]] = {}
    for row, told in values.items():
        points = [(float(key[len(STATE) :]), value, row) for key, value in told.items() if key.startswith(STATE)]
        series |= {row: points} if points else {}
    return Plot("lines", "state", picture.up[0], series)


def _points(item: Item, picture: Picture, values: Values) -> Plot:
    """A row a point, those on the Pareto front marked."""
    known = {row: told for row, told in values.items() if {picture.across, picture.up[0]} <= set(told)}
    pairs = [(told[picture.across], told[picture.up[0]]) for told in known.values()]
    front = pareto(pairs)
    series: dict[str, list[Point]] = {FRONT: [], BEHIND: []}
    for place, (row, pair) in enumerate(zip(known, pairs, strict=True)):
        series[FRONT if place in front else BEHIND].append((*pair, row))
    series[FRONT].sort()
    return Plot("points", title(picture.across), picture.up[0], series, log=picture.log)


def _bars(item: Item, picture: Picture, values: Values) -> Plot:
    """A group of bars a row, a bar a metric."""
    known = {row: told for row, told in values.items() if any(metric in told for metric in picture.up)}
    heights = {title(metric): [told.get(metric) for told in known.values()] for metric in picture.up}
    return bars(list(known), heights, "%")


def _heat(item: Item, picture: Picture, values: Values) -> Plot | None:
    """What is lost without the adapters of every span of layers."""
    metric, method = picture.up[0], next(line.method for line in item.lines)
    whole = values.get(item.lines[0].row, {}).get(metric)
    lost = {key[len(LOST) :]: one for told in values.values() for key, one in told.items() if key.startswith(LOST)}
    if whole is None or not lost:
        return None
    rows = []
    for span, decrease in lost.items():
        first, last = map(int, span.split("-"))
        rows.append({"first": first, "last": last, "score": whole * (1 - decrease / 100), "decrease": decrease})
    layers = max(row["last"] for row in rows)
    known = {"metric": metric, "score": whole, "rows": rows, "layers": layers, "method": method, "split": "dev"}
    return by_span(known).plots[0]


_DRAWN: Mapping[str, Callable[[Item, Picture, Values], Plot | None]] = {
    "lines": _lines,
    "states": _states,
    "points": _points,
    "bars": _bars,
    "heat": _heat,
}
