"""``has_learned``: whether answers are better than a constant answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bertvision.evaluation.comparison import Comparison
from bertvision.tasks.task import Task
from bertvision.workflows.reproduce.resampling import constant_answer_score, has_learned

COUNT, POSITIVE = 200, 140


@pytest.fixture
def imbalanced_task(label_task: Task) -> Task:
    """Two labels; seven in ten dev examples have the second, which is the positive label of F1."""
    example = label_task["dev"][0]
    dev = tuple(
        replace(example, id=f"d{i}", text=f"{example.text} {i}", pair=None, label=float(i < POSITIVE))
        for i in range(COUNT)
    )
    return replace(label_task, metric="f1", labels=("no", "yes"), splits={**label_task.splits, "dev": dev})


def test_constant_answers_have_not_learned(imbalanced_task: Task) -> None:
    comparison = Comparison(imbalanced_task, "dev")
    assert constant_answer_score(comparison)[0] == pytest.approx(100 * 2 * POSITIVE / (POSITIVE + COUNT))
    assert not has_learned([{f"d{i}": "yes" for i in range(COUNT)}], imbalanced_task)


def test_answers_that_separate_labels_have_learned_despite_lower_f1(imbalanced_task: Task) -> None:
    # Half of the positives and nine in ten negatives are correct: F1 is 66, that of the constant answer 82.
    answers = {f"d{i}": "yes" if i < POSITIVE / 2 or i >= COUNT - 6 else "no" for i in range(COUNT)}
    assert has_learned([answers], imbalanced_task)
    chance = {f"d{i}": "yes" if i % 2 else "no" for i in range(COUNT)}
    assert not has_learned([chance], imbalanced_task)
