"""Thresholds and probabilities: what was fitted on inner, and how far it holds on the split that is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bertvision.core.records import Reliability
from bertvision.report.charts import reliability_diagram
from bertvision.report.render import Section, section
from bertvision.runs.reader import Line, Run

TITLES: Mapping[str, tuple[str, str]] = {
    "label": ("label", "the stated probability of the label that is given (of each, where there may be several)"),
    "answer": ("answer", "the stated probability that what is said is exactly right"),
    "no_answer": ("no answer", "the stated probability that there is no answer"),
}
"""Sorts of probability: a short name, and what it is."""


def no_answer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """The score at 0, at the fitted threshold and at the oracle; nothing for tasks without "no answer"."""
    rows = [line.rows[0] for line in lines if line.rows[0].thresholds]
    return section("no-answer", "When to say nothing", rows=rows, split=run.board.split) if rows else None


def calibration_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Temperatures, calibration errors and reliability pictures; nothing for values."""
    rows = [line.rows[0] for line in lines if line.rows[0].calibration]
    if not rows:
        return None
    return section(
        "calibration",
        "What the probabilities are worth",
        rows=rows,
        whats=list(rows[0].calibration),
        titles=TITLES,
        points=_points,
        panels=[_panel(one, run) for one in run.board.reliability],
    )


def _points(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def _panel(reliability: Reliability, run: Run) -> dict[str, object]:
    rows = [row for row in run.board.rows if (row.name, row.seed) == (reliability.name, reliability.seed)]
    fitted = rows[0].calibration.get(reliability.what, {}) if rows else {}
    caption = ""
    if fitted:
        before, after = (_points(fitted.get(name)) for name in ("ece_raw", "ece"))
        caption = f"Temperature {fitted['temperature']:.2f}; ECE {before:.1f} before, {after:.1f} after."
    title, what = TITLES[reliability.what]
    picture = reliability_diagram(reliability, what)
    return {"name": reliability.name, "title": title, "picture": picture, "caption": caption}
