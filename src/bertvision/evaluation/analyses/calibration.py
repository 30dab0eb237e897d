"""What stated probabilities are worth: calibration errors as a table, reliability as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertvision.core.records import Reliability, Row
from bertvision.evaluation.analyses.result import Cell, Finding, Plot

ABOUT = (
    "Temperatures fitted on inner, and the expected calibration error on the split shown, in points, before and after. "
    "In the picture a line below its diagonal promises too much."
)
COLUMNS = {
    "name": "predictor",
    "seed": "seed",
    "what": "probability of",
    "temperature": "temperature",
    "ece_raw": "ECE before",
    "ece": "ECE after",
}


def calibration_table(rows: Sequence[Row], pictured: Sequence[Reliability]) -> Finding:
    """From a board: its rows' calibration and its reliability bins."""
    told = tuple(_row(row, what, found) for row in rows for what, found in row.calibration.items())
    series = {
        f"{one.name}: {one.what.replace('_', ' ')}": [
            (stated, true, f"{count} examples") for stated, true, count in one.calibrated
        ]
        for one in pictured
    }
    series["what is stated comes true"] = [(0.0, 0.0, ""), (1.0, 1.0, "")]
    plots = (Plot("lines", "stated probability", "share that came true", series),) if pictured else ()
    return Finding("calibration", "Calibration", ABOUT, COLUMNS, told, plots)


def _row(row: Row, what: str, found: Mapping[str, float]) -> dict[str, Cell]:
    points = {key: 100 * found[key] if key in found else None for key in ("ece_raw", "ece")}
    return {"name": row.name, "seed": row.seed, "what": what, "temperature": found.get("temperature"), **points}
