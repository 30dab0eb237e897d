"""How to repeat a run: what was typed, the recipe it came to, and the versions that it ran with."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from bertvision.core.run_log import COMMAND, versions
from bertvision.report.render import Section, section
from bertvision.runs.reader import STORE_FINDINGS, TRIAL_FINDINGS, Run

BEGIN = ("run", "demo")
"""Commands that make all of a recipe."""
SHOWING = ("--json", "--debug")
"""Options that change what is printed, and nothing that is made."""
Line = Mapping[str, Any]


def reproducibility_section(run: Run) -> Section:
    """The commands as they were typed; of what was not typed here, what else is known of it."""
    typed = _typed(run.log)
    long = [finding.name for finding in run.findings if finding.name in STORE_FINDINGS]
    searched = any(finding.name.startswith(TRIAL_FINDINGS) for finding in run.findings)
    return section(
        "repeat",
        "How to repeat it",
        commands=_command_lines(typed),
        recipe=run.recipe,
        made_whole=any(line["words"][:1] == [word] for line in typed for word in BEGIN),
        fits="" if typed else _fits(run),
        analyses="" if typed or not run.findings else _analyses(long, searched),
        options_lost=bool(long) or searched,
        ran_with=_versions(run.log),
        written_with=_listed(versions()),
    )


def _typed(log: Iterable[Line]) -> list[Line]:
    """Commands in order; one that was given again (to go on, or for nothing) stands where it came first."""
    found: dict[tuple[str, ...], Line] = {}
    for line in log:
        if line.get("step") == COMMAND:
            words = [str(word) for word in line.get("words", ()) if word not in SHOWING]
            found.setdefault((str(line.get("where", "")), *words), {**line, "words": words})
    return list(found.values())


def _command_lines(typed: Sequence[Line]) -> str:
    """With the versions and the folder above the commands that they hold for; an old log does not know the folder."""
    lines, made_with, folder = [], "", ""
    for line in typed:
        with_now, folder_now = _listed(line.get("versions") or {}), str(line.get("where", ""))
        if with_now != made_with:
            lines.append(f"# {with_now}")
        if folder_now not in ("", folder):
            lines.append(shlex.join(["cd", folder_now]))
        lines.append(shlex.join(["bertvision", *line["words"]]))
        made_with, folder = with_now, folder_now
    return "\n".join(lines)


def _fits(run: Run) -> str:
    """Heads that no recipe names: fitted on a finished store, or after the run."""
    if run.recipe:
        later = [
            line for line in dropwhile(lambda line: line.get("step") != "run", run.log) if line.get("step") == "fit"
        ]
        specs = [spec for line in later for spec in line.get("heads", ())]
        seeds, store, out = {seed for line in later for seed in line["seeds"]}, "runs/again/store", ""
    else:
        specs, seeds = [head.spec for head in run.heads], {head.seed for head in run.heads}
        store, out = "STORE", " --out runs/again"
    words = [f"--head {shlex.quote(str(spec))}" for spec in dict.fromkeys(specs)]
    if not words:
        return ""
    return " ".join([f"bertvision fit {store}", *words, f"--seeds {','.join(map(str, sorted(seeds)))}{out}"])


def _analyses(long: Sequence[str], searched: bool) -> str:
    """The commands behind the analyses; those that take long are named, because they are not made unasked."""
    lines = ["bertvision analyse runs/again"]
    lines += [f"bertvision analyse runs/again --what {' '.join(long)}"] if long else []
    return "\n".join([*lines, *(["bertvision search runs/again"] if searched else [])])


def _versions(log: Iterable[Line]) -> str:
    """Those of the steps; of several sets also which steps."""
    made: dict[str, list[str]] = {}
    for line in log:
        if line.get("versions"):
            steps = made.setdefault(_listed(line["versions"]), [])
            if line["step"] not in (*steps, COMMAND):
                steps.append(str(line["step"]))
    kept = {listed: steps for listed, steps in made.items() if steps}
    several = [f"{listed} ({', '.join(steps)})" for listed, steps in kept.items()]
    return "; ".join(several if len(kept) > 1 else kept)


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())
