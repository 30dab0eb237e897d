"""The common ground of the pictures: scales, ticks, and a frame with axes. Colours are left to the style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertvision.report.markup import Html, cut, join, tag

LARGEST = 1e300
"""Beyond it the difference of two numbers may not be a number."""


@dataclass(frozen=True)
class Scale:
    """Values from low to high onto 0 to 1."""

    low: float
    high: float

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round numbers inside, multiples of 1, 2 or 5 times a power of ten; two alone tell no scale."""
        rough = (self.high - self.low) / wanted
        power = 10.0 ** math.floor(math.log10(rough))
        steps = [power * factor for factor in (0.5, 1, 2, 5, 10)]
        place = next(place for place, step in enumerate(steps) if place and step >= rough * 0.999)
        found = self._multiples(steps[place])
        return found if len(found) > 2 else self._multiples(steps[place - 1])

    def _multiples(self, step: float) -> list[float]:
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{number * step:.15g}") for number in range(first, last + 1)]


def tick_text(value: float) -> str:
    """As short as tells neighbouring ticks apart, unless that is too long for an axis: 0.05, 2500, 100k, 10M."""
    size = abs(value)
    if size < 1e5 or size >= 1e9:
        return f"{value:.6g}" if size < 1e9 else f"{value:.4g}"
    return f"{value / 1e3:.6g}k" if size < 1e6 else f"{value / 1e6:.6g}M"


def is_drawable(value: float) -> bool:
    """Whether a value has a place in a picture."""
    return math.isfinite(value) and abs(value) < LARGEST


def scale_of(values: Iterable[float], room: float = 0.05) -> Scale:
    """A scale that holds all values with a little room on both sides."""
    known = [value for value in values if is_drawable(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    alike = high - low < 1e-9 * max(abs(low), abs(high), 1e-9)
    margin = max(0.5, 0.01 * abs(low)) if alike else room * (high - low)
    return Scale(low - margin, high + margin)


@dataclass(frozen=True)
class Frame:
    """A plot area inside a picture; the picture grows with the page up to its own width."""

    x: Scale
    y: Scale
    width: int
    height: int
    left: int = 54
    bottom: int = 38
    top: int = 10
    right: int = 12

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies in the picture."""
        across = self.left + self.x.share(x) * (self.width - self.left - self.right)
        return across, self.height - self.bottom - self.y.share(y) * (self.height - self.bottom - self.top)

    def points(self, pairs: Iterable[tuple[float, float]]) -> str:
        """Points as a polyline wants them."""
        places = (self.at(x, y) for x, y in pairs if is_drawable(y))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

    def axes(self, x_ticks: Sequence[tuple[float, str]], x_name: str, y_name: str) -> Html:
        """Horizontal lines with their values, names below, and what both axes show."""
        (left, floor), (right, _) = self.at(self.x.low, self.y.low), self.at(self.x.high, self.y.low)
        parts = []
        for value in self.y.ticks(4):
            y = self.at(self.x.low, value)[1]
            parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", tick_text(value), x=left - 6, y=y + 4, text_anchor="end"))
        for value, name in x_ticks:
            parts.append(tag("text", name, x=self.at(value, self.y.low)[0], y=floor + 16, text_anchor="middle"))
        parts.append(tag("line", x1=left, x2=right, y1=floor, y2=floor, class_="axis"))
        parts.append(tag("text", x_name, x=(left + right) / 2, y=floor + 32, text_anchor="middle", class_="name"))
        turned = f"translate(11 {(floor + self.top) / 2:.0f}) rotate(-90)"
        parts.append(tag("text", y_name, transform=turned, text_anchor="middle", class_="name"))
        return join(parts)

    def picture(self, alternative: str, *content: object) -> Html:
        """The whole picture, with the text that stands for it."""
        box = f"0 0 {self.width} {self.height}"
        style = f"max-width:{1.25 * self.width:.0f}px"
        return tag("svg", *content, viewBox=box, style=style, role="img", aria_label=alternative)


def thin_ticks(names: Sequence[str], most: int = 13) -> list[tuple[float, str]]:
    """Tick positions 0, 1, ... with their names; so many are left out that the rest can be read."""
    step = max(1, math.ceil(len(names) / most))
    return [(float(place), names[place]) for place in range(0, len(names), step)]


def clipped_text(name: str, limit: int, **place: object) -> Html:
    """As much of a name as there is room for; all of it when pointed at."""
    return tag("text", tag("title", name), cut(name, limit), **place)
