"""Building blocks of SVG charts: scales, ticks, and the plot area with its axes. Colours come from the stylesheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertvision.report.markup import Html, join, tag, truncate

MAX_VALUE = 1e300
"""Differences of larger numbers may overflow."""


@dataclass(frozen=True)
class Scale:
    """A linear map from low..high to 0..1."""

    low: float
    high: float

    def fraction(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self, target: int = 5) -> list[float]:
        """About ``target`` round numbers: multiples of 1, 2 or 5 times a power of ten, at least three if possible."""
        rough = (self.high - self.low) / target
        power = 10.0 ** math.floor(math.log10(rough))
        steps = [power * factor for factor in (0.5, 1, 2, 5, 10)]
        index = next(index for index, step in enumerate(steps) if index and step >= rough * 0.999)
        ticks = self._multiples(steps[index])
        return ticks if len(ticks) > 2 else self._multiples(steps[index - 1])

    def _multiples(self, step: float) -> list[float]:
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{number * step:.15g}") for number in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A tick label that is short but distinct from its neighbours: 0.05, 2500, 100k, 10M."""
    size = abs(value)
    if size < 1e5 or size >= 1e9:
        return f"{value:.6g}" if size < 1e9 else f"{value:.4g}"
    return f"{value / 1e3:.6g}k" if size < 1e6 else f"{value / 1e6:.6g}M"


def is_drawable(value: float) -> bool:
    """Whether a value is finite and small enough to be drawn."""
    return math.isfinite(value) and abs(value) < MAX_VALUE


def scale_for(values: Iterable[float], margin: float = 0.05) -> Scale:
    """A scale that covers all drawable values; ``margin`` is left free on both sides, as a fraction of their range."""
    drawn = [value for value in values if is_drawable(value)] or [0.0, 1.0]
    low, high = min(drawn), max(drawn)
    all_equal = high - low < 1e-9 * max(abs(low), abs(high), 1e-9)
    free = max(0.5, 0.01 * abs(low)) if all_equal else margin * (high - low)
    return Scale(low - free, high + free)


@dataclass(frozen=True)
class PlotArea:
    """The plot area of a chart and its margins; the chart scales with the page up to 1.25 times its width."""

    x: Scale
    y: Scale
    width: int
    height: int
    left: int = 54
    bottom: int = 38
    top: int = 10
    right: int = 12

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Coordinates in the chart of a point of the data."""
        chart_x = self.left + self.x.fraction(x) * (self.width - self.left - self.right)
        return chart_x, self.height - self.bottom - self.y.fraction(y) * (self.height - self.bottom - self.top)

    def polyline_points(self, pairs: Iterable[tuple[float, float]]) -> str:
        """The points attribute of a polyline."""
        coordinates = (self.position(x, y) for x, y in pairs if is_drawable(y))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)

    def draw_axes(self, x_ticks: Sequence[tuple[float, str]], x_name: str, y_name: str) -> Html:
        """Horizontal grid lines with values, tick labels below, and the names of both axes."""
        (left, floor), (right, _) = self.position(self.x.low, self.y.low), self.position(self.x.high, self.y.low)
        parts = []
        for value in self.y.ticks(4):
            y = self.position(self.x.low, value)[1]
            parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", tick_text(value), x=left - 6, y=y + 4, text_anchor="end"))
        for value, name in x_ticks:
            parts.append(tag("text", name, x=self.position(value, self.y.low)[0], y=floor + 16, text_anchor="middle"))
        parts.append(tag("line", x1=left, x2=right, y1=floor, y2=floor, class_="axis"))
        parts.append(tag("text", x_name, x=(left + right) / 2, y=floor + 32, text_anchor="middle", class_="name"))
        rotation = f"translate(11 {(floor + self.top) / 2:.0f}) rotate(-90)"
        parts.append(tag("text", y_name, transform=rotation, text_anchor="middle", class_="name"))
        return join(parts)

    def to_svg(self, alternative: str, *content: object) -> Html:
        """The whole chart with its alternative text."""
        box = f"0 0 {self.width} {self.height}"
        style = f"max-width:{1.25 * self.width:.0f}px"
        return tag("svg", *content, viewBox=box, style=style, role="img", aria_label=alternative)


def thin_ticks(names: Sequence[str], limit: int = 13) -> list[tuple[float, str]]:
    """Tick positions 0, 1, ... with their names, keeping at most ``limit`` of them at equal steps."""
    step = max(1, math.ceil(len(names) / limit))
    return [(float(index), names[index]) for index in range(0, len(names), step)]


def clipped_text(name: str, limit: int, **attributes: object) -> Html:
    """A truncated text with the whole one as tooltip."""
    return tag("text", tag("title", name), truncate(name, limit), **attributes)
