"""The pictures of findings, drawn from their description: lines, bars along names, points with their front, squares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bertvision.evaluation.analyses.result import Plot, Point
from bertvision.report.heat_map import heat_map
from bertvision.report.line_plot import colour_class, line_picture
from bertvision.report.markup import Html, cut, number, tag
from bertvision.report.svg import Frame, dot, drawable, scale_of, short_text, tick_text

WIDE, HIGH = 420, 290
"""Of a picture with axes: narrow, so that its text can be read on a phone."""
BAR, GAP = 17, 26
WIDEST = 86.0
"""Per cent of the picture that the longest bar takes; its value is written behind it."""
NEAR = 9
"""Marks that are closer, across and up, hide each other's numbers."""
LONGEST_BAR_NAME, LONGEST_NUMBERED = 48, 34
"""Letters of a name that there is room for: on a line of its own, and between a number and what becomes of it."""


def draw(plot: Plot) -> Html:
    """A plot as a picture with an alternative text."""
    return {"lines": _lines, "bars": _bars, "points": _points, "heat": _heat}[plot.kind](plot)


def _heat(plot: Plot) -> Html:
    rows = [(plot.names.index(name), points) for name, points in plot.series.items()]
    cells = {(row, int(x)): value for row, points in rows for x, value, _ in points}
    return heat_map(cells, plot.names, plot.x, plot.y, plot.legend)


def _lines(plot: Plot) -> Html:
    """Horizontal rules are lines from end to end."""
    across = [x for points in plot.series.values() for x, *_ in points]
    ends = (min(across, default=0.0), max(across, default=1.0))
    series = {name: [(x, y) for x, y, _ in points] for name, points in plot.series.items()}
    series |= {name: [(x, level) for x in ends] for name, level in plot.rules.items()}
    return line_picture(series, plot.x, plot.y, WIDE, HIGH, plot.spread)


def _bars(plot: Plot) -> Html:
    """Names above their bars, so that any name fits on any width; places across are per cent."""
    heights = {(name, int(x)): y for name, points in plot.series.items() for x, y, _ in points if drawable(y)}
    most = max((abs(y) for y in heights.values()), default=0.0) or 1.0
    step, start = GAP + BAR * len(plot.series), BAR * len(plot.series) + 4
    parts = [_key(order, series) for order, series in enumerate(plot.series)]
    for place, name in enumerate(plot.names):
        top = start + place * step
        parts.append(short_text(name, LONGEST_BAR_NAME, x="0", y=top + 15, class_="label"))
        for order, series in enumerate(plot.series):
            parts.append(_value_bar(heights.get((series, place)), most, top + 22 + BAR * order, order, series))
    told = "; ".join(f"{name}: {_bars_text(plot, heights, place)}" for place, name in enumerate(plot.names))
    size = {"width": "100%", "height": start + step * len(plot.names)}
    return tag("svg", *parts, **size, role="img", aria_label=f"{plot.y}. {told}.", class_="dots")


def _key(order: int, series: str) -> Html:
    """Which bar of a group is which: they stand in this order."""
    y = BAR * order
    swatch = tag("rect", x="0", y=y + 2, width=14, height=BAR - 6, fill="currentColor", class_=colour_class(order))
    return tag("g", swatch, short_text(series, LONGEST_BAR_NAME, x=22, y=y + 12))


def _value_bar(value: float | None, most: float, y: int, order: int, series: str) -> Html:
    share = 0.0 if value is None else WIDEST * max(value, 0.0) / most
    words = number(math.nan if value is None else value, 1)
    look = {"fill": "currentColor", "fill_opacity": 0.75, "class_": colour_class(order)}
    title = tag("title", f"{series} {words}")
    bar = tag("rect", title, x="0", y=y, width=f"{share:.2f}%", height=BAR - 5, **look)
    return tag("g", bar, tag("text", words, x=f"{share + 1:.2f}%", y=y + 10))


def _bars_text(plot: Plot, heights: dict[tuple[str, int], float], place: int) -> str:
    return ", ".join(f"{series} {number(heights.get((series, place), math.nan))}" for series in plot.series)


def _points(plot: Plot) -> Html:
    """The first series is the front: dots on a line; all others are rings. Numbers are explained beneath."""
    shown = [(name, point) for name, points in plot.series.items() for point in points if _placed(plot, point)]
    front = next(iter(plot.series), "")
    legend = 18 * len(shown)
    across = scale_of([_x(plot, point) for _, point in shown], 0.08)
    frame = Frame(across, scale_of([point[1] for _, point in shown], 0.08), WIDE, HIGH + legend, bottom=46 + legend)
    ticks = [(value, tick_text(10**value if plot.log else value)) for value in across.ticks(4)]
    ticks = [(value, name) for value, name in ticks if not plot.log or float(value).is_integer()]
    places = [frame.at(_x(plot, point), point[1]) for _, point in shown]
    numbers = shared_numbers(places)
    marks = [
        _numbered(plot, point, *places[i], numbers.get(i, ""), name == front) for i, (name, point) in enumerate(shown)
    ]
    corner = [(_x(plot, point), point[1]) for name, point in shown if name == front]
    line = tag("polyline", points=frame.points(corner), class_="front")
    told = "; ".join(f"{title} {number(y)} at {x:,.6g} ({name})" for name, (x, y, title) in shown)
    axes = frame.axes(ticks, plot.x, plot.y)
    return frame.picture(f"{plot.y} against {plot.x}. {told}.", axes, line, *marks, *_point_legend(frame, shown))


def _placed(plot: Plot, point: Point) -> bool:
    return drawable(point[0]) and drawable(point[1]) and (not plot.log or point[0] > 0)


def _x(plot: Plot, point: Point) -> float:
    return math.log10(point[0]) if plot.log else point[0]


def shared_numbers(places: Sequence[tuple[float, float]]) -> dict[int, str]:
    """By mark its number, from 1; marks that lie on each other are numbered together, at the first of them."""
    groups: dict[int, list[int]] = {}
    for place, (x, y) in enumerate(places):
        near = (at for at in groups if abs(places[at][0] - x) < NEAR and abs(places[at][1] - y) < NEAR)
        groups.setdefault(next(near, place), []).append(place + 1)
    return {at: ", ".join(map(str, group)) for at, group in groups.items()}


def _numbered(plot: Plot, point: Point, x: float, y: float, numbers: str, front: bool) -> Html:
    title = f"{point[2]}: {plot.y} {number(point[1])}, {plot.x} {point[0]:,.6g}"
    mark = dot(x, y, title, 4.5, "dot" if front else "kept")
    # Beside the right edge there is no room for several numbers.
    side: dict[str, object] = {"x": x + 7} if x < WIDE / 2 else {"x": x + 12, "text_anchor": "end"}
    return tag("g", mark, tag("text", numbers, y=y - 8, class_="label", **side))


def _point_legend(frame: Frame, shown: Sequence[tuple[str, Point]]) -> list[Html]:
    top = frame.height - 18 * len(shown) + 8
    return [
        tag(
            "text",
            tag("title", title),
            f"{place + 1}  {cut(title, LONGEST_NUMBERED)}, {name}",
            x=frame.left,
            y=top + 18 * place,
        )
        for place, (name, (_, _, title)) in enumerate(shown)
    ]
