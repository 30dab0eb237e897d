"""From raw outputs to scores: merging of windows, thresholds fitted on inner, values on their own scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.records import FOLDS, NO_OFFSET, Answer, Example, Predictions, WindowTable
from bertvision.evaluation.scoring import (
    ScoredPredictions,
    SplitScores,
    example_outputs,
    score_inner,
    score_predictions,
    score_split,
)
from bertvision.tasks.task import Task

CONTEXT = "red blue green"
OFFSETS = np.array([[NO_OFFSET] * 2, [NO_OFFSET] * 2, [0, 3], [4, 8], [9, 14]], np.int32)  # CLS, question, 3 words


def question(name: str, answer: str | None) -> Example:
    answers = () if answer is None else (Answer(answer, CONTEXT.index(answer)),)
    return Example(name, "which?", CONTEXT, answers)


def span_task(**splits: tuple[Example, ...]) -> Task:
    return Task("colours", "span", {"train": (), "inner": (), "dev": (), **splits}, "f1", no_answer=True)


def word_logits(word: int, null: float, span: float = 0.0) -> Any:
    """Logits of a window: the word's token wins with ``span``, the CLS token has ``null``."""
    row = np.full((5, 2), -10.0, np.float32)
    row[2 + word] = span / 2
    row[0] = null / 2
    return row


def span_table(examples: Sequence[int]) -> WindowTable:
    count = len(examples)
    return WindowTable(np.array(examples), np.zeros(count, np.int64), [OFFSETS] * count, np.zeros((count, 2)))


INNER = (question("a", "red"), question("b", "blue"), question("c", None), question("d", None))
INNER_LOGITS = [word_logits(0, null=1.0), word_logits(1, null=3.0), word_logits(2, null=5.0), word_logits(2, null=8.0)]
"""No-answer scores 1, 3 (answerable, answered right) and 5, 8 (not answerable): the best cut is at 4."""


LABEL_SPLITS = {
    "train": tuple(Example(f"t{i}", "text", label=float(i % 10 == 0)) for i in range(160)),
    "inner": tuple(Example(f"i{i}", "text", label=float(i % 10 == 0)) for i in range(40)),
    "dev": tuple(Example(f"d{i}", "text", label=float(i % 2)) for i in range(50)),
}
TWO_LABELS = Task("rare", "classify", LABEL_SPLITS, "matthews_correlation", labels=("usual", "rare"))


def label_outputs(count: int, seed: int, weak: bool = True) -> list[Any]:
    """Outputs of a predictor that never gives the second label more than the first, in no particular order."""
    random = np.random.default_rng(seed)
    return [np.array([3.0 if weak else 0.0, value], np.float32) for value in random.uniform(-1, 1, count)]


def label_table(count: int) -> WindowTable:
    return WindowTable(
        np.arange(count), np.zeros(count, np.int64), [np.zeros((1, 2), np.int32)] * count, np.zeros((count, 1))
    )


@pytest.mark.parametrize("metric", ["matthews_correlation", "f1", "macro_f1"])
@pytest.mark.parametrize("weak", [True, False])
def test_second_of_two_labels_is_predicted_as_often_as_it_occurs(metric: str, weak: bool) -> None:
    task, outputs = replace(TWO_LABELS, metric=metric), label_outputs(200, 0, weak)
    result = score_inner(task, outputs, label_table(200), FOLDS)
    predicted = [name for name, answer in result.answers.items() if answer == "rare"]
    assert len(predicted) == sum(example.label == 1 for example in task[FOLDS]) == 20
    margins = {example.id: row[1] - row[0] for example, row in zip(task[FOLDS], outputs, strict=True)}
    assert result.threshold is not None
    assert min(margins[name] for name in predicted) >= result.threshold
    assert max(margins[name] for name in margins if name not in predicted) < result.threshold


