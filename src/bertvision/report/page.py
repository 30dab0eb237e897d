"""A run, or several, as one self-contained HTML file: nothing loaded, dark and light, screen and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertvision.core.files import atomic_open
from bertvision.report.analyses import analyses_section
from bertvision.report.calibration import calibration_section, no_answer_section
from bertvision.report.compare_runs import comparison
from bertvision.report.cost import cost_section, tuning
from bertvision.report.examples import examples_section
from bertvision.report.explorer import explorer_section
from bertvision.report.leaderboard import leaderboard_section, significance_section
from bertvision.report.markup import NOTHING, Html, printable
from bertvision.report.render import SCRIPT, STYLE, Section, asset, render
from bertvision.report.reproducibility import reproducibility_section
from bertvision.report.training_curves import curves_section, weights_section
from bertvision.runs.reader import Run, best_head, gather, group_rows
from bertvision.tasks.class_weights import format_class_counts
from bertvision.tasks.task import Task

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may do: show its own style. Nothing is fetched, and no script runs but one named by its hash."""


def write_report(folder: Path, task: Task) -> Path:
    """Write ``report.html`` into a run folder that has a leaderboard."""
    return write_reports([(folder, task)], folder / "report.html")


def write_reports(runs: Sequence[tuple[Path, Task]], path: Path) -> Path:
    """Write runs, each a folder with its task, as one page."""
    return write_page([gather(folder, task) for folder, task in runs], path)


def write_page(runs: Sequence[Run], path: Path) -> Path:
    """Write runs as one page; they are called by their folders, as far as those have different names."""
    names = [run.folder.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    return write_document(page(list(zip(names, runs, strict=True))), path)


def write_document(text: str, path: Path) -> Path:
    with atomic_open(path) as file:
        file.write(text)
    return path


def page(runs: Sequence[tuple[str, Run]]) -> str:
    """The whole document: a run's sections or, of several runs, what sets them apart and then each in turn."""
    if len(runs) == 1:
        ((_, run),) = runs
        parts = _sections(run)
        return document(_title(run), _header(run, parts), parts)
    sections = []
    for number, (_, run) in enumerate(runs, 1):
        parts = [replace(part, name=f"run{number}-{part.name}") for part in _sections(run)]
        sections += [Section(f"run{number}", "", _header(run, parts)), *parts]
    overview = render("overview", rows=[_overview_row(*named) for named in runs], comparison=comparison(runs))
    return document(f"{len(runs)} runs", overview, sections)


def document(title: str, header: Html, sections: Sequence[Section]) -> str:
    """The page around its sections. The script is there for the explorer, and the policy names it by its hash."""
    script, policy = "", POLICY
    if any(part.name.endswith("explorer") for part in sections):
        script = asset(SCRIPT)
        digest = hashlib.sha256(script.encode("utf-8")).digest()
        policy += f"; script-src 'sha256-{base64.b64encode(digest).decode('ascii')}'"
    values = {"title": title, "header": header, "sections": sections, "policy": policy}
    return printable(render("page", **values, style=Html(asset(STYLE)), script=Html(script)))


def _sections(run: Run) -> list[Section]:
    lines = group_rows(run.board)
    parts = [
        leaderboard_section(run, lines),
        significance_section(run, lines),
        no_answer_section(run, lines),
        calibration_section(run, lines),
        analyses_section(run.findings, run),
        cost_section(run, lines),
        weights_section(run),
        curves_section(run),
        explorer_section(run, lines),
        examples_section(run, lines),
        reproducibility_section(run),
    ]
    return [part for part in parts if part is not None]


def _title(run: Run) -> str:
    encoder = run.encoder.get("name")
    return f"{run.board.task} with {encoder}" if encoder else run.board.task


def _header(run: Run, sections: Sequence[Section]) -> Html:
    """What was run on what, and the list of contents."""
    heads = [line for line in group_rows(run.board) if line.kind in ("head", "control")]
    counts = sorted({len(line.seeds) for line in heads}) or [0]
    return render(
        "header",
        run=run,
        title=_title(run),
        tuning=tuning(run.encoder.get("record", {})),
        label_counts=format_class_counts(run.task) if run.task.labels else "",
        heads=len(heads),
        seeds=list(dict.fromkeys([counts[0], counts[-1]])),
        sections=sections,
    )


def _overview_row(name: str, run: Run) -> dict[str, object]:
    """One run in a line; scores of different data do not compare, so nothing is ranked."""
    lines, metric = group_rows(run.board), run.board.metric
    best = best_head(lines)
    means = {line.kind: line.mean(metric) for line in lines}
    return {
        "name": name,
        "task": run.board.task,
        "encoder": f"{run.encoder.get('name', '')}, {tuning(run.encoder.get('record', {}))}",
        "metric": metric,
        "best": best.name if best else NOTHING,
        "scores": [best.mean(metric) if best else None, means.get("control"), means.get("encoder")],
    }
