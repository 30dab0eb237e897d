"""Two predictors side by side: where they agree, where only one is right, with examples of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertvision.core.files import hash_json
from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import Answers, gold_text
from bertvision.evaluation.analyses.result import Cell, Finding, as_float, bars, share
from bertvision.tasks.splits import stable_hash
from bertvision.tasks.task import Task

ABOUT = (
    "How often two predictors are right together, alone or not at all, and how often they say the same. Kappa is the "
    "agreement of right and wrong beyond what their scores alone would give: 0 is chance, 1 is always. 'Either' is "
    "what a perfect choice between the two would reach."
)
COLUMNS = {
    "a": "first",
    "b": "second",
    "both": "both right, %",
    "only_a": "only first, %",
    "only_b": "only second, %",
    "neither": "neither, %",
    "either": "either, %",
    "same": "same answer, %",
    "kappa": "kappa",
}
SHOWN = 6
"""Examples of each sort of disagreement."""
LONGEST_FILE = 60
"""Of two names in the name of a file."""
LONGEST = 22
"""Of a name in the picture, where two stand side by side."""


def agreement(task: Task, split: str, pairs: Iterable[tuple[Answers, Answers]]) -> Finding:
    """A row a pair; the examples are of the pairs in order, chosen by a hash."""
    pairs = list(pairs)
    rows = tuple(side_by_side(a, b) for a, b in pairs)
    shown = tuple(case for a, b in pairs for case in _cases(task, task[split], a, b))
    names = [f"{_short(a.name)} / {_short(b.name)}" for a, b in pairs]
    kinds = {"only the first right": "only_a", "only the second right": "only_b", "neither": "neither"}
    series = {title: [as_float(row[key]) for row in rows] for title, key in kinds.items()}
    picture = bars(names, series, "examples, %")
    return Finding("agreement", "Agreement and disagreement", ABOUT, COLUMNS, rows, (picture,), shown)


def side_by_side(a: Answers, b: Answers) -> dict[str, Cell]:
    """Per cent of the examples on which both, one or neither is right, and on which they say the same."""
    count = len(a.right)
    both, neither = int((a.right & b.right).sum()), int((~a.right & ~b.right).sum())
    only_a, only_b = int((a.right & ~b.right).sum()), int((~a.right & b.right).sum())
    return {
        "a": a.name,
        "b": b.name,
        "both": share(both, count),
        "only_a": share(only_a, count),
        "only_b": share(only_b, count),
        "neither": share(neither, count),
        "either": share(count - neither, count),
        "same": share(sum(x == y for x, y in zip(a.answers, b.answers, strict=True)), count),
        "kappa": kappa(a.right, b.right),
    }


def kappa(a: np.ndarray, b: np.ndarray) -> float | None:
    """(observed - expected) / (1 - expected) agreement of two yes-no judgements; Cohen 1960."""
    if not len(a):
        return None
    p, q = float(a.mean()), float(b.mean())
    expected = p * q + (1 - p) * (1 - q)
    return None if expected == 1.0 else (float((a == b).mean()) - expected) / (1 - expected)


def with_pair_name(found: Finding, a: str, b: str, *places: str) -> Finding:
    """A finding on two rows that were asked for, under a name of its own: it stands beside the usual one.

    ``places`` tell apart rows of other runs, whose names may be alike.
    """
    words = re.sub("[^A-Za-z0-9]+", "-", f"{a}-{b}")[:LONGEST_FILE].strip("-")
    return replace(found, name=f"agreement-{words}-{hash_json([a, b, *places])[:6]}", title=f"Agreement of {a} and {b}")


def _cases(task: Task, examples: Sequence[Example], a: Answers, b: Answers) -> list[dict[str, Any]]:
    cases = []
    for sort, mask in (("only_a", a.right & ~b.right), ("only_b", ~a.right & b.right)):
        indices = sorted(np.flatnonzero(mask).tolist(), key=lambda index: stable_hash(examples[index].id))
        for index in indices[:SHOWN]:
            example = examples[index]
            case = {"id": example.id, "sort": sort, "text": example.text, "pair": example.pair}
            case |= {"gold": gold_text(task, example), "a": a.name, "b": b.name}
            case |= {"a_said": a.answers[index], "b_said": b.answers[index]}
            cases.append({**case, **(_spans(example, a, b) if task.kind == "span" else {})})
    return cases


def _spans(example: Example, a: Answers, b: Answers) -> dict[str, Any]:
    """Where in the context the gold answers stand, and those that were given, as far as that was kept."""
    golds = sorted({(answer.start, answer.start + len(answer.text)) for answer in example.answers})
    spans: dict[str, Any] = {"spans": [list(span) for span in golds]}
    for key, places in (("a_place", a.places), ("b_place", b.places)):
        if places and example.id in places:
            spans[key] = list(places[example.id])
    return spans


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
