"""Questions with and without an answer: who is right on which, and how many misses were silence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import Said
from bertvision.evaluation.analyses.result import Cell, Finding, bars, number_of, share

ABOUT_TYPES = (
    "Exactly right among the questions that have an answer and among those that have none. The last column is the "
    "share of the missed answerable questions to which the predictor said nothing: the rest got another answer."
)
TYPE_COLUMNS = {
    "name": "predictor",
    "has_answer": "with answer",
    "has_answer_right": "right, %",
    "has_answer_f1": "F1",
    "no_answer": "without answer",
    "no_answer_right": "right, % (none)",
    "has_answer_missed": "answers missed",
    "missed_by_silence": "of these silent, %",
}


def answer_types(examples: Sequence[Example], said: Sequence[Said]) -> Finding:
    """The split by gold answerability of every predictor."""
    gold = np.array([bool(example.answers) for example in examples])
    rows = tuple(_type_row(one, gold) for one in said)
    names = [one.name for one in said]
    picture = bars(
        names,
        {
            "has an answer": [number_of(row["has_answer_right"]) for row in rows],
            "has none": [number_of(row["no_answer_right"]) for row in rows],
        },
        "right, %",
    )
    return Finding("answer-types", "With and without an answer", ABOUT_TYPES, TYPE_COLUMNS, rows, (picture,))


def _type_row(one: Said, gold: np.ndarray) -> dict[str, Cell]:
    silent = np.array([not answer for answer in one.answers])
    missed = gold & ~one.right
    return {
        "name": one.name,
        "has_answer": int(gold.sum()),
        "has_answer_right": share(int((gold & one.right).sum()), int(gold.sum())),
        "has_answer_f1": share(float(one.score[gold].sum()), int(gold.sum())),
        "no_answer": int((~gold).sum()),
        "no_answer_right": share(int((~gold & one.right).sum()), int((~gold).sum())),
        "has_answer_missed": int(missed.sum()),
        "missed_by_silence": share(int((missed & silent).sum()), int(missed.sum())),
    }
