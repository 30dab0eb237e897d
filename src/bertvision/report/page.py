"""A run, or several, as one self-contained HTML file: nothing loaded, dark and light, screen and paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertvision.core.files import atomic_open
from bertvision.report.analyses import analyses_section, unmade_parts
from bertvision.report.calibration import calibration_section, no_answer_section
from bertvision.report.compare_runs import joint_parts
from bertvision.report.cost import cost_section, tuning
from bertvision.report.examples import examples_section
from bertvision.report.explorer import explorer_section, script_hash, script_tag
from bertvision.report.leaderboard import board_section, trust_section
from bertvision.report.markup import NOTHING, Html, Section, facts, join, number, opened, table, tag
from bertvision.report.reproducibility import repeat_section
from bertvision.report.style import STYLE
from bertvision.report.training_curves import curves_section, weights_section
from bertvision.runs.reader import Line, Run, best_head, gather, lines_of
from bertvision.tasks.class_weights import counts_line
from bertvision.tasks.task import Task

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may do: show its own style. Nothing is fetched, and no script runs but one named by its hash."""

CLOSING = "Made by BERTVision out of the run's own files. This page loads nothing."
KINDS = ("control", "encoder")


def write_report(folder: Path, task: Task) -> Path:
    """Write ``report.html`` into a run folder that has a leaderboard."""
    return write_reports([(folder, task)], folder / "report.html")


def write_reports(runs: Sequence[tuple[Path, Task]], path: Path) -> Path:
    """Write runs, each a folder with its task, as one page."""
    return write_page([gather(folder, task) for folder, task in runs], path)


def write_page(runs: Sequence[Run], path: Path) -> Path:
    """Write runs as one page; they are called by their folders, as far as those have different names."""
    names = [run.folder.name for run in runs]
    alike = len(set(names)) < len(names)
    text = page([(str(run.folder) if alike else run.folder.name, run) for run in runs])
    with atomic_open(path) as file:
        file.write(text)
    return path


def page(runs: Sequence[tuple[str, Run]]) -> str:
    """The whole document: a run's sections or, of several runs, what sets them apart and then each in turn."""
    chapters = [_chapter(run) for _, run in runs]
    if len(chapters) == 1:
        head, sections = chapters[0]
        start = [head, _contents(sections)]
    else:
        start, sections = [_overview(runs)], []
        for place, (head, parts) in enumerate(chapters, 1):
            named = [replace(part, name=f"run{place}-{part.name}") for part in parts]
            sections += [Section(f"run{place}", "", join([head, _contents(named)])), *named]
    return document(_title(runs[0][1]) if len(runs) == 1 else f"{len(runs)} runs", start, sections)


def document(title: str, start: Sequence[Html], sections: Sequence[Section]) -> str:
    """What every page has around its sections."""
    main = tag("main", *(part.markup() for part in sections))
    scripted = any(part.name.endswith("explorer") for part in sections)
    body = [*start, main, tag("footer", tag("p", CLOSING)), *([script_tag()] if scripted else [])]
    return f"<!DOCTYPE html>\n{tag('html', _head(title, scripted), tag('body', *body), lang='en')}\n"


def _chapter(run: Run) -> tuple[Html, list[Section]]:
    """The head and the sections of one run."""
    lines = lines_of(run.board)
    parts = [
        board_section(run, lines),
        trust_section(run, lines),
        no_answer_section(run, lines),
        calibration_section(run, lines),
        analyses_section(run.findings, unmade_parts(run)),
        cost_section(run, lines),
        weights_section(run),
        curves_section(run),
        explorer_section(run, lines),
        examples_section(run, lines),
        repeat_section(run),
    ]
    return _header(run, lines), [part for part in parts if part is not None]


