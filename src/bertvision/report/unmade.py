"""Analyses that apply to a run and that it lacks, each with the command that makes it.

What the run's files tell is renewed whenever a report is written, and is never lacking; the rest costs time, and a
page that kept silent about it would seem to be complete.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bertvision.evaluation.analyses.catalogue import ANALYSES, ENCODER, FITS, STATES, has_second
from bertvision.report.markup import Html, facts, join, tag
from bertvision.runs.reader import Run

TAKES = {
    STATES: "one pass over the states of dev",
    FITS: "fits heads anew",
    ENCODER: "runs the encoder over dev many times",
}
INSTEAD = {
    "cost": "inference seconds, measured; without them cost against score is only half of it",
    "depth": "the best head on the layers 0..k for every k",
    "learning-curve": "the best head on shares of the training data",
}
"""Where the catalogue speaks of options, or of more than is lacking."""
INTRO = (
    "These apply to this run, too, but take time. Each command puts its analysis into the run and its report. Paths "
    "are as they were given when this page was written."
)


@dataclass(frozen=True)
class Unmade:
    """An analysis to be made."""

    name: str
    needs: str
    about: str
    command: str


def unmade(run: Run) -> list[Unmade]:
    """In the order of the catalogue."""
    found = {name: ANALYSES[name] for name in ANALYSES if name in APPLIES and APPLIES[name](run)}
    return [
        Unmade(name, needs, INSTEAD.get(name, about), _command(run, name))
        for name, (needs, about) in found.items()
        if not _made(run, name)
    ]


def unmade_parts(run: Run) -> list[Html]:
    """A list for the page; nothing where nothing is lacking."""
    lacking = unmade(run)
    if not lacking:
        return []
    pairs = [(join([tag("b", one.name), f": {one.about} ({TAKES[one.needs]})"]), _block(one)) for one in lacking]
    return [tag("h3", "Not made yet"), tag("p", INTRO), facts(pairs, class_="unmade")]


def _block(one: Unmade) -> Html:
    return tag("pre", tag("code", one.command))


def _command(run: Run, name: str) -> str:
    return shlex.join(["bertvision", "analyse", str(run.folder), "--what", name])


def _made(run: Run, name: str) -> bool:
    known = {one.name: one for one in run.findings}
    if name == "cost" and name in known:
        encoders = {row.name for row in run.board.rows if row.kind == "encoder"}  # theirs are known without measuring
        heads = [row for row in known[name].rows if row.get("name") not in encoders]
        return any(row.get("inference_seconds") is not None for row in heads)
    return name in known


def _fitted(run: Run) -> bool:
    """Whether there are heads, and states that others could be fitted on."""
    return bool(run.manifest and run.heads)


def _timed(run: Run) -> bool:
    """Without the seconds of the extraction a head's own are no inference time."""
    return _fitted(run) and bool(run.manifest.get("seconds"))


def _with_best(run: Run) -> bool:
    return _fitted(run) and run.board.best_head is not None


APPLIES: Mapping[str, Callable[[Run], bool]] = {
    "second-best": lambda run: _fitted(run) and has_second(run.task),
    "cost": _timed,
    "layers": _fitted,
    "depth": _with_best,
    "ablation": lambda run: run.adapted,
    "learning-curve": _with_best,
}
"""Of every analysis that needs more than files whether it says anything of a run."""
assert set(APPLIES) == {name for name, (needs, _) in ANALYSES.items() if needs in TAKES}
