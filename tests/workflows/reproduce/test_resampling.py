"""Whether anything was learned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bertvision.evaluation.comparison import Comparison
from bertvision.tasks.task import Task
from bertvision.workflows.reproduce.resampling import constant_answer_score, has_learned

COUNT, POSITIVE = 200, 140


@pytest.fixture
def uneven(label_task: Task) -> Task:
    """Two labels, seven in ten of dev are of the second, which F1 is of."""
    one = label_task["dev"][0]
    dev = tuple(
        replace(one, id=f"d{i}", text=f"{one.text} {i}", pair=None, label=float(i < POSITIVE)) for i in range(COUNT)
    )
    return replace(label_task, metric="f1", labels=("no", "yes"), splits={**label_task.splits, "dev": dev})


def test_one_answer_to_everything_is_nothing_learned(uneven: Task) -> None:
    comparison = Comparison(uneven, "dev")
    assert constant_answer_score(comparison)[0] == pytest.approx(100 * 2 * POSITIVE / (POSITIVE + COUNT))
    assert not has_learned([{f"d{i}": "yes" for i in range(COUNT)}], uneven)


def test_of_labels_who_tells_them_apart_has_learned_even_if_f1_is_lower(uneven: Task) -> None:
    # Half of the positive and nine in ten of the others are recognised: F1 66, one answer to everything has 82.
    answers = {f"d{i}": "yes" if i < POSITIVE / 2 or i >= COUNT - 6 else "no" for i in range(COUNT)}
    assert has_learned([answers], uneven)
    chance = {f"d{i}": "yes" if i % 2 else "no" for i in range(COUNT)}
    assert not has_learned([chance], uneven)
