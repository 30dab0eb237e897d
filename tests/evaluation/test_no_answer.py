"""No-answer thresholds: scores at 0, at the threshold fitted on inner and at the oracle match the official script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.records import NO_OFFSET, Answer, Example, Predictions, WindowTable
from bertvision.evaluation.leaderboard import thresholds
from bertvision.evaluation.metrics.squad import no_answer_scores
from bertvision.evaluation.scoring import score_predictions, score_split
from bertvision.store.store import Store
from bertvision.tasks.span_decoding import answer_texts, decode
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict


def test_scores_at_all_thresholds_match_the_official_definitions(
    span_heads: list[FittedHead], span_store: Store, span_task: Task
) -> None:
    examples = span_task["dev"]
    golds = {example.id: [answer.text for answer in example.answers] for example in examples}
    for predictions in predict(span_heads, span_store["dev"]):
        result = thresholds(span_task, score_predictions(span_task, predictions))
        decoded = decode(predictions.logits, predictions.table, len(examples))
        scores = {e.id: d.no_answer_score for e, d in zip(examples, decoded, strict=True)}
        always = answer_texts(decoded, examples, None)
        for at in ("zero", "fitted"):
            wanted = no_answer_scores(golds, always, scores, result[at]["threshold"])
            assert (result[at]["exact"], result[at]["f1"]) == pytest.approx((wanted["exact"], wanted["f1"]))
        assert result["zero"]["threshold"] == 0.0
        for name in ("best_exact", "best_f1"):
            assert result["oracle"][name] == pytest.approx(wanted[name])
            if wanted[f"{name}_thresh"] != 0:  # otherwise answering nothing is best
                assert result["oracle"][f"{name}_thresh"] == pytest.approx(wanted[f"{name}_thresh"])
        assert result["oracle"]["best_f1"] >= result["fitted"]["f1"] - 1e-9
        at_best = score_split(
            span_task, "dev", predictions.logits, predictions.table, result["oracle"]["best_f1_thresh"]
        )
        assert at_best.scores["f1"] == pytest.approx(result["oracle"]["best_f1"])


CONTEXT = "red blue green"
OFFSETS = np.array([[NO_OFFSET] * 2, [0, 3], [4, 8], [9, 14]], np.int32)


def one_question(answer: str | None, no_answer: bool = True) -> tuple[Task, Predictions]:
    answers = () if answer is None else (Answer(answer, CONTEXT.index(answer)),)
    task = Task("colours", "span", {"dev": (Example("a", "which?", CONTEXT, answers),)}, "f1", no_answer=no_answer)
    logits: list[Any] = [np.array([[0, 0], [2, 2], [-9, -9], [-9, -9]], np.float32)]  # "red", sure of it
    table = WindowTable(np.array([0]), np.array([0]), [OFFSETS], np.zeros((1, 2)))
    return task, Predictions("x", "x", "head", "dev", logits, table)


def test_oracle_threshold_answers_nothing_if_that_is_best() -> None:
    task, predictions = one_question(None)
    by_threshold = thresholds(task, score_predictions(task, predictions))
    assert "fitted" not in by_threshold  # there was no inner
    assert (by_threshold["zero"]["f1"], by_threshold["oracle"]["best_f1"]) == (0.0, 100.0)
    result = score_split(task, "dev", predictions.logits, predictions.table, by_threshold["oracle"]["best_f1_thresh"])
    assert result.answers == {"a": ""}


def test_tasks_without_unanswerable_questions_have_no_thresholds() -> None:
    task, predictions = one_question("red", no_answer=False)
    assert thresholds(task, score_predictions(task, predictions)) == {}
    scored = score_predictions(*one_question("red"))
    assert thresholds(task, replace(scored, result=replace(scored.result, example_scores=None))) == {}
