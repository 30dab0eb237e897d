"""The pictures: scores as dots, layer weights as bars, learning as lines, values as a cloud.

Shapes and dashes tell apart what colours tell apart, so that nothing is lost in print or to the
colour-blind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bertvision.core.files import atomic_open
from bertvision.evaluation.analyses.result import Plot, Point, Span
from bertvision.report.markup import Html, cut, join, number, tag
from bertvision.report.svg import Frame, Scale, dot, drawable, scale_of, short_text, thinned, tick_text
from bertvision.runs.reader import HeadFacts, Line

SEED_DASHES = ("none", "6 3", "2 3", "8 3 2 3")
"""How the lines of the first, second, ... seed are drawn."""

ROW, DOTS_TOP = 42, 46

LONGEST_DOT_NAME = 48

Points = Sequence[tuple[float, float]]

COLOURS = ("#0068a8", "#c04a00", "#007a5a", "#a3468a", "#6b46c1", "#4a5568")

LINE_DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 4", "1 3")
"""Lines differ in dashes as well as in colour."""

LONGEST_LINE_NAME = 44
"""Letters of a name that a legend has room for."""

ALONE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}.axis{stroke:#888}"
    ".name{font-style:italic}.label{fill:#111}.front{fill:none;stroke:#0068a8;stroke-width:1.5}.track{stroke:#eee;stroke-width:9}"
    ".dot{fill:#0068a8}.kept{fill:#fff;stroke:#c04a00;stroke-width:2.5}"
    + "".join(f".s{place}{{color:{colour}}}" for place, colour in enumerate(COLOURS))
)
"""Style of a picture that stands by itself; in a report the page's style has the same classes, for dark too."""

LOSS, GAIN = (8, 69, 148), (192, 86, 33)
"""Darkest blue and darkest orange, as red, green, blue."""

LEFT, MAP_TOP, BOTTOM, RIGHT = 56, 14, 78, 14

STEPS, LETTER = 120, 7
"""Width of the legend's steps, and about that of a letter."""

LEAST = 0.9
"""Of its own width: narrower its numbers could not be read, so that a page has to scroll it."""

ALMOST = 0.55
"""Share of the darkest from which on text is white."""

Cells = Mapping[tuple[int, int], float]
"""Row and column to value."""

WIDE, HIGH = 420, 290
"""Of a picture with axes: narrow, so that its text can be read on a phone."""

BAR, GAP = 17, 26

WIDEST = 86.0
"""Per cent of the picture that the longest bar takes; its value is written behind it."""

NEAR = 9
"""Marks that are closer, across and up, hide each other's numbers."""

LONGEST_BAR_NAME, LONGEST_NUMBERED = 48, 34
"""Letters of a name that there is room for: on a line of its own, and between a number and what becomes of it."""


def dot_plot(lines: Sequence[Line], metric: str, rules: Mapping[str, float]) -> Html:
    """A strip a predictor, a mark a seed; ``rules`` are vertical lines through all strips.

    Places across are percentages, so that the picture takes any width and its text keeps its size.
    """
    rules = {name: value for name, value in rules.items() if drawable(value)}
    ends = [end for line in lines for end in line.interval or ()]
    scale = scale_of([*(value for line in lines for value in line.values(metric)), *rules.values(), *ends])
    floor = DOTS_TOP + ROW * len(lines) + 4
    parts = [_ticks(scale, floor), *(_rule(name, rules[name], i, scale, floor) for i, name in enumerate(rules))]
    parts += [_strip(line, DOTS_TOP + ROW * i, metric, scale) for i, line in enumerate(lines)]
    told = "; ".join(f"{line.name} {number(line.mean(metric))}{_told_interval(line)}" for line in lines)
    ruled = "; ".join(f"{name} {number(value)}" for name, value in rules.items())
    alternative = f"Mean {metric} of every predictor: {told}. Vertical lines: {ruled}."
    return tag("svg", *parts, width="100%", height=floor + 26, role="img", aria_label=alternative, class_="dots")


def _told_interval(line: Line) -> str:
    return "" if line.interval is None else f" ({number(line.interval[0])} to {number(line.interval[1])})"


