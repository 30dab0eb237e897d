"""Scores against something that grows: epochs, layers, examples. In a report, or as a picture file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertvision.report.markup import Html, number, tag
from bertvision.report.svg import Frame, Scale, dot, drawable, scale_of, tick_text
from bertvision.runtime import written_whole

Points = Sequence[tuple[float, float]]

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#97266d", "#4a5568")
DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 4", "1 3")
"""Lines differ in dashes as well as in colour."""

ALONE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}.axis{stroke:#888}"
    ".name{font-style:italic}"
)


def line_picture(series: Mapping[str, Points], x_name: str, y_name: str, width: int = 560, height: int = 320) -> Html:
    """One line a series, named in a legend beneath; every point tells its values."""
    points = [point for line in series.values() for point in line if drawable(point[1])]
    across = _whole_scale([x for x, _ in points])
    legend = 18 * len(series)
    frame = Frame(across, scale_of([y for _, y in points]), width, height + legend, bottom=38 + legend)
    ticks = [(value, tick_text(value)) for value in across.ticks(8) if across.low <= value <= across.high]
    drawn = [_line(frame, place, name, line) for place, (name, line) in enumerate(series.items())]
    named = [_named(frame, place, name, height) for place, name in enumerate(series)]
    told = "; ".join(f"{name}: {_told(line)}" for name, line in series.items())
    return frame.picture(f"{y_name} by {x_name}. {told}.", frame.axes(ticks, x_name, y_name), *drawn, *named)


def _whole_scale(values: Sequence[float]) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.03 * (high - low) or 0.5
    return Scale(low - room, high + room)


def _line(frame: Frame, place: int, name: str, line: Points) -> Html:
    colour, dash = COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]
    path = tag("polyline", points=frame.points(line), fill="none", stroke=colour, stroke_width=2, stroke_dasharray=dash)
    dots = [
        tag("g", dot(*frame.at(x, y), f"{name}, {x:g}: {number(y)}", 3.5, "point"), fill=colour)
        for x, y in line
        if drawable(y)
    ]
    return tag("g", path, *dots)


def _named(frame: Frame, place: int, name: str, height: int) -> Html:
    y, colour = height + 18 * place + 2, COLOURS[place % len(COLOURS)]
    dash = DASHES[place % len(DASHES)]
    stroke = tag(
        "line", x1=frame.left, x2=frame.left + 34, y1=y, y2=y, stroke=colour, stroke_width=2, stroke_dasharray=dash
    )
    return tag("g", stroke, tag("text", name, x=frame.left + 42, y=y + 4))


def _told(line: Points) -> str:
    return ", ".join(f"{number(y)} at {x:g}" for x, y in line)


def write_picture(picture: Html, path: Path) -> Path:
    """An SVG file that any browser or document can show."""
    text = str(picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = text.replace(">", f"><style>{ALONE}</style>", 1)
    with written_whole(path) as file:
        file.write(text + "\n")
    return path
