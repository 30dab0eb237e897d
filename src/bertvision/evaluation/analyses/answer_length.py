"""Short answers and long ones: right by the length of the gold answer, and how long the given answers are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import Said
from bertvision.evaluation.analyses.result import Cell, Finding, bars, mean, share

ABOUT_LENGTH = (
    "Answerable questions by the words of their shortest gold answer; of each predictor the share that is exactly "
    "right, and the mean words of what it answered, silence left out."
)
BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))


def answer_length(examples: Sequence[Example], said: Sequence[Said]) -> Finding:
    """A row a length, two columns a predictor."""
    words = np.array([min((len(a.text.split()) for a in e.answers), default=0) for e in examples])
    groups = {_title(low, high): (words >= low) & (words <= (high or words.max())) for low, high in BINS}
    groups = {title: here for title, here in groups.items() if here.any()}
    rows = tuple(_length_row(title, here, said) for title, here in groups.items())
    columns = {"words": "words of gold", "questions": "questions"}
    for place, one in enumerate(said):
        columns |= {f"right_{place}": f"{one.name}: right, %", f"words_{place}": f"{one.name}: words given"}
    series = {one.name: [_right(one, here) for here in groups.values()] for one in said}
    picture = bars(list(groups), series, "right, %")
    return Finding("answer-length", "Answer length", ABOUT_LENGTH, columns, rows, (picture,))


def _title(low: int, high: int | None) -> str:
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


def _right(one: Said, here: np.ndarray) -> float | None:
    return share(int(one.right[here].sum()), int(here.sum()))


def _length_row(title: str, here: np.ndarray, said: Sequence[Said]) -> dict[str, Cell]:
    row: dict[str, Cell] = {"words": title, "questions": int(here.sum())}
    for place, one in enumerate(said):
        given = [len(str(answer).split()) for answer, asked in zip(one.answers, here, strict=True) if asked and answer]
        row |= {f"right_{place}": _right(one, here), f"words_{place}": mean(given)}
    return row