@pytest.mark.parametrize("classes", [2, 3])
def test_label_threshold_is_for_two_labels_other_metrics_than_accuracy_and_folds(classes: int) -> None:
    outputs = [np.append(row, np.full(classes - 2, -9.0)).astype(np.float32) for row in label_outputs(200, 0)]
    names = ("usual", "rare", "other")[:classes]
    accuracy, macro = (replace(TWO_LABELS, metric=metric, labels=names) for metric in ("accuracy", "macro_f1"))
    cases = [(accuracy, FOLDS), (macro, "inner")] + ([(macro, FOLDS)] if classes == 3 else [])
    for task, split in cases:
        count = len(task[split])
        result = score_inner(task, outputs[:count], label_table(count), split)
        assert result.threshold is None
        assert set(result.answers.values()) == {"usual"}


def test_label_threshold_of_the_validation_split_is_used_on_dev() -> None:
    table = label_table(200)
    inner = Predictions("p", "p", "head", FOLDS, label_outputs(200, 0), table)
    dev = replace(inner, split="dev", logits=label_outputs(50, 1), table=label_table(50), inner=inner)
    scored = score_predictions(TWO_LABELS, dev)
    assert scored.inner is not None
    assert scored.result.threshold == scored.inner.threshold
    margins = np.array([row[1] - row[0] for row in dev.logits])
    expected = np.where(margins >= (scored.inner.threshold or 0), "rare", "usual").tolist()
    assert list(scored.result.answers.values()) == expected
    assert {"usual", "rare"} == set(expected)
    assert scored.result.scores != score_split(TWO_LABELS, "dev", dev.logits, dev.table).scores


def test_threshold_is_fitted_on_inner() -> None:
    result = score_inner(span_task(inner=INNER), INNER_LOGITS, span_table(range(4)))
    assert result.threshold == pytest.approx(4.0, abs=0.01)
    assert result.answers == {"a": "red", "b": "blue", "c": "", "d": ""}
    assert result.scores["f1"] == result.scores["exact"] == 100.0


def test_given_threshold_is_not_fitted() -> None:
    task = replace(span_task(inner=INNER, dev=INNER), threshold=2.0)
    result = score_inner(task, INNER_LOGITS, span_table(range(4)))
    assert (result.threshold, result.answers) == (2.0, {"a": "red", "b": "", "c": "", "d": ""})
    alone = Predictions("x", "x", "head", "dev", INNER_LOGITS, span_table(range(4)))
    for predictions in (alone, replace(alone, inner=inner_predictions())):
        assert score_predictions(task, predictions).result.threshold == 2.0


def inner_predictions() -> Predictions:
    return Predictions("x", "x", "head", "inner", INNER_LOGITS, span_table(range(4)))


def test_dev_is_scored_at_the_threshold_of_inner() -> None:
    dev = (question("e", "green"), question("f", None))
    # Best for dev would be any cut above 6; at 4 the first goes unanswered.
    logits = [word_logits(2, null=6.0), word_logits(0, null=9.0)]
    predictions = Predictions("x", "x", "head", "dev", logits, span_table(range(2)), inner=inner_predictions())
    scored = score_predictions(span_task(inner=INNER, dev=dev), predictions)
    assert scored.result.threshold == pytest.approx(4.0, abs=0.01)
    assert scored.result.answers == {"e": "", "f": ""}
    assert scored.result.scores["f1"] == 50.0
    assert scored.selection_score("f1") == 100.0  # inner's


def test_without_inner_the_threshold_is_zero_and_selection_uses_the_split() -> None:
    dev = (question("e", "green"), question("f", None))
    predictions = Predictions(
        "x", "x", "head", "dev", [word_logits(2, null=-0.5), word_logits(0, null=0.5)], span_table(range(2))
    )
    scored = score_predictions(span_task(dev=dev), predictions)
    assert (scored.inner, scored.result.threshold) == (None, 0.0)
    assert scored.result.answers == {"e": "green", "f": ""}
    assert scored.selection_score("f1") == 100.0


