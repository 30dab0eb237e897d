"""One self-contained HTML file."""

from pathlib import Path

from bertvision.tasks.base import Task


def write_report(folder: Path, task: Task) -> Path:
    return folder / "report.html"
