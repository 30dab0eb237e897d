"""Calibration: temperatures are fitted on inner, errors are measured on dev, decisions do not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.records import Example, Predictions, WindowTable
from bertvision.evaluation.calibration import calibration, fit_temperatures, probabilities_and_outcomes, reliability
from bertvision.evaluation.scoring import score_predictions
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict

COUNT = 400
RANDOM = np.random.default_rng(0)


def table(count: int, targets: int = 1) -> WindowTable:
    none = [np.full((1, 2), -1, np.int32)] * count
    return WindowTable(np.arange(count), np.zeros(count, np.int64), none, np.zeros((count, targets)))


def overconfident(factor: float) -> tuple[list[Any], list[int]]:
    """Logits that are ``factor`` times as large as the labels, drawn from them, deserve."""
    logits = RANDOM.normal(size=(COUNT, 3)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (RANDOM.random((COUNT, 1)) > shares.cumsum(1)).sum(1)
    return list((factor * logits).astype(np.float32)), labels.tolist()


def labelled(labels: Sequence[int], split: str) -> tuple[Example, ...]:
    return tuple(Example(f"{split}{i}", "text", label=float(label)) for i, label in enumerate(labels))


def scored_labels(factor: float) -> Any:
    (inner, inner_gold), (dev, dev_gold) = overconfident(factor), overconfident(factor)
    splits = {"inner": labelled(inner_gold, "i"), "dev": labelled(dev_gold, "d")}
    task = Task("tones", "classify", splits, "accuracy", labels=("bad", "so", "good"))
    on_inner = Predictions("x", "x", "head", "inner", inner, table(COUNT), 3)
    return score_predictions(task, replace(on_inner, split="dev", logits=dev, inner=on_inner))


@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_label_temperature_fitted_on_inner_halves_the_error_on_dev(factor: float) -> None:
    scored = scored_labels(factor)
    fitted = calibration(scored)
    assert list(fitted) == ["label"]
    assert fitted["label"]["temperature"] == pytest.approx(factor, rel=0.3)
    assert fitted["label"]["ece"] < fitted["label"]["ece_raw"] / 2


def test_temperature_does_not_depend_on_dev() -> None:
    scored = scored_labels(2.0)
    before = calibration(scored)["label"]["temperature"]
    gold = scored.result.example_scores.gold
    relabelled = replace(scored.result, example_scores=replace(scored.result.example_scores, gold=(gold + 1) % 3))
    after = calibration(replace(scored, result=relabelled))["label"]
    assert after["temperature"] == before
    assert after["ece"] > 0.2


def test_reliability_bins_count_every_example_before_and_after_scaling() -> None:
    scored = scored_labels(3.0)
    (diagram,) = reliability(scored, calibration(scored))
    assert (diagram.name, diagram.seed, diagram.what) == ("x", 3, "label")
    for bins in (diagram.raw, diagram.calibrated):
        assert sum(count for *_, count in bins) == COUNT
        assert all(0 <= value <= 1 for confidence, accuracy, _ in bins for value in (confidence, accuracy))
    assert diagram.raw != diagram.calibrated


def test_temperature_is_one_if_inner_has_no_mistakes() -> None:
    scored = scored_labels(1.0)
    inner = scored.inner.example_scores
    flawless = replace(scored.inner, example_scores=replace(inner, gold=inner.outputs.argmax(1)))
    assert fit_temperatures(flawless) == {"label": 1.0}


def test_multilabel_calibration_treats_each_label_as_binary() -> None:
    logits = RANDOM.normal(size=(2, COUNT, 3)) * 2
    marks = RANDOM.random(logits.shape) < 1 / (1 + np.exp(-logits))
    examples = [
        tuple(Example(f"{s}{i}", "t", labels=tuple(np.flatnonzero(row).tolist())) for i, row in enumerate(marks[s]))
        for s in (0, 1)
    ]
    task = Task("sets", "multilabel", {"inner": examples[0], "dev": examples[1]}, "f1_micro", labels=("a", "b", "c"))
    rows = [list((2.5 * split_logits).astype(np.float32)) for split_logits in logits]
    inner = Predictions("x", "x", "head", "inner", rows[0], table(COUNT, 3))
    scored = score_predictions(task, replace(inner, split="dev", logits=rows[1], inner=inner))
    fitted = calibration(scored)["label"]
    assert fitted["temperature"] == pytest.approx(2.5, rel=0.15)
    assert fitted["ece"] < fitted["ece_raw"] / 2
    assert len(probabilities_and_outcomes(scored.result, "label", 1.0)[0]) == 3 * COUNT


def test_spans_have_an_answer_and_a_no_answer_temperature(
    span_heads: list[FittedHead], span_store: Store, span_task: Task
) -> None:
    for head, predictions in zip(span_heads, predict(span_heads, span_store["dev"]), strict=True):
        scored = score_predictions(span_task, predictions)
        fitted = calibration(scored)
        assert set(fitted) == {"answer", "no_answer"}
        assert head.temperatures == {what: values["temperature"] for what, values in fitted.items()}
        probability, missing = probabilities_and_outcomes(
            scored.result, "no_answer", fitted["no_answer"]["temperature"]
        )
        empty = [answer == "" for answer in scored.result.answers.values()]
        assert (probability > 0.5).tolist() == empty  # no temperature changes a decision
        assert missing.tolist() == [not example.answers for example in span_task["dev"]]
        confidence, right = probabilities_and_outcomes(scored.result, "answer", fitted["answer"]["temperature"])
        assert 100 * right.mean() == pytest.approx(scored.result.scores["exact"])
        assert ((confidence > 0) & (confidence <= 1)).all()


def test_task_without_unanswerable_questions_has_no_no_answer_temperature(
    span_heads: list[FittedHead], span_store: Store, span_task: Task
) -> None:
    scored = score_predictions(replace(span_task, no_answer=False), predict(span_heads[0], span_store["dev"])[0])
    assert list(calibration(scored)) == ["answer"]


def test_calibration_without_inner_is_empty() -> None:
    scored = scored_labels(2.0)
    assert calibration(replace(scored, inner=None)) == {}
