"""What the tests of the report share: writing it for the folder of a run."""

from __future__ import annotations

from pathlib import Path

from bertvision.report.page import write_page
from bertvision.runs.reader import gather
from bertvision.tasks.task import Task


def write_report(folder: Path, task: Task) -> Path:
    """Write ``report.html`` into a run folder that has a leaderboard."""
    return write_page([gather(folder, task)], folder / "report.html")
