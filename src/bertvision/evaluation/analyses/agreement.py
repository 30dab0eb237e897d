"""Agreement of two predictors: how often both, one or neither is right, with examples of disagreement."""

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
    "How often both predictors, only one of them, or neither is right, and how often their answers are the same. "
    "Cohen's kappa compares right and wrong: 0 is the agreement expected by chance from the two scores, 1 is perfect "
    "agreement. 'Either' is the score of an oracle that always picks the better of the two."
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
MAX_EXAMPLES = 6
"""Examples shown for each kind of disagreement."""
MAX_FILE_NAME = 60
"""Characters of the pair of names in a file name."""
MAX_LABEL = 22
"""Characters of each of the two names in a plot label."""


def agreement(task: Task, split: str, pairs: Iterable[tuple[Answers, Answers]]) -> Finding:
    """One row per pair; examples of disagreement are sampled by hash."""
    pairs = list(pairs)
    rows = tuple(agreement_row(a, b) for a, b in pairs)
    examples = [case for a, b in pairs for case in _disagreements(task, task[split], a, b)]
    names = [f"{_shorten(a.name)} / {_shorten(b.name)}" for a, b in pairs]
    kinds = {"only the first right": "only_a", "only the second right": "only_b", "neither": "neither"}
    series = {title: [as_float(row[key]) for row in rows] for title, key in kinds.items()}
    plot = bars(names, series, "examples, %")
    return Finding("agreement", "Agreement and disagreement", ABOUT, COLUMNS, rows, (plot,), tuple(examples))


def agreement_row(a: Answers, b: Answers) -> dict[str, Cell]:
    """Percentage of examples on which both, one or neither is right, and on which the answers are equal."""
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
    """Cohen's kappa (1960) of two binary ratings: (observed - expected) / (1 - expected) agreement."""
    if not len(a):
        return None
    p, q = float(a.mean()), float(b.mean())
    expected = p * q + (1 - p) * (1 - q)
    return None if expected == 1.0 else (float((a == b).mean()) - expected) / (1 - expected)


def with_pair_name(finding: Finding, a: str, b: str, *runs: str) -> Finding:
    """The finding under a name of its own, so that a requested pair does not replace the default agreement.

    ``runs`` distinguishes rows of other runs that have the same names.
    """
    words = re.sub("[^A-Za-z0-9]+", "-", f"{a}-{b}")[:MAX_FILE_NAME].strip("-")
    name = f"agreement-{words}-{hash_json([a, b, *runs])[:6]}"
    return replace(finding, name=name, title=f"Agreement of {a} and {b}")


def _disagreements(task: Task, examples: Sequence[Example], a: Answers, b: Answers) -> list[dict[str, Any]]:
    cases = []
    for sort, mask in (("only_a", a.right & ~b.right), ("only_b", ~a.right & b.right)):
        indices = sorted(np.flatnonzero(mask).tolist(), key=lambda index: stable_hash(examples[index].id))
        for index in indices[:MAX_EXAMPLES]:
            example = examples[index]
            case = {"id": example.id, "sort": sort, "text": example.text, "pair": example.pair}
            case |= {"gold": gold_text(task, example), "a": a.name, "b": b.name}
            case |= {"a_said": a.answers[index], "b_said": b.answers[index]}
            cases.append({**case, **(_span_offsets(example, a, b) if task.kind == "span" else {})})
    return cases


def _span_offsets(example: Example, a: Answers, b: Answers) -> dict[str, Any]:
    """Character offsets of the gold answers in the context and, where saved, of both predicted answers."""
    golds = sorted({(answer.start, answer.start + len(answer.text)) for answer in example.answers})
    offsets: dict[str, Any] = {"spans": [list(span) for span in golds]}
    for key, spans in (("a_place", a.places), ("b_place", b.places)):
        if spans and example.id in spans:
            offsets[key] = list(spans[example.id])
    return offsets


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 3]}..."
