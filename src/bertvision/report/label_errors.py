"""Likely label errors, most doubtful first."""

from __future__ import annotations

from bertvision.evaluation.analyses.label_errors import NAME
from bertvision.report.analyses import format_cell
from bertvision.report.markup import truncate
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Run

MAX_ROWS, MAX_TEXT = 50, 200
"""Rows shown, and characters of each text."""

TEXTS = ("text", "pair")


def label_errors_section(run: Run) -> Section | None:
    """The table of likely label errors; None if they were not looked for."""
    finding = next((finding for finding in run.findings if finding.name == NAME), None)
    if finding is None:
        return None
    columns = {key: title for key, title in finding.columns.items() if key not in ("id", *TEXTS)}
    rows = []
    for row in finding.rows[:MAX_ROWS]:
        texts = [truncate(str(row[key]), MAX_TEXT) for key in TEXTS if row.get(key)]
        rows.append((format_cell(row.get("id")), texts, [format_cell(row.get(key)) for key in columns]))
    return render_section(
        "label-errors",
        "Label errors",
        finding=finding,
        columns=[finding.columns["id"], "text", *columns.values()],
        rows=rows,
        left=len(finding.rows) - MAX_ROWS,
    )