def _across(scale: Scale, value: float) -> str:
    return f"{1 + 98 * scale.share(value):.2f}%"


def _anchor(share: float) -> str:
    """Text near an edge grows away from it; on a phone the longest fills two thirds of the picture."""
    return "start" if share < 0.35 else "end" if share > 0.65 else "middle"


def _ticks(scale: Scale, floor: int) -> Html:
    parts = []
    for value in scale.ticks(6):
        x = _across(scale, value)
        parts.append(tag("line", x1=x, x2=x, y1=DOTS_TOP - 10, y2=floor, class_="grid"))
        parts.append(tag("text", tick_text(value), x=x, y=floor + 18, text_anchor="middle"))
    return join(parts)


def _rule(name: str, value: float, place: int, scale: Scale, floor: int) -> Html:
    """A vertical line; names stand on lines of their own, so that close rules stay readable."""
    x, y = _across(scale, value), 13 + 16 * place
    line = tag("line", x1=x, x2=x, y1=y + 5, y2=floor, class_=f"rule rule{place}")
    text = tag("text", f"{cut(name, 34)} {number(value)}", x=x, y=y, text_anchor=_anchor(scale.share(value)))
    return tag("g", line, text, class_="halo")


def _strip(line: Line, top: int, metric: str, scale: Scale) -> Html:
    name = short_text(line.name, LONGEST_DOT_NAME, x="1%", y=top + 12, class_="label")
    mean = tag("text", number(line.mean(metric)), x="99%", y=top + 12, text_anchor="end", class_="label")
    y = top + 26
    track = tag("line", x1="1%", x2="99%", y1=y, y2=y, class_="track")
    marks = [_mark(line, row.seed, row.scores.get(metric, float("nan")), y, scale) for row in line.rows]
    under = [track, *_band(line, y, scale), *_mean_mark(line, metric, y, scale)]
    return tag("g", *under, *marks, name, mean, class_="halo")


def _band(line: Line, y: int, scale: Scale) -> list[Html]:
    """The interval of the mean."""
    if line.interval is None or not all(map(drawable, line.interval)):
        return []
    low, high = (_across(scale, end) for end in line.interval)
    return [tag("line", x1=low, x2=high, y1=y, y2=y, class_="band")]


def _mean_mark(line: Line, metric: str, y: int, scale: Scale) -> list[Html]:
    mean = line.mean(metric)
    if len(line.rows) < 2 or not drawable(mean):
        return []
    x = _across(scale, mean)
    return [tag("line", x1=x, x2=x, y1=y - 8, y2=y + 8, class_="mean")]


def _mark(line: Line, seed: int | None, value: float, y: int, scale: Scale) -> Html:
    """Heads are dots, the control a ring, the encoder a square, ensembles diamonds."""
    if not drawable(value):
        return Html("")
    title = tag("title", f"{line.name}{'' if seed is None else f', seed {seed}'}: {number(value)}")
    x = _across(scale, value)
    if line.kind in ("head", "control"):
        return tag("circle", title, cx=x, cy=y, r=5, class_=f"mark {line.kind}")
    return tag("rect", title, x=x, y=y - 4.5, width=9, height=9, class_=f"mark {line.kind}")


def weights_picture(heads: Sequence[HeadFacts]) -> Html:
    """Bars: mean weight over the seeds of one spec; dots: each seed; dashed: what equal weights would be."""
    states, count = heads[0].states, len(heads[0].states)
    means = [sum(head.weights[i] for head in heads) / len(heads) for i in range(count)]
    tallest = max((weight for head in heads for weight in head.weights if drawable(weight)), default=1.0)
    frame = Frame(Scale(-0.6, count - 0.4), Scale(0.0, 1.15 * tallest or 1.0), 460, 230)
    bars = [_layer_bar(frame, i, mean, f"state {states[i]}: {mean:.3f}") for i, mean in enumerate(means)]
    equal = frame.at(0, 1 / count)[1]
    right = frame.width - frame.right
    rule = tag("line", x1=frame.left, x2=right, y1=equal, y2=equal, class_="equal")
    dots = [_seed_dot(frame, head, i) for head in heads for i in range(count) if len(heads) > 1]
    told = ", ".join(f"{state}: {mean:.3f}" for state, mean in zip(states, means, strict=True))
    axes = frame.axes(thinned(states), "state", "weight")
    return frame.picture(f"Mean layer weights of {heads[0].spec} by state. {told}.", axes, *bars, rule, *dots)


