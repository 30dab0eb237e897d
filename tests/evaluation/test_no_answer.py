"""The score at 0, at inner's threshold and at the oracle, as the official script has them."""

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


def test_all_three_are_what_the_official_definitions_give(
    span_heads: list[FittedHead], span_store: Store, span_task: Task
) -> None:
    examples = span_task["dev"]
    golds = {example.id: [answer.text for answer in example.answers] for example in examples}
    for one in predict(span_heads, span_store["dev"]):
        found = thresholds(span_task, score_predictions(span_task, one))
        decoded = decode(one.logits, one.table, len(examples))
        scores = {e.id: d.no_answer_score for e, d in zip(examples, decoded, strict=True)}
        always = answer_texts(decoded, examples, None)
        for at in ("zero", "fitted"):
            wanted = no_answer_scores(golds, always, scores, found[at]["threshold"])
            assert (found[at]["exact"], found[at]["f1"]) == pytest.approx((wanted["exact"], wanted["f1"]))
        assert found["zero"]["threshold"] == 0.0
        for name in ("best_exact", "best_f1"):
            assert found["oracle"][name] == pytest.approx(wanted[name])
            if wanted[f"{name}_thresh"] != 0:  # else silence is best
                assert found["oracle"][f"{name}_thresh"] == pytest.approx(wanted[f"{name}_thresh"])
        assert found["oracle"]["best_f1"] >= found["fitted"]["f1"] - 1e-9
        at_best = score_split(span_task, "dev", one.logits, one.table, found["oracle"]["best_f1_thresh"])
        assert at_best.scores["f1"] == pytest.approx(found["oracle"]["best_f1"])


CONTEXT = "red blue green"
OFFSETS = np.array([[NO_OFFSET] * 2, [0, 3], [4, 8], [9, 14]], np.int32)


def one_question(answer: str | None, no_answer: bool = True) -> tuple[Task, Predictions]:
    answers = () if answer is None else (Answer(answer, CONTEXT.index(answer)),)
    task = Task("colours", "span", {"dev": (Example("a", "which?", CONTEXT, answers),)}, "f1", no_answer=no_answer)
    logits: list[Any] = [np.array([[0, 0], [2, 2], [-9, -9], [-9, -9]], np.float32)]  # "red", sure of it
    table = WindowTable(np.array([0]), np.array([0]), [OFFSETS], np.zeros((1, 2)))
    return task, Predictions("x", "x", "head", "dev", logits, table)


def test_where_silence_is_best_the_oracles_threshold_silences() -> None:
    task, predictions = one_question(None)
    found = thresholds(task, score_predictions(task, predictions))
    assert "fitted" not in found  # there was no inner
    assert (found["zero"]["f1"], found["oracle"]["best_f1"]) == (0.0, 100.0)
    result = score_split(task, "dev", predictions.logits, predictions.table, found["oracle"]["best_f1_thresh"])
    assert result.answers == {"a": ""}


def test_other_tasks_have_no_such_threshold() -> None:
    task, predictions = one_question("red", no_answer=False)
    assert thresholds(task, score_predictions(task, predictions)) == {}
    scored = score_predictions(*one_question("red"))
    assert thresholds(task, replace(scored, result=replace(scored.result, example_scores=None))) == {}
