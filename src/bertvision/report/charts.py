"""SVG charts for reports and analyses.

Series differ in shape or dashes as well as in colour, for print and for colour-blind readers. Every mark
has a tooltip with its value, and every chart has an alternative text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertvision.core.files import atomic_open
from bertvision.core.records import Reliability
from bertvision.evaluation.analyses.result import Plot, Point, Span
from bertvision.report.colours import LIGHT
from bertvision.report.markup import Html, format_number, tag, truncate
from bertvision.report.svg import PlotArea, Scale, clipped_text, is_drawable, scale_for, thin_ticks, tick_text
from bertvision.runs.reader import FitSummary, Line

SEED_DASHES = ("none", "6 3", "2 3", "8 3 2 3")
"""Dashes of the lines of the first, second, ... seed."""
LINE_DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 4", "1 3")
"""Dashes of the lines of a line chart, in addition to their colours."""
STANDALONE_STYLE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}.axis{stroke:#888}"
    f".name{{font-style:italic}}.label{{fill:#111}}.front{{fill:none;stroke:{LIGHT['blue']};stroke-width:1.5}}"
    f".track{{stroke:#eee;stroke-width:9}}.dot{{fill:{LIGHT['blue']}}}"
    f".kept{{fill:#fff;stroke:{LIGHT['orange']};stroke-width:2.5}}"
    + "".join(f".s{index}{{color:{colour}}}" for index, colour in enumerate(LIGHT.values()))
)
"""Style of a standalone SVG file; a report defines the same classes, also for dark mode."""

WIDTH, HEIGHT = 420, 290
"""Size of a chart with axes; narrow so that its text stays readable on a phone."""
MAX_NAME, MAX_LEGEND_NAME, MAX_NUMBERED_NAME = 48, 44, 34
"""Maximum characters of a name on its own line, in a legend, and in a numbered legend."""
LEGEND_LINE = 18

ROW_HEIGHT, DOTS_TOP = 42, 46
"""Dot plot: height of a row, and of the space for the names of reference lines."""

BAR_HEIGHT, GROUP_GAP = 17, 26
MAX_BAR = 86.0
"""Length of the longest bar in percent of the width; its value is written after it."""

LABEL_DISTANCE = 9
"""Marks closer than this in x and y share one number label."""

MIN_RADIUS, MAX_RADIUS = 3.0, 11.0
"""Radius of the dots of a reliability diagram for few and for all examples."""

MAP_LEFT, MAP_TOP, MAP_BOTTOM, MAP_RIGHT = 56, 14, 78, 14
MIN_CELL_SIDE = 46
LOSS_RGB, GAIN_RGB = (8, 69, 148), (192, 86, 33)
"""RGB of the darkest blue and the darkest orange."""
LEGEND_WIDTH, CHAR_WIDTH = 120, 7
"""Width of the colour legend, and approximate width of a character."""
MIN_MAP_SCALE = 0.9
"""A heat map is not shrunk further than this, to stay readable; the page scrolls it instead."""
WHITE_TEXT_FROM = 0.55
"""Share of the darkest colour from which text is white."""

Points = Sequence[tuple[float, float]]


class Dot(NamedTuple):
    """A point with a tooltip."""

    x: float
    y: float
    title: str
    radius: float = 3.5
    css_class: str = "dot"


def draw_dots(area: PlotArea, marks: Iterable[Dot]) -> list[Html]:
    """Circles for all drawable marks."""
    shown = []
    for x, y, title, radius, css_class in marks:
        if is_drawable(x) and is_drawable(y):
            cx, cy = area.position(x, y)
            shown.append(tag("circle", tag("title", title), cx=cx, cy=cy, r=radius, class_=css_class))
    return shown


def rectangle(title: str, **box: object) -> Html:
    return tag("rect", tag("title", title), **box)


def segment(start: tuple[float, float], end: tuple[float, float], *title: Html, **attributes: object) -> Html:
    """A straight line between two points in coordinates of the chart."""
    return tag("line", *title, x1=start[0], x2=end[0], y1=start[1], y2=end[1], **attributes)


def polyline(area: PlotArea, points: Iterable[tuple[float, float]], **attributes: object) -> Html:
    return tag("polyline", points=area.polyline_points(points), **attributes)


def diagonal(area: PlotArea) -> Html:
    """The line on which both axes have the same value."""
    low, high = area.x.low, area.x.high
    return segment(area.position(low, low), area.position(high, high), class_="equal")


def dash_pattern(rank: int) -> str:
    """Dashes of a series; they shift when colours repeat, so that no two series look the same."""
    return LINE_DASHES[(rank + rank // len(LIGHT)) % len(LINE_DASHES)]


def colour_class(rank: int) -> str:
    """The CSS class with the colour of a series."""
    return f"s{rank % len(LIGHT)}"


def dot_plot(lines: Sequence[Line], metric: str, references: Mapping[str, float]) -> Html:
    """One row per predictor, one mark per seed; ``references`` are drawn as vertical lines.

    Horizontal positions are percentages, so that the chart fits any width while its text keeps its size.
    """
    references = {name: value for name, value in references.items() if is_drawable(value)}
    ends = [end for line in lines for end in line.interval or ()]
    scale = scale_for([*(value for line in lines for value in line.values(metric)), *references.values(), *ends])
    floor = DOTS_TOP + ROW_HEIGHT * len(lines) + 4
    parts = []
    for value in scale.ticks(6):
        x = _percent_x(scale, value)
        parts.append(tag("line", x1=x, x2=x, y1=DOTS_TOP - 10, y2=floor, class_="grid"))
        parts.append(tag("text", tick_text(value), x=x, y=floor + 18, text_anchor="middle"))
    for rank, (name, value) in enumerate(references.items()):
        # Each name has its own row, so that the names of close lines stay readable.
        x, y = _percent_x(scale, value), 13 + 16 * rank
        text = tag(
            "text",
            f"{truncate(name, 34)} {format_number(value)}",
            x=x,
            y=y,
            text_anchor=_text_anchor(scale.fraction(value)),
        )
        rule = tag("line", x1=x, x2=x, y1=y + 5, y2=floor, class_=f"rule rule{rank}")
        parts.append(tag("g", rule, text, class_="halo"))
    parts += [_dot_plot_row(line, DOTS_TOP + ROW_HEIGHT * rank, metric, scale) for rank, line in enumerate(lines)]
    means = []
    for line in lines:
        interval = f" ({format_number(line.interval[0])} to {format_number(line.interval[1])})" if line.interval else ""
        means.append(f"{line.name} {format_number(line.mean(metric))}{interval}")
    named_values = "; ".join(f"{name} {format_number(value)}" for name, value in references.items())
    alternative = f"Mean {metric} of every predictor: {'; '.join(means)}. Vertical lines: {named_values}."
    return tag("svg", *parts, width="100%", height=floor + 26, role="img", aria_label=alternative, class_="dots")


def _percent_x(scale: Scale, value: float) -> str:
    return f"{1 + 98 * scale.fraction(value):.2f}%"


def _text_anchor(fraction: float) -> str:
    """Anchor text near an edge so that it grows inwards; on a phone the longest takes two thirds of the width."""
    return "start" if fraction < 0.35 else "end" if fraction > 0.65 else "middle"


def _dot_plot_row(line: Line, top: int, metric: str, scale: Scale) -> Html:
    """The interval of the mean, the mean over seeds, and one mark per seed."""
    y, mean = top + 26, line.mean(metric)
    parts = [tag("line", x1="1%", x2="99%", y1=y, y2=y, class_="track")]
    if line.interval is not None and all(map(is_drawable, line.interval)):
        low, high = (_percent_x(scale, end) for end in line.interval)
        parts.append(tag("line", x1=low, x2=high, y1=y, y2=y, class_="band"))
    if len(line.rows) > 1 and is_drawable(mean):
        x = _percent_x(scale, mean)
        parts.append(tag("line", x1=x, x2=x, y1=y - 8, y2=y + 8, class_="mean"))
    for row in line.rows:
        value = row.scores.get(metric, math.nan)
        if not is_drawable(value):
            continue
        title = tag("title", f"{line.name}{'' if row.seed is None else f', seed {row.seed}'}: {format_number(value)}")
        x, css_class = _percent_x(scale, value), f"mark {line.kind}"
        if line.kind in ("head", "control"):
            parts.append(tag("circle", title, cx=x, cy=y, r=5, class_=css_class))
        else:  # a square, which the stylesheet turns into a diamond for ensembles
            parts.append(tag("rect", title, x=x, y=y - 4.5, width=9, height=9, class_=css_class))
    parts.append(clipped_text(line.name, MAX_NAME, x="1%", y=top + 12, class_="label"))
    parts.append(tag("text", format_number(mean), x="99%", y=top + 12, text_anchor="end", class_="label"))
    return tag("g", *parts, class_="halo")


def layer_weights_chart(heads: Sequence[FitSummary]) -> Html:
    """Bars for the mean weights over seeds, dots for each seed, a dashed line for uniform weights."""
    states, count = heads[0].states, len(heads[0].states)
    means = [sum(head.weights[i] for head in heads) / len(heads) for i in range(count)]
    tallest = max((weight for head in heads for weight in head.weights if is_drawable(weight)), default=1.0)
    area = PlotArea(Scale(-0.6, count - 0.4), Scale(0.0, 1.15 * tallest or 1.0), 460, 230)
    bars = []
    for i, mean in enumerate(means):
        if is_drawable(mean):
            (left, top), (right, floor) = area.position(i - 0.36, mean), area.position(i + 0.36, 0.0)
            box = {"x": left, "y": top, "width": right - left, "height": max(0.0, floor - top)}
            bars.append(rectangle(f"state {states[i]}: {mean:.3f}", **box, class_="bar"))
    equal = area.position(0, 1 / count)[1]
    rule = segment((area.left, equal), (area.width - area.right, equal), class_="equal")
    seeds = []
    for head in heads if len(heads) > 1 else ():
        for i, weight in enumerate(head.weights[:count]):
            seeds.append(Dot(i, weight, f"seed {head.seed}, state {head.states[i]}: {weight:.3f}", 3.0, "seed"))
    values = ", ".join(f"{state}: {mean:.3f}" for state, mean in zip(states, means, strict=True))
    alternative = f"Mean layer weights of {heads[0].spec} by state. {values}."
    axes = area.draw_axes(thin_ticks(states), "state", "weight")
    return area.to_svg(alternative, axes, *bars, rule, *draw_dots(area, seeds))


def seed_dashes(seeds: Iterable[int]) -> dict[int, str]:
    """Dashes by seed; they repeat after four seeds."""
    return {seed: SEED_DASHES[rank % len(SEED_DASHES)] for rank, seed in enumerate(sorted(set(seeds)))}


def curves_legend(dashes: Mapping[int, str]) -> list[tuple[Html, str]]:
    """Samples and names for the dashes of each seed and for the ring."""
    samples = []
    for seed, dash in dashes.items():
        sample = segment((0, 7), (34, 7), class_="curve", stroke_dasharray=dash)
        samples.append((tag("svg", sample, width=34, height=14, aria_hidden="true"), f"seed {seed}"))
    ring = tag("circle", cx=7, cy=7, r=5.5, class_="kept")
    return [*samples, (tag("svg", ring, width=14, height=14, aria_hidden="true"), "selected epoch")]


def training_curves_chart(
    heads: Sequence[FitSummary], others: Sequence[FitSummary], metric: str, y: Scale, dashes: Mapping[int, str]
) -> Html:
    """The curves of one spec by seed, with other heads in grey; a ring marks the selected epoch."""
    longest = max((len(head.history) for head in [*heads, *others]), default=1)
    area = PlotArea(Scale(0.7, max(longest, 2) + 0.3), y, 340, 210)
    parts = [polyline(area, _curve(head), class_="other") for head in others]
    curves = []
    for head in heads:
        marks = []
        for epoch, score in _curve(head):
            title = f"seed {head.seed}, epoch {epoch:g}: {format_number(score)}"
            if epoch == head.best_epoch:
                marks.append(Dot(epoch, score, f"{title} (selected)", 5.5, "kept"))
            else:
                marks.append(Dot(epoch, score, title, 2.5))
        curve = polyline(area, _curve(head), class_="curve", stroke_dasharray=dashes[head.seed])
        parts.append(tag("g", curve, *draw_dots(area, marks)))
        scores = ", ".join(format_number(score) for _, score in _curve(head))
        curves.append(f"seed {head.seed}: {scores}, epoch {head.best_epoch} selected")
    ticks = [(rank + 1, name) for rank, name in thin_ticks([str(epoch) for epoch in range(1, longest + 1)], 10)]
    alternative = f"Inner {metric} of {heads[0].spec} by epoch. {'; '.join(curves)}."
    return area.to_svg(alternative, area.draw_axes(ticks, "epoch", f"inner {metric}"), *parts)


def _curve(head: FitSummary) -> list[tuple[float, float]]:
    return [(float(point["epoch"]), float(point["inner"])) for point in head.history]


def scatter_plot(pairs: Sequence[tuple[float, float, str]]) -> Html:
    """Predicted (y) against gold values (x), with the diagonal of equal values."""
    shown = [pair for pair in pairs if is_drawable(pair[0]) and is_drawable(pair[1])]
    both = scale_for([value for gold, predicted, _ in shown for value in (gold, predicted)])
    area = PlotArea(both, both, 460, 440, left=58)
    marks = [Dot(x, y, f"{name}: gold {x:g}, predicted {y:g}") for x, y, name in shown]
    axes = area.draw_axes([(value, tick_text(value)) for value in both.ticks(5)], "gold", "predicted")
    alternative = f"Predicted against gold values of {len(shown)} examples, with the diagonal of equal values."
    return area.to_svg(alternative, axes, diagonal(area), *draw_dots(area, marks))


def reliability_diagram(reliability: Reliability, what: str) -> Html:
    """Observed frequency (y) against predicted probability (x); rings before temperature scaling, dots after."""
    unit = Scale(0.0, 1.0)
    area = PlotArea(unit, unit, 340, 320)
    marks = []
    for bins, css_class, when in ((reliability.raw, "kept", "before"), (reliability.calibrated, "dot", "after")):
        total = sum(count for *_, count in bins) or 1
        for predicted, observed, count in bins:
            radius = MIN_RADIUS + (MAX_RADIUS - MIN_RADIUS) * (count / total) ** 0.5
            title = f"{when}: predicted {predicted:.2f}, observed {observed:.2f}, {count:,} examples"
            marks.append(Dot(predicted, observed, title, radius, css_class))
    curve = polyline(area, ((predicted, observed) for predicted, observed, _ in reliability.calibrated), class_="curve")
    ticks = [(value, f"{value:g}") for value in unit.ticks(4)]
    axes = area.draw_axes(ticks, "predicted probability", "observed frequency")
    points = [f"{observed:.2f} at {predicted:.2f} ({count})" for predicted, observed, count in reliability.calibrated]
    alternative = f"Reliability of {reliability.name}, {what}, after temperature scaling. "
    alternative += f"Observed frequency at predicted probability (examples): {', '.join(points)}."
    return area.to_svg(alternative, axes, diagonal(area), curve, *draw_dots(area, marks))


def line_chart(
    series: Mapping[str, Points],
    x_name: str,
    y_name: str,
    width: int = 560,
    height: int = 320,
    spread: Mapping[str, Sequence[Span]] | None = None,
) -> Html:
    """One line per series with a legend below; ``spread`` draws the range over seeds as vertical bars."""
    spread = spread or {}
    points = [point for line in series.values() for point in line if is_drawable(point[1])]
    ends = [end for spans in spread.values() for _, *both in spans for end in both]
    low, high = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0)
    room = 0.03 * (high - low) or 0.5
    x_scale = Scale(low - room, high + room)
    legend = LEGEND_LINE * len(series)
    area = PlotArea(
        x_scale, scale_for([*(y for _, y in points), *ends]), width, height + legend + 14, bottom=52 + legend
    )
    parts, names, values = [], [], []
    for rank, (name, line) in enumerate(series.items()):
        parts.append(_draw_series(area, rank, name, line, spread.get(name, ())))
        y = height + LEGEND_LINE * rank + 14
        sample = segment((area.left, y), (area.left + 34, y), **_line_style(rank), class_=colour_class(rank))
        names.append(tag("g", sample, clipped_text(name, MAX_LEGEND_NAME, x=area.left + 42, y=y + 4)))
        ranges = {x: f" ({format_number(low)} to {format_number(high)})" for x, low, high in spread.get(name, ())}
        values.append(f"{name}: " + ", ".join(f"{format_number(y)}{ranges.get(x, '')} at {x:g}" for x, y in line))
    fractional = not all(float(x).is_integer() for x, _ in points)  # no ticks between whole layers or epochs
    ticks = []
    for value in x_scale.ticks(8):
        if x_scale.low <= value <= x_scale.high and (fractional or value.is_integer()):
            ticks.append((value, tick_text(value)))
    alternative = f"{y_name} by {x_name}. {'; '.join(values)}."
    return area.to_svg(alternative, area.draw_axes(ticks, x_name, y_name), *parts, *names)


def _line_style(rank: int) -> dict[str, object]:
    return {"stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": dash_pattern(rank)}


def _draw_series(area: PlotArea, rank: int, name: str, points: Points, spans: Sequence[Span]) -> Html:
    """A line with its points, and a vertical bar over the range of seeds at each x."""
    ranges = []
    for x, low, high in spans:
        if all(map(is_drawable, (x, low, high))):
            title = tag("title", f"{format_number(low)} to {format_number(high)}")
            ends = area.position(x, low), area.position(x, high)
            ranges.append(segment(*ends, title, stroke="currentColor", stroke_width=1.2))
    marks = draw_dots(area, (Dot(x, y, f"{name}, {x:g}: {format_number(y)}", css_class="point") for x, y in points))
    path = polyline(area, points, fill="none", **_line_style(rank))
    return tag("g", path, *ranges, tag("g", *marks, fill="currentColor"), class_=colour_class(rank))


def draw(plot: Plot) -> Html:
    """Draw a plot of any kind."""
    return {"lines": _draw_lines, "bars": _draw_bars, "points": _draw_points, "heat": _draw_heat_map}[plot.kind](plot)


def _draw_lines(plot: Plot) -> Html:
    """A line chart; reference lines span the whole x range."""
    xs = [x for points in plot.series.values() for x, *_ in points]
    ends = (min(xs, default=0.0), max(xs, default=1.0))
    series = {name: [(x, y) for x, y, _ in points] for name, points in plot.series.items()}
    series |= {name: [(x, level) for x in ends] for name, level in plot.rules.items()}
    return line_chart(series, plot.x, plot.y, WIDTH, HEIGHT, plot.spread)


def _draw_bars(plot: Plot) -> Html:
    """A bar chart with group names above the bars, so that long names fit; horizontal positions are percentages."""
    heights = {(name, int(x)): y for name, points in plot.series.items() for x, y, _ in points if is_drawable(y)}
    largest = max((abs(y) for y in heights.values()), default=0.0) or 1.0
    step, start = GROUP_GAP + BAR_HEIGHT * len(plot.series), BAR_HEIGHT * len(plot.series) + 4
    parts, values = [], []
    for rank, series in enumerate(plot.series):  # legend, in the order of the bars of a group
        box = {"x": "0", "y": BAR_HEIGHT * rank + 2, "width": 14, "height": BAR_HEIGHT - 6}
        swatch = tag("rect", **box, fill="currentColor", class_=colour_class(rank))
        parts.append(tag("g", swatch, clipped_text(series, MAX_NAME, x=22, y=BAR_HEIGHT * rank + 12)))
    for group, name in enumerate(plot.names):
        top = start + group * step
        parts.append(clipped_text(name, MAX_NAME, x="0", y=top + 15, class_="label"))
        for rank, series in enumerate(plot.series):
            value, y = heights.get((series, group)), top + 22 + BAR_HEIGHT * rank
            length, text = MAX_BAR * max(value or 0.0, 0.0) / largest, format_number(value, 1)
            box = {"x": "0", "y": y, "width": f"{length:.2f}%", "height": BAR_HEIGHT - 5}
            style = {"fill": "currentColor", "fill_opacity": 0.75, "class_": colour_class(rank)}
            label = tag("text", text, x=f"{length + 1:.2f}%", y=y + 10)
            parts.append(tag("g", rectangle(f"{series} {text}", **box, **style), label))
        values.append(
            f"{name}: " + ", ".join(f"{series} {format_number(heights.get((series, group)))}" for series in plot.series)
        )
    size = {"width": "100%", "height": start + step * len(plot.names)}
    return tag("svg", *parts, **size, role="img", aria_label=f"{plot.y}. {'; '.join(values)}.", class_="dots")


def _draw_points(plot: Plot) -> Html:
    """A scatter plot: the first series (the front) as dots on a line, others as rings; a numbered legend below."""
    front = next(iter(plot.series), "")
    shown: list[tuple[str, float, Point]] = []  # series, x in the chart, point
    for name, points in plot.series.items():
        for point in points:
            if is_drawable(point[0]) and is_drawable(point[1]) and (not plot.log or point[0] > 0):
                shown.append((name, math.log10(point[0]) if plot.log else point[0], point))
    x_scale = scale_for([x for _, x, _ in shown], 0.08)
    y_scale = scale_for([point[1] for *_, point in shown], 0.08)
    legend = LEGEND_LINE * len(shown)
    area = PlotArea(x_scale, y_scale, WIDTH, HEIGHT + legend, bottom=46 + legend)
    numbers = number_labels([area.position(x, point[1]) for _, x, point in shown])
    marks, rows, values = [], [], []
    for rank, (name, drawn_x, (x, y, title)) in enumerate(shown):
        css_class = "dot" if name == front else "kept"
        mark = draw_dots(
            area, [Dot(drawn_x, y, f"{title}: {plot.y} {format_number(y)}, {plot.x} {x:,.6g}", 4.5, css_class)]
        )
        left, top = area.position(drawn_x, y)
        # In the right half, text grows to the left, away from the edge.
        side: dict[str, object] = {"x": left + 7} if left < WIDTH / 2 else {"x": left + 12, "text_anchor": "end"}
        marks.append(tag("g", *mark, tag("text", numbers.get(rank, ""), y=top - 8, class_="label", **side)))
        row = f"{rank + 1}  {truncate(title, MAX_NUMBERED_NAME)}, {name}"
        rows.append(tag("text", tag("title", title), row, x=area.left, y=area.height - legend + 8 + LEGEND_LINE * rank))
        values.append(f"{title} {format_number(y)} at {x:,.6g} ({name})")
    front_line = polyline(area, [(x, point[1]) for name, x, point in shown if name == front], class_="front")
    ticks = [(value, tick_text(10**value if plot.log else value)) for value in x_scale.ticks(4)]
    axes = area.draw_axes([tick for tick in ticks if not plot.log or float(tick[0]).is_integer()], plot.x, plot.y)
    return area.to_svg(f"{plot.y} against {plot.x}. {'; '.join(values)}.", axes, front_line, *marks, *rows)


def number_labels(positions: Sequence[tuple[float, float]]) -> dict[int, str]:
    """Number labels from 1 by mark; overlapping marks share the label of the first of them."""
    groups: dict[int, list[int]] = {}
    for index, (x, y) in enumerate(positions):
        near = []
        for first in groups:
            first_x, first_y = positions[first]
            if abs(first_x - x) < LABEL_DISTANCE and abs(first_y - y) < LABEL_DISTANCE:
                near.append(first)
        groups.setdefault(near[0] if near else index, []).append(index + 1)
    return {first: ", ".join(map(str, group)) for first, group in groups.items()}


def _draw_heat_map(plot: Plot) -> Html:
    """A cell for every row and column with a value; both axes are labelled with the names of the plot."""
    names = plot.names
    cells: dict[tuple[int, int], float] = {}  # by row and column
    for name, points in plot.series.items():
        for x, value, _ in points:
            cells[names.index(name), int(x)] = value
    # Few cells are enlarged until the axis names fit.
    side = max(MIN_CELL_SIDE, math.ceil(CHAR_WIDTH * max(len(plot.x), len(plot.y)) / len(names)))
    edge = side * len(names)
    middle, floor = MAP_LEFT + edge / 2, MAP_TOP + edge
    largest = max(1.0, *(abs(value) for value in cells.values()))  # so that negligible differences stay pale
    parts = [_heat_map_cell(row, column, value, largest, side, names) for (row, column), value in cells.items()]
    for index, name in enumerate(names):
        centre = side * index + side / 2
        below = tag("text", name, x=MAP_LEFT + centre, y=floor + 17, text_anchor="middle")
        parts.append(tag("g", below, tag("text", name, x=MAP_LEFT - 9, y=MAP_TOP + centre + 4, text_anchor="end")))
    parts.append(tag("text", plot.x, x=middle, y=floor + 36, text_anchor="middle", class_="name"))
    rotation = f"translate(14 {MAP_TOP + edge / 2:.0f}) rotate(-90)"
    parts.append(tag("text", plot.y, transform=rotation, text_anchor="middle", class_="name"))
    legend_text = f"0 to {largest:.1f}: {plot.legend}"
    parts.append(_colour_legend(largest, legend_text, floor + 52))
    values = "; ".join(f"{names[row]} to {names[column]}: {value:.1f}" for (row, column), value in cells.items())
    width = max(MAP_LEFT + edge, MAP_LEFT + LEGEND_WIDTH + 8 + CHAR_WIDTH * len(legend_text)) + MAP_RIGHT
    box = f"0 0 {width} {floor + MAP_BOTTOM}"
    attributes = {"style": f"min-width:{MIN_MAP_SCALE * width:.0f}px;max-width:{1.25 * width:.0f}px", "class_": "heat"}
    alternative = f"{plot.legend}, {plot.y} to {plot.x}. {values}."
    return tag("svg", *parts, viewBox=box, **attributes, role="img", aria_label=alternative)


def _heat_map_cell(row: int, column: int, value: float, largest: float, side: int, names: Sequence[str]) -> Html:
    x, y = MAP_LEFT + side * column, MAP_TOP + side * row
    box = {"x": x + 1, "y": y + 1, "width": side - 2, "height": side - 2, "rx": 3, "fill": heat_colour(value, largest)}
    square = rectangle(f"{names[row]} to {names[column]}: {value:.2f}", **box)
    ink = "#fff" if min(1.0, abs(value) / largest) >= WHITE_TEXT_FROM else "#222"
    attributes = {"x": x + side / 2, "y": y + side / 2 + 4, "text_anchor": "middle", "style": f"fill:{ink}"}
    return tag("g", square, tag("text", f"{value:.1f}", **attributes))


def heat_colour(value: float, largest: float) -> str:
    """White at 0, darkest at the largest value; blue for a loss, orange for a gain."""
    fraction = min(1.0, abs(value) / largest)
    red, green, blue = (round(247 + fraction * (end - 247)) for end in (LOSS_RGB if value >= 0 else GAIN_RGB))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _colour_legend(largest: float, text: str, y: float) -> Html:
    """Steps of blue from 0 to the largest value, with their meaning."""
    count = 6
    width = LEGEND_WIDTH / count
    steps = []
    for i in range(count):
        fill = heat_colour(largest * i / (count - 1), largest)
        steps.append(tag("rect", x=MAP_LEFT + width * i, y=y, width=width, height=10, fill=fill))
    return tag("g", *steps, tag("text", text, x=MAP_LEFT + LEGEND_WIDTH + 8, y=y + 9))


def write_svg(picture: Html, path: Path) -> Path:
    """Write a standalone SVG file."""
    text = str(picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{STANDALONE_STYLE}</style>", 1)
    with atomic_open(path) as file:
        file.write(text + "\n")
    return path
