"""The leaderboard: ranked on inner, scored on dev as the official definitions say, printed as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Example, Predictions, Row, WindowTable
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.leaderboard import baseline, build_leaderboard, evaluate
from bertvision.evaluation.metrics.labels import classification_scores
from bertvision.evaluation.metrics.squad import squad_scores
from bertvision.evaluation.scoring import score_predictions
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.fit import fit
from bertvision.training.predict import predict, predict_own

EXAMPLES = tuple(Example(str(i), "text", label=float(i % 2)) for i in range(4))
TASK = Task("tones", "classify", {"train": (), "inner": EXAMPLES, "dev": EXAMPLES}, "accuracy", labels=("no", "yes"))
TABLE = WindowTable(np.arange(4), np.zeros(4, np.int64), [np.full((1, 2), -1, np.int32)] * 4, np.zeros((4, 1)))


def rows(right: int) -> list[Any]:
    """Outputs of which the first ``right`` pick the gold label."""
    picked = [i % 2 if i < right else 1 - i % 2 for i in range(4)]
    return [np.eye(2, dtype=np.float32)[label] for label in picked]


def predictions(name: str, inner: int, dev: int) -> Predictions:
    facts: dict[str, Any] = {"seed": 1, "parameters": 50, "encoder_parameters": 1000, "seconds": 2.0}
    on_inner = Predictions(name, name, "head", "inner", rows(inner), TABLE, **facts)
    return Predictions(name, name, "head", "dev", rows(dev), TABLE, **facts, inner=on_inner)


def test_rows_are_ranked_by_inner_not_by_dev() -> None:
    board = evaluate([predictions("a", 2, 4), predictions("b", 4, 1), predictions("c", 3, 3)], TASK)
    assert [row.name for row in board.rows] == ["b", "c", "a"]
    assert [row.scores["accuracy"] for row in board.rows] == [25.0, 75.0, 100.0]
    assert [row.inner["accuracy"] for row in board.rows] == [100.0, 75.0, 50.0]
    assert (board.task, board.split, board.metric) == ("tones", "dev", "accuracy")


def test_row_records_parameters_and_seconds() -> None:
    row = evaluate(predictions("a", 4, 4), TASK).rows[0]
    assert (row.parameters, row.percent, row.seconds, row.seed, row.kind) == (50, 5.0, 2.0, 1, "head")
    assert evaluate(replace(predictions("a", 4, 4), encoder_parameters=0), TASK).rows[0].percent == 0.0


def test_ties_are_ordered_by_parameters_then_name() -> None:
    equal = [predictions(name, 3, 3) for name in ("d", "b", "c")]
    small = replace(predictions("e", 3, 3), parameters=7)
    assert [row.name for row in evaluate([*equal, small], TASK).rows] == ["e", "b", "c", "d"]


def test_table_is_aligned_and_complete() -> None:
    text = str(evaluate([predictions("a-long-name", 2, 4), predictions("b", 4, 1)], TASK))
    lines = text.splitlines()[:3]
    assert len({len(line) for line in lines}) == 1
    assert "accuracy 95 %" in lines[0]
    assert "inner accuracy" in lines[0]
    assert lines[1].startswith("b ")
    assert "25.00" in lines[1]


@pytest.mark.parametrize(
    ("metric", "name"),
    [("accuracy", "always no"), ("macro_f1", "always no"), ("matthews_correlation", "always no"), ("f1", "always yes")],
)
def test_baseline_is_the_best_constant_label_on_train_for_the_metric(metric: str, name: str) -> None:
    train = tuple(Example(str(i), "text", label=float(i < 2)) for i in range(10))
    task = replace(TASK, splits={**TASK.splits, "train": train}, metric=metric)
    got, scores = baseline(task, "dev")
    assert got == name
    always = [1 if name == "always yes" else 0] * 4
    assert scores == classification_scores([int(example.label or 0) for example in EXAMPLES], always, 2)


def test_rows_of_the_control_are_marked_and_a_row_is_recommended() -> None:
    members = [score_predictions(TASK, predictions(name, right, 3)) for name, right in (("a", 2), ("b", 4), ("c", 1))]
    board = build_leaderboard(members, TASK, control="c")
    assert {row.name: row.control for row in board.rows} == {"a": False, "b": False, "c": True}
    assert (board.control, board.recommended, board.best_head) == ("c", "b@1", "b")
    assert build_leaderboard(members, TASK).control == "probe:layers=last1"
    assert not any(row.control for row in build_leaderboard(members, TASK).rows)


def test_missing_or_mixed_splits_are_refused() -> None:
    with pytest.raises(BadInput, match="predictions of one split, got none"):
        evaluate([], TASK)
    on_dev = predictions("a", 2, 4)
    assert on_dev.inner is not None
    with pytest.raises(BadInput, match="predictions of one split, got dev, inner"):
        evaluate([on_dev, on_dev.inner], TASK)


def by_name(store: Store, task: Task) -> tuple[list[Predictions], dict[str, Row]]:
    predictors = predict(fit(["probe", "compress:size=4"], store, epochs=2, lr=1e-2, batch=8), store["dev"])
    predictors.append(predict_own(store["dev"]))
    predictors += [ensemble(predictors[:2], how) for how in ("mean", "fitted")]
    return predictors, {row.name: row for row in evaluate(predictors, task).rows}


def test_span_rows_have_the_official_squad_scores(span_store: Store, span_task: Task) -> None:
    predictors, rows = by_name(span_store, span_task)
    assert len(rows) == len(predictors) == 5
    golds = {example.id: [answer.text for answer in example.answers] for example in span_task["dev"]}
    for predictor in predictors:
        scored = score_predictions(span_task, predictor)
        answers = {key: str(answer) for key, answer in scored.result.answers.items()}
        assert rows[predictor.name].scores == squad_scores(golds, answers)
        assert rows[predictor.name].threshold == scored.inner.threshold if scored.inner else False
        assert {"exact", "f1", "HasAns_f1", "NoAns_f1"} <= set(rows[predictor.name].scores)


def test_ensemble_row_records_the_members_and_weights_to_rebuild_it(value_store: Store, value_task: Task) -> None:
    predictors, rows = by_name(value_store, value_task)
    row = rows["fitted(probe@0 + compress:size=4@0)"]
    assert row.members == ("probe@0", "compress:size=4@0")
    assert len(row.weights) == 2
    combined = sum(
        w * np.stack(list(predictor.logits)) for w, predictor in zip(row.weights, predictors[:2], strict=True)
    )
    np.testing.assert_allclose(np.stack(list(predictors[-1].logits)), combined, atol=1e-5)
    assert row.parameters == predictors[0].parameters + predictors[1].parameters
