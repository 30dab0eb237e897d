"""No-answer thresholds and calibration: fitted on inner, evaluated on the split of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bertvision.report.charts import reliability_diagram
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Line, Run

TITLES: Mapping[str, tuple[str, str]] = {
    "label": ("label", "probability of the predicted label (of each label for multi-label tasks)"),
    "answer": ("answer", "probability that the predicted answer is exactly right"),
    "no_answer": ("no answer", "probability that the question has no answer"),
}
"""By kind of probability: a short name and a definition."""


def no_answer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Scores at threshold 0, at the fitted one and at the oracle; None for tasks without "no answer"."""
    rows = [line.rows[0] for line in lines if line.rows[0].thresholds]
    return render_section("no-answer", "No-answer threshold", rows=rows, split=run.board.split) if rows else None


def calibration_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Temperatures, calibration errors and reliability diagrams; None for regression."""
    rows = [line.rows[0] for line in lines if line.rows[0].calibration]
    if not rows:
        return None
    by_row = {(row.name, row.seed): row.calibration for row in run.board.rows}
    panels = []
    for reliability in run.board.reliability:
        fitted = by_row.get((reliability.name, reliability.seed), {}).get(reliability.what, {})
        caption = ""
        if fitted:
            before, after = (_to_points(fitted.get(name)) for name in ("ece_raw", "ece"))
            caption = f"Temperature {fitted['temperature']:.2f}; ECE {before:.1f} before, {after:.1f} after scaling."
        title, definition = TITLES[reliability.what]
        picture = reliability_diagram(reliability, definition)
        panels.append({"name": reliability.name, "title": title, "picture": picture, "caption": caption})
    return render_section(
        "calibration",
        "Calibration",
        rows=rows,
        whats=list(rows[0].calibration),
        titles=TITLES,
        points=_to_points,
        panels=panels,
    )


def _to_points(share: float | None) -> float:
    """A share in percentage points; NaN for None."""
    return math.nan if share is None else 100 * share
