"""Scores against something that grows: epochs, layers, examples. In a report, or as a picture file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertvision.core.runtime import written_whole
from bertvision.evaluation.analyses.result import Span
from bertvision.report.markup import Html, number, tag
from bertvision.report.svg import Frame, Scale, dot, drawable, scale_of, short_text, tick_text

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
    with written_whole(path) as file:
        file.write(text + "\n")
    return path
