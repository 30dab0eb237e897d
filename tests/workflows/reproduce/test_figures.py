"""Figures: every figure is drawn from its recipe, and published numbers are drawn in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertvision.core.errors import BadInput
from bertvision.workflows.reproduce.figures import plot_of, write_pictures
from bertvision.workflows.reproduce.published import published_of
from bertvision.workflows.reproduce.specs import Item, Picture, all_items

FIGURES = [item for item in all_items().values() if item.picture is not None]
EVERY = pytest.mark.parametrize("item", FIGURES, ids=lambda item: item.name)


def test_every_figure_of_the_papers_has_a_chart() -> None:
    named = {name for name in all_items() if "figure" in name}
    assert named <= {item.name for item in FIGURES}
    with pytest.raises(BadInput, match="Did you mean 'lines'"):
        Picture("line", ("f1",))


@EVERY
def test_chart_is_written_if_there_are_values(item: Item, tmp_path: Path) -> None:
    """With made-up values of every kind that a figure may need."""
    assert plot_of(item, {}) is None
    picture = item.picture
    assert picture is not None
    values = {
        row.name: {
            **dict.fromkeys(picture.y, 50.0 + index),
            picture.x: 1.0 + index,
            "state 0": 1.0,
            "state 1": 2.0,
            "decrease 1-1": 3.0,
            "decrease 1-2": 4.0,
            "decrease 2-2": 5.0,
        }
        for index, row in enumerate(item.rows)
    }
    rows = [{"row": row, "ours": row_values, "published": {}} for row, row_values in values.items()]
    names = [f"{item.name}-{metric}.svg" for metric in picture.y] if picture.one_per_metric else [f"{item.name}.svg"]
    assert write_pictures(item, rows, tmp_path) == names
    for name in names:
        chart = (tmp_path / name).read_text(encoding="utf-8")
        assert chart.startswith("<svg ") and 'aria-label="' in chart  # noqa: PT018


def test_published_curves_are_drawn() -> None:
    plot = plot_of(all_items()["bv-figure-6"], published_of("bv-figure-6"))
    assert plot is not None
    assert {name: len(points) for name, points in plot.series.items()} == {"exact": 16, "f1": 16}
    front = plot_of(all_items()["hulburd-figure-5"], published_of("hulburd-figure-5"))
    assert front is not None
    assert front.series["on the front"][0][2] == "L0", "the fewest parameters"


@EVERY
def test_lines_are_sorted_by_x(item: Item) -> None:
    """The rows of recipes are in the order of the papers' tables, not by x."""
    picture = item.picture
    assert picture is not None
    values = {row.name: dict.fromkeys(picture.y, 50.0) for row in reversed(item.rows)}
    plot = plot_of(item, values) if picture.kind == "lines" else None
    for points in plot.series.values() if plot else []:
        assert [x for x, *_ in points] == sorted(x for x, *_ in points)