def test_task_without_unanswerable_questions_has_no_threshold() -> None:
    task = replace(span_task(inner=INNER[:2]), no_answer=False)
    result = score_inner(task, [word_logits(0, null=50.0), word_logits(1, null=50.0)], span_table(range(2)))
    assert result.threshold is None
    assert result.answers == {"a": "red", "b": "blue"}


def test_windows_of_one_question_are_merged() -> None:
    """Best span over all windows; null score the smallest of them."""
    logits = [word_logits(0, null=9.0, span=1.0), word_logits(1, null=2.0, span=3.0)]
    result = score_split(span_task(dev=(question("b", "blue"),)), "dev", logits, span_table([0, 0]), threshold=-0.5)
    assert result.answers == {"b": "blue"}  # 2 - 3 = -1 <= -0.5
    result = score_split(span_task(dev=(question("b", "blue"),)), "dev", logits, span_table([0, 0]), threshold=-1.5)
    assert result.answers == {"b": ""}


def test_question_without_a_window_counts_as_unanswered() -> None:
    examples = (*INNER, question("long", "red"))
    result = score_inner(span_task(inner=examples), INNER_LOGITS, span_table(range(4)))
    assert result.answers["long"] == ""
    assert result.threshold is not None
    assert np.isfinite(result.threshold)
    assert result.scores["f1"] == 80.0


LABELS = Task("tones", "classify", {"train": (), "inner": (), "dev": ()}, "accuracy", labels=("bad", "so", "good"))


def labelled(values: Sequence[float]) -> tuple[Example, ...]:
    return tuple(Example(str(i), "text", label=float(value)) for i, value in enumerate(values))


def text_table(examples: Sequence[int]) -> WindowTable:
    count = len(examples)
    offsets = [np.full((1, 2), NO_OFFSET, np.int32)] * count
    return WindowTable(np.array(examples), np.zeros(count, np.int64), offsets, np.zeros((count, 1)))


def rows(values: Sequence[Sequence[float]]) -> list[Any]:
    return [np.array(row, np.float32) for row in values]


def test_labels_are_picked_by_the_largest_output() -> None:
    task = replace(LABELS, splits={"dev": labelled([2, 0, 1])})
    result = score_split(task, "dev", rows([[0, 1, 5], [1, 0, -1], [3, 2, 1]]), text_table(range(3)))
    assert result.answers == {"0": "good", "1": "bad", "2": "bad"}
    assert result.scores["accuracy"] == pytest.approx(200 / 3)
    assert result.threshold is None


def test_values_are_rescaled_to_the_data() -> None:
    splits = {"inner": labelled([10.0, 30.0, 20.0])}
    task = Task("numbers", "regress", splits, "pearson", center=20.0, spread=10.0)
    result = score_inner(task, rows([[-1.0], [1.0], [0.5]]), text_table(range(3)))
    assert result.answers == {"0": 10.0, "1": 30.0, "2": 25.0}
    assert result.scores["rmse"] == pytest.approx((25 / 3) ** 0.5)
    assert result.threshold is None


def test_output_of_an_example_is_the_mean_over_its_windows() -> None:
    outputs = example_outputs(rows([[1, 2], [5, 0], [3, 4]]), text_table([2, 0, 2]), examples=4)
    assert outputs.tolist() == [[5, 0], [0, 0], [2, 3], [0, 0]]
    assert outputs.dtype == np.float64


def test_selection_score_is_that_of_inner_if_there_is_one() -> None:
    shown, inner = SplitScores({"f1": 90.0}, None, {}), SplitScores({"f1": 10.0}, None, {})
    assert ScoredPredictions(inner_predictions(), shown, inner).selection_score("f1") == 10.0
    assert ScoredPredictions(inner_predictions(), shown, None).selection_score("f1") == 90.0
