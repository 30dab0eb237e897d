"""Figures: our numbers, and the published ones drawn in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertvision.evaluation.analyses.adapter_ablation import ablation_finding
from bertvision.evaluation.analyses.cost import BEHIND, FRONT, pareto
from bertvision.evaluation.analyses.result import Plot, Point, bars
from bertvision.report.charts import draw, write_svg
from bertvision.workflows.reproduce.specs import (
    CurveRow,
    EpochRow,
    Item,
    Picture,
    RowSpec,
    SubsetRow,
    TunedRow,
    metric_title,
)

Values = Mapping[str, Mapping[str, float]]
"""By row and metric."""
STATE, LOST = "state ", "decrease "
"""Prefixes of values per state, and per span of layers without adapters."""


def write_pictures(item: Item, rows: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Write ``NAME.svg`` and, if enough was published, ``NAME-published.svg``; returns their names."""
    figures = [item]
    if item.picture is not None and item.picture.one_per_metric:
        figures = [
            replace(item, name=f"{item.name}-{metric}", picture=replace(item.picture, y=(metric,)))
            for metric in item.picture.y
        ]
    names = []
    for figure in figures:
        for source, suffix in (("ours", ""), ("published", "-published")):
            plot = plot_of(figure, {row["row"]: row[source] for row in rows})
            if plot is not None:
                names.append(f"{figure.name}{suffix}.svg")
                write_svg(draw(plot), folder / names[-1])
    return names


def plot_of(item: Item, values: Values) -> Plot | None:
    """The figure as data; None if the recipe has none, or fewer than two points are known."""
    if item.picture is None:
        return None
    plot = PLOTS[item.picture.kind](item, item.picture, values)
    return plot if plot is not None and sum(map(len, plot.series.values())) > 1 else None


def x_value(row: RowSpec) -> float | None:
    """The x value of a row: epochs of tuning, per cent of the data, or epochs of a fit."""
    match row:
        case CurveRow():
            return row.at
        case SubsetRow():
            return 100 * row.share
        case EpochRow():
            return float(row.epoch)
    return None


def _lines_over_x(item: Item, picture: Picture, values: Values) -> Plot:
    """A line per series and metric; rows without an x value are horizontal lines, for the last metric."""
    series: dict[str, list[Point]] = {}
    rules: dict[str, float] = {}
    for row in item.rows:
        row_values, x = values.get(row.name, {}), x_value(row)
        if x is None:
            if picture.y[-1] in row_values:
                rules[row.name] = row_values[picture.y[-1]]
            continue
        for metric in picture.y:
            if metric in row_values:
                name = " ".join(part for part in (row.series, metric if len(picture.y) > 1 else "") if part)
                series.setdefault(name or metric, []).append((x, row_values[metric], row.name))
    ordered = {name: sorted(points) for name, points in series.items()}  # rows are in the order of the paper
    return Plot("lines", picture.x, ", ".join(picture.y), ordered, rules=rules)


def _lines_over_states(item: Item, picture: Picture, values: Values) -> Plot:
    """A line per row, over the encoder's states."""
    series: dict[str, list[Point]] = {}
    for row, row_values in values.items():
        points = [(float(key[len(STATE) :]), value, row) for key, value in row_values.items() if key.startswith(STATE)]
        if points:
            series[row] = points
    return Plot("lines", "state", picture.y[0], series)


def _points_and_front(item: Item, picture: Picture, values: Values) -> Plot:
    """A point per row, those on the Pareto front marked."""
    points: list[Point] = []
    for row, row_values in values.items():
        if picture.x in row_values and picture.y[0] in row_values:
            points.append((row_values[picture.x], row_values[picture.y[0]], row))
    front = pareto([(x, y) for x, y, _ in points])
    series: dict[str, list[Point]] = {FRONT: [], BEHIND: []}
    for index, point in enumerate(points):
        series[FRONT if index in front else BEHIND].append(point)
    series[FRONT].sort()
    return Plot("points", metric_title(picture.x), picture.y[0], series, log=picture.log)


def _bars_per_row(item: Item, picture: Picture, values: Values) -> Plot:
    """A group of bars per row, a bar per metric."""
    rows = [row for row in values if any(metric in values[row] for metric in picture.y)]
    heights = {metric_title(metric): [values[row].get(metric) for row in rows] for metric in picture.y}
    return bars(rows, heights, "%")


def _score_lost_by_span(item: Item, picture: Picture, values: Values) -> Plot | None:
    """Percentage of the score lost without the adapters of every span of layers."""
    metric, adapted = picture.y[0], item.rows[0]
    whole = values.get(adapted.name, {}).get(metric)
    lost: dict[str, float] = {}
    for row_values in values.values():
        lost |= {key[len(LOST) :]: decrease for key, decrease in row_values.items() if key.startswith(LOST)}
    if whole is None or not lost or not isinstance(adapted, TunedRow):
        return None
    rows = []
    for span, decrease in lost.items():
        first, last = map(int, span.split("-"))
        rows.append({"first": first, "last": last, "score": whole * (1 - decrease / 100), "decrease": decrease})
    layers, method = max(row["last"] for row in rows), adapted.method
    document = {"metric": metric, "score": whole, "rows": rows, "layers": layers, "method": method, "split": "dev"}
    return ablation_finding(document).plots[0]


PLOTS: Mapping[str, Callable[[Item, Picture, Values], Plot | None]] = {
    "lines": _lines_over_x,
    "states": _lines_over_states,
    "points": _points_and_front,
    "bars": _bars_per_row,
    "heat": _score_lost_by_span,
}
