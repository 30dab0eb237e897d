"""One predictor's answers to a split, graded example by example: the input of most analyses."""

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
"""By kind of task: the per-example mean that means "correct", and the one used as score."""


@dataclass(frozen=True)
class Answers:
    """Graded answers of one predictor, in the order of the examples."""

    name: str
    kind: str  # encoder, head or ensemble
    answers: tuple[Any, ...]
    right: NDArray[np.bool_]  # (examples,)
    score: NDArray[np.float64]  # (examples,) in 0..1: F1 for spans, else 0 or 1
    places: Mapping[str, Sequence[int]] | None = None  # spans by example id: start and end; None if not saved


def grade_answers(
    task: Task,
    split: str,
    name: str,
    kind: str,
    answers: Mapping[str, Any],
    places: Mapping[str, Sequence[int]] | None = None,
) -> Answers:
    """Grade predicted answers (example id -> answer); not defined for regression."""
    right, score = MEANS[task.kind]
    means = score_answers(task, split, answers).means
    ordered = tuple(answers[example.id] for example in task[split])
    return Answers(name, kind, ordered, means[right] == 1.0, means[score], places)


def context_word_counts(examples: Sequence[Example]) -> list[int]:
    """Number of words of each question's context, or of all texts of a labelled example."""
    counts = []
    for example in examples:
        is_question = example.label is None and example.labels is None
        text = (example.pair or "") if is_question else f"{example.text} {example.pair or ''}"
        counts.append(len(text.split()))
    return counts


def gold_names(task: Task, example: Example) -> list[str]:
    """Distinct gold answers, the labels, or the formatted value; empty for no answer."""
    if task.kind == "span":
        return list(dict.fromkeys(answer.text for answer in example.answers))
    if task.kind == "multilabel":
        return [task.labels[index] for index in example.labels or ()]
    label = float(example.label or 0.0)
    return [task.labels[int(label)] if task.kind == "classify" else f"{label:g}"]


def gold_text(task: Task, example: Example) -> str:
    """Alternative answers joined by " / ", or labels joined by commas."""
    return (" / " if task.kind == "span" else ", ").join(gold_names(task, example))


def format_answer(answer: object) -> str:
    """An answer as text; an empty one reads "no label" or "no answer"."""
    if isinstance(answer, list | tuple):
        return ", ".join(map(str, answer)) or "no label"
    return str(answer) or "no answer"