def _overview(runs: Sequence[tuple[str, Run]]) -> Html:
    """Each run in one line; scores of different data do not compare, so nothing is ranked. Those that do are tested."""
    rows = [_overview_row(place, name, run) for place, (name, run) in enumerate(runs, 1)]
    head = ["run", "task", "encoder", "metric", "best head on inner", "its score", "control", "encoder alone"]
    how = "Scores are on each run's own dev. They compare where metric and dev are the same, and nowhere else."
    title = tag("h1", f"{len(runs)} runs")
    links = tag("nav", *(tag("a", name, href=f"#run{i}") for i, (name, _) in enumerate(runs, 1)), aria_label="Runs")
    over = tag("p", "BERTVision report", class_="over")
    every = table(head, rows, "All runs", "finding")
    return tag("header", over, title, tag("p", how), every, *joint_parts(runs), links)


def _overview_row(place: int, name: str, run: Run) -> list[object]:
    lines, metric = lines_of(run.board), run.board.metric
    best = best_head(lines)
    known = {line.kind: line.mean(metric) for line in lines if line.kind in ("control", "encoder")}
    told = [math.nan if best is None else best.mean(metric), *(known.get(kind, math.nan) for kind in KINDS)]
    encoder = f"{run.encoder.get('name', '')}, {tuning(run.encoder.get('record', {}))}"
    link = tag("a", name, href=f"#run{place}")
    return [link, run.board.task, encoder, metric, best.name if best else NOTHING, *map(number, told)]


def _title(run: Run) -> str:
    encoder = run.encoder.get("name")
    return f"{run.board.task} with {encoder}" if encoder else run.board.task


def _head(title: str, scripted: bool) -> Html:
    policy = f"{POLICY}; script-src {script_hash()}" if scripted else POLICY
    return tag(
        "head",
        opened("meta", charset="utf-8"),
        opened("meta", http_equiv="Content-Security-Policy", content=policy),
        opened("meta", name="viewport", content="width=device-width, initial-scale=1"),
        opened("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}: BERTVision report"),
        tag("style", Html(STYLE)),
    )


def _header(run: Run, lines: Sequence[Line]) -> Html:
    advice = tag("p", run.advice, class_="advice") if run.advice else ""
    told = facts(_header_facts(run, lines), class_="facts")
    return tag("header", tag("p", "BERTVision report", class_="over"), tag("h1", _title(run)), advice, told)


def _header_facts(run: Run, lines: Sequence[Line]) -> list[tuple[object, object]]:
    task = run.task
    sizes = ", ".join(f"{split} {len(examples):,}" for split, examples in task.splits.items())
    skipped = f"; {sum(task.skipped.values()):,} bad rows left out" if task.skipped else ""
    heads = [line for line in lines if line.kind in ("head", "control")]
    pairs: list[tuple[object, object]] = [("task", f"{run.board.task}: {_asks(task)}")]
    if run.encoder:
        pairs.append(("encoder", f"{run.encoder['name']}, {tuning(run.encoder.get('record', {}))}"))
    pairs.append(("examples", f"{sizes}{skipped}"))
    if task.labels:
        weighed = "; weighed to count alike" if task.class_weights else ""
        pairs.append(("labels in train", f"{counts_line(task)}{weighed}"))
    pairs.append(("heads", f"{len(heads)}, {_seeds_each(heads)}"))
    return [*pairs, ("date", run.day)]


def _seeds_each(heads: Sequence[Line]) -> str:
    counts = sorted({len(line.seeds) for line in heads}) or [0]
    told = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{told} {'seed' if counts[-1] == 1 else 'seeds'} each"


def _asks(task: Task) -> str:
    """What one answer to the task is."""
    if task.kind == "span":
        return f"a stretch of the context{', or no answer' if task.no_answer else ''}"
    labels = f"{'any' if task.kind == 'multilabel' else 'one'} of {len(task.labels)} labels"
    return "a number" if task.kind == "regress" else labels


def _contents(sections: Sequence[Section]) -> Html:
    links = [tag("a", part.title, href=f"#{part.name}") for part in sections]
    return tag("nav", *links, aria_label="Contents")