def _layer_bar(frame: Frame, place: int, value: float, title: str) -> Html:
    if not drawable(value):
        return Html("")
    (left, top), (right, floor) = frame.at(place - 0.36, value), frame.at(place + 0.36, 0.0)
    name = tag("title", title)
    return tag("rect", name, x=left, y=top, width=right - left, height=max(0.0, floor - top), class_="bar")


def _seed_dot(frame: Frame, head: HeadFacts, place: int) -> Html:
    if not drawable(head.weights[place]):
        return Html("")
    x, y = frame.at(place, head.weights[place])
    return dot(x, y, f"seed {head.seed}, state {head.states[place]}: {head.weights[place]:.3f}", 3.0, "seed")


def seed_dashes(seeds: Iterable[int]) -> dict[int, str]:
    """How the line of each seed is drawn; after four the dashes come again."""
    return {seed: SEED_DASHES[place % len(SEED_DASHES)] for place, seed in enumerate(sorted(set(seeds)))}


def curves_legend(dashes: Mapping[int, str]) -> Html:
    """Which dashes are which seed, and what a ring is."""
    parts = []
    for seed, dash in dashes.items():
        line = tag("line", x1=0, x2=34, y1=7, y2=7, class_="curve", stroke_dasharray=dash)
        parts.append(tag("span", tag("svg", line, width=34, height=14, aria_hidden="true"), f"seed {seed}"))
    ring = tag("circle", cx=7, cy=7, r=5.5, class_="kept")
    parts.append(tag("span", tag("svg", ring, width=14, height=14, aria_hidden="true"), "the epoch that was kept"))
    return tag("p", *parts, class_="legend")


def curves_picture(
    heads: Sequence[HeadFacts], others: Sequence[HeadFacts], metric: str, y: Scale, dashes: Mapping[int, str]
) -> Html:
    """One spec's seeds in front of all other heads, in grey; a ring marks the epoch that was kept."""
    longest = max((len(head.history) for head in [*heads, *others]), default=1)
    frame = Frame(Scale(0.7, max(longest, 2) + 0.3), y, 340, 210)
    behind = [tag("polyline", points=frame.points(_curve(head)), class_="other") for head in others]
    front = [_seed_curve(frame, head, dashes[head.seed]) for head in heads]
    named = thinned([str(epoch) for epoch in range(1, longest + 1)], 10)
    axes = frame.axes([(place + 1, name) for place, name in named], "epoch", f"inner {metric}")
    told = "; ".join(f"seed {head.seed}: {_told_curve(head)}" for head in heads)
    return frame.picture(f"Inner {metric} of {heads[0].spec} by epoch. {told}.", axes, *behind, *front)


def _curve(head: HeadFacts) -> list[tuple[float, float]]:
    return [(float(point["epoch"]), float(point["inner"])) for point in head.history]


def _told_curve(head: HeadFacts) -> str:
    scores = ", ".join(number(score) for _, score in _curve(head))
    return f"{scores}, epoch {head.best_epoch} kept"


def _seed_curve(frame: Frame, head: HeadFacts, dash: str) -> Html:
    line = tag("polyline", points=frame.points(_curve(head)), class_="curve", stroke_dasharray=dash)
    marks = []
    for epoch, score in _curve(head):
        if drawable(score):
            kept = epoch == head.best_epoch
            title = f"seed {head.seed}, epoch {epoch:g}: {number(score)}{' (kept)' if kept else ''}"
            marks.append(dot(*frame.at(epoch, score), title, 5.5 if kept else 2.5, "kept" if kept else "dot"))
    return tag("g", line, *marks)


