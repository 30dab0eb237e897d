"""A square of numbers by two ordered things, as colour and as text: from the page's white to one dark blue.

What goes the other way than expected is orange, so that sign is told by colour as well as by the minus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertvision.report.markup import Html, tag

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
