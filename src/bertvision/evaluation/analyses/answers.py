"""One predictor's answers to a split, judged example by example: what most analyses look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Example
from bertvision.evaluation.example_scores import score_answers
from bertvision.tasks.task import Task

MEANS = {"span": ("exact", "f1"), "classify": ("accuracy", "accuracy"), "multilabel": ("exact", "exact")}
"""By kind which mean over examples says "right", and which is the score."""


@dataclass(frozen=True)
class Answers:
    """What one predictor said, in the order of the examples."""

    name: str
    kind: str  # encoder, head or ensemble
    answers: tuple[Any, ...]
    right: NDArray[np.bool_]  # (examples,)
    score: NDArray[np.float64]  # (examples,) in 0..1: F1 of spans, else right or not
    places: Mapping[str, Sequence[int]] | None = None  # of spans, by id: start and end; None where they were not kept


def grade_answers(
    task: Task,
    split: str,
    name: str,
    kind: str,
    answers: Mapping[str, Any],
    places: Mapping[str, Sequence[int]] | None = None,
) -> Answers:
    """Judge written answers (example id -> answer); not for numbers, which are neither right nor wrong."""
    right, score = MEANS[task.kind]
    means = score_answers(task, split, answers).means
    told = tuple(answers[example.id] for example in task[split])
    return Answers(name, kind, told, means[right] == 1.0, means[score], places)


def context_word_counts(examples: Sequence[Example]) -> list[int]:
    """Words of the context that an answer is looked for in; of all texts where there is no question."""
    return [len(_read(example).split()) for example in examples]


def _read(example: Example) -> str:
    asked = example.label is None and example.labels is None
    return (example.pair or "") if asked else f"{example.text} {example.pair or ''}"


def gold_names(task: Task, example: Example) -> list[str]:
    """The gold answers that read differently, the labels, the one label, or the number; none is an empty list."""
    if task.kind == "span":
        return list(dict.fromkeys(answer.text for answer in example.answers))
    if task.kind == "multilabel":
        return [task.labels[place] for place in example.labels or ()]
    label = float(example.label or 0.0)
    return [task.labels[int(label)] if task.kind == "classify" else f"{label:g}"]


def gold_text(task: Task, example: Example) -> str:
    """Answers of which any will do, or labels that all belong; nothing where there is none."""
    return (" / " if task.kind == "span" else ", ").join(gold_names(task, example))


def told(said: object) -> str:
    """An answer as one reads it; none is said in words."""
    if isinstance(said, list | tuple):
        return ", ".join(map(str, said)) or "no label"
    return str(said) or "no answer"
