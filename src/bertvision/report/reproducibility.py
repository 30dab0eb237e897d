"""How to repeat a run: what was typed, the recipe it came to, and the versions that it ran with."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from bertvision.core.run_log import COMMAND, versions
from bertvision.report.markup import Html, Section, section, tag
from bertvision.runs.reader import OF_STORE, OF_TRIALS, Run

AGAIN = "bertvision run recipe.toml --out runs/again"
BEGIN = ("run", "demo")
"""Commands that make all of a recipe."""
SHOWING = ("--json", "--debug")
"""Options that change what is printed, and nothing that is made."""
Line = Mapping[str, Any]


def repeat_section(run: Run) -> Section:
    """The commands as they were typed; of what was not typed here, what else is known of it."""
    typed = _typed(run.log)
    parts = [*_commands(typed), *_recipe(run, typed)]
    if not typed:
        parts += [*_fits(run), *_analyses(run)]
    return section("repeat", "How to repeat it", *parts, _versions(run.log))


def _typed(log: Iterable[Line]) -> list[Line]:
    """Commands in order; one that was given again (to go on, or for nothing) stands where it came first."""
    found: dict[tuple[str, ...], Line] = {}
    for line in log:
        if line.get("step") == COMMAND:
            words = [str(word) for word in line.get("words", ()) if word not in SHOWING]
            found.setdefault((str(line.get("where", "")), *words), {**line, "words": words})
    return list(found.values())


def _commands(typed: Sequence[Line]) -> list[Html]:
    """With the versions and the folder above the commands that they hold for."""
    if not typed:
        return []
    lines, before = [], ("", "")
    for line in typed:
        now = (_told(line.get("versions") or {}), str(line.get("where", "")))
        lines += [*_changed(before, now), shlex.join(["bertvision", *line["words"]])]
        before = now
    how = "What was typed, in this order. Paths are as they were given; to repeat it elsewhere, name another run."
    return [tag("p", how), _block("\n".join(lines))]


def _changed(before: tuple[str, str], now: tuple[str, str]) -> list[str]:
    """What is different for the next command; an old log does not know the folder."""
    (versions_before, folder_before), (versions_now, folder_now) = before, now
    told = [f"# {versions_now}"] if versions_now != versions_before else []
    return told + ([shlex.join(["cd", folder_now])] if folder_now not in ("", folder_before) else [])


def _recipe(run: Run, typed: Sequence[Line]) -> list[Html]:
    if not run.recipe:
        return []
    recipe = tag("pre", tag("code", run.recipe), tabindex="0", role="region", aria_label="recipe.toml")
    where = "it is in the run folder too; its paths are relative to where the run was started"
    how = tag("p", "Save this as ", tag("code", "recipe.toml"), f" ({where}), then run the command.")
    if any(line["words"][:1] == [one] for line in typed for one in BEGIN):
        told = (
            "Or from the recipe that it came to, which has all defaults written out and nothing that was added later:"
        )
        return [tag("p", told), how, _block(AGAIN), recipe]
    return [how, _block(AGAIN), recipe]


def _fits(run: Run) -> list[Html]:
    """Heads that no recipe names: fitted on a finished store, or after the run."""
    if not run.recipe:
        specs, seeds = [head.spec for head in run.heads], {head.seed for head in run.heads}
        how = "The heads were fitted on a finished store, and no recipe was kept"
        return _fit("STORE", how, specs, seeds, " --out runs/again")
    later = [line for line in dropwhile(lambda line: line.get("step") != "run", run.log) if line.get("step") == "fit"]
    specs = [spec for line in later for spec in line.get("heads", ())]
    return _fit("runs/again/store", "Heads that were fitted later", specs, {s for x in later for s in x["seeds"]})


def _fit(store: str, how: str, specs: Iterable[str], seeds: Iterable[int], out: str = "") -> list[Html]:
    words = [f"--head {shlex.quote(str(spec))}" for spec in dict.fromkeys(specs)]
    if not words:
        return []
    line = " ".join([f"bertvision fit {store}", *words, f"--seeds {','.join(map(str, sorted(seeds)))}{out}"])
    return [tag("p", f"{how}; settings given with --set are to be added."), _block(line)]


def _analyses(run: Run) -> list[Html]:
    """The commands behind the analyses; those that take long are named, because they are not made unasked."""
    if not run.findings:
        return []
    named = [one.name for one in run.findings if one.name in OF_STORE]
    searched = any(one.name.startswith(OF_TRIALS) for one in run.findings)
    lines = ["bertvision analyse runs/again"]
    lines += [f"bertvision analyse runs/again --what {' '.join(named)}"] if named else []
    lines += ["bertvision search runs/again"] if searched else []
    lost = " (the options they were made with were not kept)" if named or searched else ""
    return [tag("p", f"Then, for the analyses{lost}:"), _block("\n".join(lines))]


def _versions(log: Iterable[Line]) -> Html:
    """Those of the steps; where the log is older than that, those of this page."""
    made: dict[str, list[str]] = {}
    for line in log:
        if line.get("versions"):
            steps = made.setdefault(_told(line["versions"]), [])
            steps += [] if line["step"] in (*steps, COMMAND) else [str(line["step"])]
    kept = {told: steps for told, steps in made.items() if steps}
    if not kept:
        return tag("p", f"What it ran with was not kept. This page was written with {_told(versions())}.")
    several = [f"{told} ({', '.join(steps)})" for told, steps in kept.items()]
    return tag("p", f"Run with {'; '.join(several if len(kept) > 1 else kept)}.")


def _told(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _block(text: str) -> Html:
    return tag("pre", tag("code", text))
