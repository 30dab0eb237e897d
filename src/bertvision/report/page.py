"""One or several runs as a self-contained HTML file that loads nothing, for dark and light mode, screen and print."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertvision.core.files import atomic_open
from bertvision.report.analyses import analyses_section
from bertvision.report.calibration import calibration_section, no_answer_section
from bertvision.report.colours import DARK, LIGHT
from bertvision.report.compare_runs import compare_runs
from bertvision.report.cost import cost_section, tuning_summary
from bertvision.report.examples import examples_section
from bertvision.report.explorer import explorer_section
from bertvision.report.label_errors import label_errors_section
from bertvision.report.leaderboard import leaderboard_section, significance_section
from bertvision.report.markup import MISSING, Html, printable
from bertvision.report.render import SCRIPT, STYLE, Section, read_asset, render
from bertvision.report.reproducibility import reproducibility_section
from bertvision.report.training_curves import layer_weights_section, training_curves_section
from bertvision.runs.reader import Run, best_head, group_rows
from bertvision.tasks.class_weights import format_class_counts

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy: inline styles only. Scripts are allowed by hash, nothing is fetched."""


def write_page(runs: Sequence[Run], path: Path) -> Path:
    """Write one page for the runs, named by their folders, or by whole paths if folder names repeat."""
    names = [run.folder.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    return write_html(render_runs(list(zip(names, runs, strict=True))), path)


def write_html(text: str, path: Path) -> Path:
    with atomic_open(path) as file:
        file.write(text)
    return path


def render_runs(runs: Sequence[tuple[str, Run]]) -> str:
    """The document: the sections of a single run, or an overview of several runs followed by each."""
    if len(runs) == 1:
        ((_, run),) = runs
        parts = _sections(run)
        return render_page(_title(run), _header(run, parts), parts)
    sections = []
    for index, (_, run) in enumerate(runs, 1):
        parts = [replace(part, name=f"run{index}-{part.name}") for part in _sections(run)]
        sections += [Section(f"run{index}", "", _header(run, parts)), *parts]
    overview = render("overview", rows=[_overview_row(name, run) for name, run in runs], comparison=compare_runs(runs))
    return render_page(f"{len(runs)} runs", overview, sections)


def render_page(title: str, header: Html, sections: Sequence[Section]) -> str:
    """The page around its sections. The script is included for the explorer and allowed by its hash."""
    script, policy = "", POLICY
    if any(part.name.endswith("explorer") for part in sections):
        script = read_asset(SCRIPT)
        digest = hashlib.sha256(script.encode("utf-8")).digest()
        policy += f"; script-src 'sha256-{base64.b64encode(digest).decode('ascii')}'"
    values = {"title": title, "header": header, "sections": sections, "policy": policy, "light": LIGHT, "dark": DARK}
    return printable(render("page", **values, style=Html(read_asset(STYLE)), script=Html(script)))


def _sections(run: Run) -> list[Section]:
    lines = group_rows(run.board)
    parts = [
        leaderboard_section(run, lines),
        significance_section(run, lines),
        no_answer_section(run, lines),
        calibration_section(run, lines),
        analyses_section(run.findings, run),
        cost_section(run, lines),
        layer_weights_section(run),
        training_curves_section(run),
        explorer_section(run, lines),
        examples_section(run, lines),
        label_errors_section(run),
        reproducibility_section(run),
    ]
    return [part for part in parts if part is not None]


def _title(run: Run) -> str:
    encoder = run.encoder.get("name")
    return f"{run.board.task} with {encoder}" if encoder else run.board.task


def _header(run: Run, sections: Sequence[Section]) -> Html:
    """The facts of a run, and the table of contents."""
    heads = [line for line in group_rows(run.board) if line.kind in ("head", "control")]
    counts = sorted({len(line.seeds) for line in heads}) or [0]
    return render(
        "header",
        run=run,
        title=_title(run),
        tuning=tuning_summary(run.encoder.get("record", {})),
        label_counts=format_class_counts(run.task) if run.task.labels else "",
        heads=len(heads),
        seeds=list(dict.fromkeys([counts[0], counts[-1]])),
        sections=sections,
    )


def _overview_row(name: str, run: Run) -> dict[str, object]:
    """A row of the overview of runs; unranked, because scores on different data do not compare."""
    lines, metric = group_rows(run.board), run.board.metric
    best = best_head(lines)
    means = {line.kind: line.mean(metric) for line in lines}
    return {
        "name": name,
        "task": run.board.task,
        "encoder": f"{run.encoder.get('name', '')}, {tuning_summary(run.encoder.get('record', {}))}",
        "metric": metric,
        "best": best.name if best else MISSING,
        "scores": [best.mean(metric) if best else None, means.get("control"), means.get("encoder")],
    }
