"""Colours of series: the same in a report and in standalone SVG files, and legible in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bertvision.report.charts import colour_class, write_svg
from bertvision.report.colours import DARK, LIGHT, rgb_channels
from bertvision.report.markup import Html, tag
from bertvision.report.page import render_page
from bertvision.report.render import STYLE, read_asset


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours as defined by WCAG 2."""
    luminances = []
    for colour in (one, other):
        shares = [int(channel) / 255 for channel in rgb_channels(colour).split()]
        red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares)
        luminances.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(luminances) / min(luminances)


@pytest.mark.parametrize(("colours", "index"), [(LIGHT, 0), (DARK, 1)])
def test_series_are_legible_on_the_page_and_on_cards(colours: dict[str, str], index: int) -> None:
    for background in ("page", "card"):
        colour = re.findall(rf"--{background}: (#\w+)", read_asset(STYLE))[index]
        assert min(contrast(series, colour) for series in colours.values()) > 4.5


def test_light_and_dark_name_the_same_colours() -> None:
    assert list(LIGHT) == list(DARK)


def test_report_and_svg_give_every_series_the_same_colour(tmp_path: Path) -> None:
    page = render_page("t", Html(""), [])
    variables = [dict(re.findall(r"--(\w+): (#\w{6});", line)) for line in page.splitlines() if "--blue: #" in line]
    assert variables == [LIGHT, DARK]
    svg = write_svg(tag("svg", width=1), tmp_path / "chart.svg").read_text(encoding="utf-8")
    for rank, (name, colour) in enumerate(LIGHT.items()):
        assert f".{colour_class(rank)} {{ color: var(--{name}); }}" in page
        assert f".{colour_class(rank)}{{color:{colour}}}" in svg


def test_stylesheet_uses_only_declared_variables() -> None:
    style = read_asset(STYLE)
    declared = {*re.findall(r"--(\w+):", style), *LIGHT, "shade", "share"}  # templates set --share
    assert set(re.findall(r"var\(--(\w+)\)", style)) <= declared


def test_channels_of_a_colour() -> None:
    assert rgb_channels("#0068a8") == "0 104 168"
