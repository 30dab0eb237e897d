"""Calibration: temperatures and calibration errors as a table, reliability as lines."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.records import Reliability, Row
from bertvision.evaluation.analyses.result import Cell, Finding, Plot, Point

ABOUT = (
    "Temperatures fitted on inner, and the expected calibration error (ECE, in percentage points) on the evaluated "
    "split before and after scaling. In the plot, a line below the diagonal means overconfidence."
)
COLUMNS = {
    "name": "predictor",
    "seed": "seed",
    "what": "probability of",
    "temperature": "temperature",
    "ece_raw": "ECE before",
    "ece": "ECE after",
}


def calibration_table(rows: Sequence[Row], diagrams: Sequence[Reliability]) -> Finding:
    """The calibration of leaderboard rows, and their reliability bins as a plot."""
    cells: list[dict[str, Cell]] = []
    for row in rows:
        for what, fitted in row.calibration.items():
            errors = {key: 100 * fitted[key] if key in fitted else None for key in ("ece_raw", "ece")}
            facts: dict[str, Cell] = {"name": row.name, "seed": row.seed, "what": what}
            cells.append({**facts, "temperature": fitted.get("temperature"), **errors})
    series: dict[str, list[Point]] = {}
    for diagram in diagrams:
        bins = [(predicted, observed, f"{count} examples") for predicted, observed, count in diagram.calibrated]
        series[f"{diagram.name}: {diagram.what.replace('_', ' ')}"] = bins
    series["perfect calibration"] = [(0.0, 0.0, ""), (1.0, 1.0, "")]
    plots = (Plot("lines", "predicted probability", "observed frequency", series),) if diagrams else ()
    return Finding("calibration", "Calibration", ABOUT, COLUMNS, tuple(cells), plots)
