"""How to reproduce a run: the commands, the resulting recipe, and the library versions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from bertvision.core.run_log import COMMAND, versions
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import STORE_FINDINGS, TRIAL_FINDINGS, Run

RECIPE_COMMANDS = ("run", "demo")
"""Commands that execute a whole recipe."""
DISPLAY_OPTIONS = ("--json", "--debug")
"""Options that change only what is printed."""
Event = Mapping[str, Any]
"""One line of the run's log."""


def reproducibility_section(run: Run) -> Section:
    """The commands from the log; without a log, commands reconstructed from the run's files."""
    commands = _unique_commands(run.log)
    slow = [finding.name for finding in run.findings if finding.name in STORE_FINDINGS]
    searched = any(finding.name.startswith(TRIAL_FINDINGS) for finding in run.findings)
    return render_section(
        "reproducibility",
        "Reproducing this run",
        commands=_format_commands(commands),
        recipe=run.recipe,
        made_whole=any(event["words"] and event["words"][0] in RECIPE_COMMANDS for event in commands),
        fits="" if commands else _fit_command(run),
        analyses="" if commands or not run.findings else _analysis_commands(slow, searched),
        options_lost=bool(slow) or searched,
        ran_with=_step_versions(run.log),
        written_with=_format_versions(versions()),
    )


def _unique_commands(log: Iterable[Event]) -> list[Event]:
    """The commands in order; a repeated command (to resume a run) is listed once, at its first use."""
    commands: dict[tuple[str, ...], Event] = {}
    for event in log:
        if event.get("step") == COMMAND:
            words = [str(word) for word in event.get("words", ()) if word not in DISPLAY_OPTIONS]
            commands.setdefault((str(event.get("where", "")), *words), {**event, "words": words})
    return list(commands.values())


def _format_commands(commands: Sequence[Event]) -> str:
    """Shell commands, with a line for versions and folder wherever they change; old logs have no folder."""
    lines, versions_shown, folder_shown = [], "", ""
    for event in commands:
        event_versions, folder = _format_versions(event.get("versions") or {}), str(event.get("where", ""))
        if event_versions != versions_shown:
            lines.append(f"# {event_versions}")
        if folder not in ("", folder_shown):
            lines.append(shlex.join(["cd", folder]))
        lines.append(shlex.join(["bertvision", *event["words"]]))
        versions_shown, folder_shown = event_versions, folder
    return "\n".join(lines)


def _fit_command(run: Run) -> str:
    """The command for heads that the recipe does not name: fitted on a finished store, or after the run."""
    if run.recipe:
        after_run = dropwhile(lambda event: event.get("step") != "run", run.log)
        fits = [event for event in after_run if event.get("step") == "fit"]
        specs = [spec for event in fits for spec in event.get("heads", ())]
        seeds, store, out = {seed for event in fits for seed in event["seeds"]}, "runs/again/store", ""
    else:
        specs, seeds = [head.spec for head in run.heads], {head.seed for head in run.heads}
        store, out = "STORE", " --out runs/again"
    options = [f"--head {shlex.quote(str(spec))}" for spec in dict.fromkeys(specs)]
    if not options:
        return ""
    return " ".join([f"bertvision fit {store}", *options, f"--seeds {','.join(map(str, sorted(seeds)))}{out}"])


def _analysis_commands(slow: Sequence[str], searched: bool) -> str:
    """The commands behind the analyses; slow ones must be named because they are not run by default."""
    lines = ["bertvision analyse runs/again"]
    if slow:
        lines.append(f"bertvision analyse runs/again --what {' '.join(slow)}")
    if searched:
        lines.append("bertvision search runs/again")
    return "\n".join(lines)


def _step_versions(log: Iterable[Event]) -> str:
    """The versions that the steps ran with; where they differ, with the names of the steps."""
    steps_by_versions: dict[str, list[str]] = {}
    for event in log:
        if event.get("versions"):
            steps = steps_by_versions.setdefault(_format_versions(event["versions"]), [])
            if event["step"] not in (*steps, COMMAND):
                steps.append(str(event["step"]))
    listed = {text: steps for text, steps in steps_by_versions.items() if steps}
    if len(listed) < 2:
        return "".join(listed)
    return "; ".join(f"{text} ({', '.join(steps)})" for text, steps in listed.items())


def _format_versions(by_name: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in by_name.items())
