"""Two predictors side by side: where they agree, where only one is right, with examples of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bertvision.analyse.finding import Cell, Finding, bars, number_of, share
from bertvision.analyse.said import Said
from bertvision.records import Example
from bertvision.tasks.base import stable_hash

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
LONGEST = 22
"""Of a name in the picture, where two stand side by side."""


def agreement(examples: Sequence[Example], pairs: Iterable[tuple[Said, Said]]) -> Finding:
    """A row a pair; the examples are of the pairs in order, chosen by a hash."""
    pairs = list(pairs)
    rows = tuple(_row(a, b) for a, b in pairs)
    shown = tuple(case for a, b in pairs for case in _cases(examples, a, b))
    names = [f"{_short(a.name)} / {_short(b.name)}" for a, b in pairs]
    kinds = {"only the first right": "only_a", "only the second right": "only_b", "neither": "neither"}
    series = {title: [number_of(row[key]) for row in rows] for title, key in kinds.items()}
    picture = bars(names, series, "examples, %")
    return Finding("agreement", "Agreement and disagreement", ABOUT, COLUMNS, rows, (picture,), shown)


def _row(a: Said, b: Said) -> dict[str, Cell]:
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


def _cases(examples: Sequence[Example], a: Said, b: Said) -> list[dict[str, Any]]:
    found = []
    for sort, here in (("only_a", a.right & ~b.right), ("only_b", ~a.right & b.right)):
        places = sorted(np.flatnonzero(here).tolist(), key=lambda place: stable_hash(examples[place].id))
        found += [_case(sort, examples[place], a, b, place) for place in places[:SHOWN]]
    return found


def _case(sort: str, example: Example, a: Said, b: Said, place: int) -> dict[str, Any]:
    sides = {"a": a.name, "b": b.name, "a_said": a.answers[place], "b_said": b.answers[place]}
    gold = list(dict.fromkeys(answer.text for answer in example.answers))
    return {"id": example.id, "sort": sort, "text": example.text, "gold": gold, **sides}


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