def scatter(pairs: Sequence[tuple[float, float, str]]) -> Html:
    """Gold values across, predicted ones up, and the diagonal on which both are equal."""
    shown = [pair for pair in pairs if drawable(pair[0]) and drawable(pair[1])]
    both = scale_of([value for gold, said, _ in shown for value in (gold, said)])
    frame = Frame(both, both, 460, 440, left=58)
    (x1, y1), (x2, y2) = frame.at(both.low, both.low), frame.at(both.high, both.high)
    diagonal = tag("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="equal")
    dots = [dot(*frame.at(gold, said), f"{name}: gold {gold:g}, predicted {said:g}") for gold, said, name in shown]
    axes = frame.axes([(value, tick_text(value)) for value in both.ticks(5)], "gold", "predicted")
    alternative = f"Predicted against gold values of {len(shown)} examples, with the diagonal where both are equal."
    return frame.picture(alternative, axes, diagonal, *dots)


def line_picture(
    series: Mapping[str, Points],
    x_name: str,
    y_name: str,
    width: int = 560,
    height: int = 320,
    spread: Mapping[str, Sequence[Span]] | None = None,
) -> Html:
    """One line a series, named in a legend beneath; points tell their values, upright lines how far seeds are apart."""
    reach = spread or {}
    points = [point for line in series.values() for point in line if drawable(point[1])]
    ends = [end for spans in reach.values() for _, *both in spans for end in both]
    across = _whole_scale([x for x, _ in points])
    legend = 18 * len(series)
    frame = Frame(across, scale_of([*(y for _, y in points), *ends]), width, height + legend + 14, bottom=52 + legend)
    between = not all(float(x).is_integer() for x, _ in points)  # there is no layer and no epoch 0.5
    inside = [value for value in across.ticks(8) if across.low <= value <= across.high]
    ticks = [(value, tick_text(value)) for value in inside if between or value.is_integer()]
    drawn = [_line(frame, i, name, line, reach.get(name, ())) for i, (name, line) in enumerate(series.items())]
    named = [_named(frame, place, name, height) for place, name in enumerate(series)]
    told = "; ".join(f"{name}: {_line_text(line, reach.get(name, ()))}" for name, line in series.items())
    return frame.picture(f"{y_name} by {x_name}. {told}.", frame.axes(ticks, x_name, y_name), *drawn, *named)


def _whole_scale(values: Sequence[float]) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.03 * (high - low) or 0.5
    return Scale(low - room, high + room)


def _line(frame: Frame, place: int, name: str, line: Points, spans: Sequence[Span]) -> Html:
    dash = dashes(place)
    look = {"fill": "none", "stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": dash}
    path = tag("polyline", points=frame.points(line), **look)
    dots = [dot(*frame.at(x, y), f"{name}, {x:g}: {number(y)}", 3.5, "point") for x, y in line if drawable(y)]
    upright = [_upright(frame, span) for span in spans if all(map(drawable, span))]
    return tag("g", path, *upright, tag("g", *dots, fill="currentColor"), class_=colour_class(place))


def _upright(frame: Frame, span: Span) -> Html:
    """From the lowest to the highest value at a place."""
    x, low, high = span
    (across, bottom), (_, top) = frame.at(x, low), frame.at(x, high)
    title = tag("title", f"{number(low)} to {number(high)}")
    return tag("line", title, x1=across, x2=across, y1=bottom, y2=top, stroke="currentColor", stroke_width=1.2)


def dashes(place: int) -> str:
    """Of the first, second, ... series; the seventh, whose colour has been there, has other dashes than the first."""
    return LINE_DASHES[(place + place // len(COLOURS)) % len(LINE_DASHES)]


def colour_class(place: int) -> str:
    """The class that colours the first, second, ... series."""
    return f"s{place % len(COLOURS)}"


def _named(frame: Frame, place: int, name: str, height: int) -> Html:
    y, dash = height + 18 * place + 14, dashes(place)
    look = {"stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": dash, "class_": colour_class(place)}
    stroke = tag("line", x1=frame.left, x2=frame.left + 34, y1=y, y2=y, **look)
    return tag("g", stroke, short_text(name, LONGEST_LINE_NAME, x=frame.left + 42, y=y + 4))


def _line_text(line: Points, spans: Sequence[Span]) -> str:
    ends = {x: f" ({number(low)} to {number(high)})" for x, low, high in spans}
    return ", ".join(f"{number(y)}{ends.get(x, '')} at {x:g}" for x, y in line)


def write_picture(picture: Html, path: Path) -> Path:
    """An SVG file that any browser or document can show."""
    text = str(picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{ALONE}</style>", 1)
    with atomic_open(path) as file:
        file.write(text + "\n")
    return path


def heat_map(cells: Cells, names: Sequence[str], x_name: str, y_name: str, legend: str, side: int = 46) -> Html:
    """A cell for every pair that has a value; rows from the top, columns from the left, both by ``names``."""
    # Of few rows the cells grow until what the axes show fits beside them.
    side = max(side, -(-LETTER * max(len(x_name), len(y_name)) // len(names)))
    edge = side * len(names)
    largest = max(1.0, *(abs(value) for value in cells.values()))  # differences too small to matter stay pale
    parts = [_cell(row, column, value, largest, side, names) for (row, column), value in cells.items()]
    parts += [_tick(place, name, edge, side) for place, name in enumerate(names)]
    middle, floor = LEFT + edge / 2, MAP_TOP + edge
    parts.append(tag("text", x_name, x=middle, y=floor + 36, text_anchor="middle", class_="name"))
    turned = f"translate(14 {MAP_TOP + edge / 2:.0f}) rotate(-90)"
    parts.append(tag("text", y_name, transform=turned, text_anchor="middle", class_="name"))
    told_of = f"0 to {largest:.1f}: {legend}"
    parts.append(_shade_legend(largest, told_of, floor + 52))
    told = "; ".join(f"{names[row]} to {names[column]}: {value:.1f}" for (row, column), value in cells.items())
    width = max(LEFT + edge, LEFT + STEPS + 8 + LETTER * len(told_of)) + RIGHT
    box = f"0 0 {width} {MAP_TOP + edge + BOTTOM}"
    look = {"style": f"min-width:{LEAST * width:.0f}px;max-width:{1.25 * width:.0f}px", "class_": "heat"}
    return tag("svg", *parts, viewBox=box, **look, role="img", aria_label=f"{legend}, {y_name} to {x_name}. {told}.")


def _cell(row: int, column: int, value: float, largest: float, side: int, names: Sequence[str]) -> Html:
    x, y = LEFT + side * column, MAP_TOP + side * row
    title = tag("title", f"{names[row]} to {names[column]}: {value:.2f}")
    share = min(1.0, abs(value) / largest)
    square = tag("rect", title, x=x + 1, y=y + 1, width=side - 2, height=side - 2, rx=3, fill=shade(value, largest))
    ink = "#fff" if share >= ALMOST else "#222"
    place = {"x": x + side / 2, "y": y + side / 2 + 4, "text_anchor": "middle", "style": f"fill:{ink}"}
    return tag("g", square, tag("text", f"{value:.1f}", **place))


def shade(value: float, largest: float) -> str:
    """White at nothing, the darkest at the largest; blue for what was lost, orange for what was gained."""
    share = min(1.0, abs(value) / largest)
    red, green, blue = (round(247 + share * (end - 247)) for end in (LOSS if value >= 0 else GAIN))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _tick(place: int, name: str, edge: int, side: int) -> Html:
    middle = side * place + side / 2
    below = tag("text", name, x=LEFT + middle, y=MAP_TOP + edge + 17, text_anchor="middle")
    return tag("g", below, tag("text", name, x=LEFT - 9, y=MAP_TOP + middle + 4, text_anchor="end"))


def _shade_legend(largest: float, text: str, y: float) -> Html:
    """Steps of blue from nothing to the largest, and what they measure."""
    steps = 6
    one = STEPS / steps
    boxes = [
        tag("rect", x=LEFT + one * i, y=y, width=one, height=10, fill=shade(largest * i / (steps - 1), largest))
        for i in range(steps)
    ]
    return tag("g", *boxes, tag("text", text, x=LEFT + STEPS + 8, y=y + 9))


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
