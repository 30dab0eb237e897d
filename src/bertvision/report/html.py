"""A run as one self-contained HTML file: no scripts, nothing loaded, dark and light, screen and paper."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from bertvision import __version__
from bertvision.report.board import board_section
from bertvision.report.cost import cost_section, tuning
from bertvision.report.examples import examples_section
from bertvision.report.facts import Run, gather
from bertvision.report.learning import curves_section, weights_section
from bertvision.report.lines import Line, lines_of
from bertvision.report.markup import Html, Section, facts, opened, section, tag
from bertvision.report.probabilities import calibration_section, no_answer_section
from bertvision.report.style import STYLE
from bertvision.report.trust import trust_section
from bertvision.runtime import written_whole
from bertvision.tasks.balance import counts_line
from bertvision.tasks.base import Task

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may do: show its own style. Nothing is fetched and nothing runs, whatever the data hold."""

CLOSING = "Made by BERTVision out of the run's own files. This page runs nothing and loads nothing."
LIBRARIES = ("torch", "transformers", "numpy")


def write_report(folder: Path, task: Task) -> Path:
    """Write ``report.html`` into a run folder that has a leaderboard."""
    run = gather(folder, task)
    path = folder / "report.html"
    with written_whole(path) as file:
        file.write(page(run))
    return path


def page(run: Run) -> str:
    """The whole document."""
    lines = lines_of(run.board)
    parts = [
        board_section(run, lines),
        trust_section(run, lines),
        no_answer_section(run, lines),
        calibration_section(run, lines),
        cost_section(run, lines),
        weights_section(run),
        curves_section(run),
        examples_section(run, lines),
        _repeat_section(run),
    ]
    sections = [part for part in parts if part is not None]
    main = tag("main", *(part.markup() for part in sections))
    body = tag("body", _header(run, lines), _contents(sections), main, tag("footer", tag("p", CLOSING)))
    return f"<!DOCTYPE html>\n{tag('html', _head(run), body, lang='en')}\n"


def _title(run: Run) -> str:
    encoder = run.encoder.get("name")
    return f"{run.board.task} with {encoder}" if encoder else run.board.task


def _head(run: Run) -> Html:
    return tag(
        "head",
        opened("meta", charset="utf-8"),
        opened("meta", http_equiv="Content-Security-Policy", content=POLICY),
        opened("meta", name="viewport", content="width=device-width, initial-scale=1"),
        opened("meta", name="color-scheme", content="light dark"),
        tag("title", f"{_title(run)}: BERTVision report"),
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
    heads = sum(line.kind in ("head", "control") for line in lines)
    seeds = len({seed for line in lines for seed in line.seeds})
    pairs: list[tuple[object, object]] = [("task", f"{run.board.task}: {_asks(task)}")]
    if run.encoder:
        pairs.append(("encoder", f"{run.encoder['name']}, {tuning(run.encoder.get('record', {}))}"))
    pairs.append(("examples", f"{sizes}{skipped}"))
    if task.labels:
        weighed = "; weighed to count alike" if task.class_weights else ""
        pairs.append(("labels in train", f"{counts_line(task)}{weighed}"))
    pairs.append(("heads", f"{heads}, {seeds} {'seed' if seeds == 1 else 'seeds'} each"))
    return [*pairs, ("date", run.day)]


def _asks(task: Task) -> str:
    """What one answer to the task is."""
    if task.kind == "span":
        return f"a stretch of the context{', or no answer' if task.no_answer else ''}"
    labels = f"{'any' if task.kind == 'multilabel' else 'one'} of {len(task.labels)} labels"
    return "a number" if task.kind == "regress" else labels


def _repeat_section(run: Run) -> Section:
    """The recipe and the command; without a recipe, what is known of it."""
    found = {"python": platform.python_version(), "bertvision": __version__, **_libraries()}
    versions = tag("p", "Written with ", ", ".join(f"{name} {version}" for name, version in found.items()), ".")
    return section("repeat", "How to repeat it", *(_with_recipe(run) if run.recipe else _without_recipe(run)), versions)


def _with_recipe(run: Run) -> list[Html]:
    where = "in the run folder too; its paths are relative to where the run was started"
    how = tag("p", "Save this as ", tag("code", "recipe.toml"), f" (it is {where}), then run the command.")
    recipe = tag("pre", tag("code", run.recipe), tabindex="0", role="region", aria_label="recipe.toml")
    return [how, tag("pre", tag("code", "bertvision run recipe.toml --out runs/again")), recipe]


def _without_recipe(run: Run) -> list[Html]:
    """Heads that were fitted on a finished store."""
    if not run.heads:
        return []
    specs = dict.fromkeys(head.spec for head in run.heads)
    seeds = sorted({head.seed for head in run.heads})
    words = [*(f"--head {shlex.quote(spec)}" for spec in specs), f"--seeds {','.join(map(str, seeds))}"]
    how = (
        "The heads were fitted on a finished store, and no recipe was kept; settings given with --set are to be added."
    )
    return [tag("p", how), tag("pre", tag("code", " ".join(["bertvision fit STORE", *words, "--out runs/again"])))]


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _contents(sections: Sequence[Section]) -> Html:
    links = [tag("a", part.title, href=f"#{part.name}") for part in sections]
    return tag("nav", *links, aria_label="Contents")
