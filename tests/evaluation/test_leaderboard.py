"""The leaderboard: ranked on inner, scored on dev as the official definitions say, printed as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Example, Predictions, Row, WindowTable
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.leaderboard import evaluate
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


def test_rows_are_ranked_by_inner_and_not_by_what_is_shown() -> None:
    board = evaluate([predictions("a", 2, 4), predictions("b", 4, 1), predictions("c", 3, 3)], TASK)
    assert [row.name for row in board.rows] == ["b", "c", "a"]
    assert [row.scores["accuracy"] for row in board.rows] == [25.0, 75.0, 100.0]
    assert [row.inner["accuracy"] for row in board.rows] == [100.0, 75.0, 50.0]
    assert (board.task, board.split, board.metric) == ("tones", "dev", "accuracy")


def test_a_row_tells_what_the_predictor_cost() -> None:
    row = evaluate(predictions("a", 4, 4), TASK).rows[0]
    assert (row.parameters, row.percent, row.seconds, row.seed, row.kind) == (50, 5.0, 2.0, 1, "head")
    assert evaluate(replace(predictions("a", 4, 4), encoder_parameters=0), TASK).rows[0].percent == 0.0


def test_of_equally_good_rows_the_smaller_comes_first_then_the_name() -> None:
    equal = [predictions(name, 3, 3) for name in ("d", "b", "c")]
    small = replace(predictions("e", 3, 3), parameters=7)
    assert [row.name for row in evaluate([*equal, small], TASK).rows] == ["e", "b", "c", "d"]


def test_the_table_is_aligned_and_complete() -> None:
    text = str(evaluate([predictions("a-long-name", 2, 4), predictions("b", 4, 1)], TASK))
    lines = text.splitlines()[:3]
    assert len({len(line) for line in lines}) == 1
    assert "accuracy 95 %" in lines[0]
    assert "inner accuracy" in lines[0]
    assert lines[1].startswith("b ")
    assert "25.00" in lines[1]


def test_what_is_no_leaderboard_is_said() -> None:
    with pytest.raises(BadInput, match="predictions of one split, got none"):
        evaluate([], TASK)
    one = predictions("a", 2, 4)
    assert one.inner is not None
    with pytest.raises(BadInput, match="predictions of one split, got dev, inner"):
        evaluate([one, one.inner], TASK)


def by_name(store: Store, task: Task) -> tuple[list[Predictions], dict[str, Row]]:
    found = predict(fit(["probe", "compress:size=4"], store, epochs=2, lr=1e-2, batch=8), store["dev"])
    found.append(predict_own(store["dev"]))
    found += [ensemble(found[:2], how) for how in ("mean", "fitted")]
    return found, {row.name: row for row in evaluate(found, task).rows}


def test_spans_are_scored_as_the_official_script_scores_their_answers(span_store: Store, span_task: Task) -> None:
    found, rows = by_name(span_store, span_task)
    assert len(rows) == len(found) == 5
    golds = {example.id: [answer.text for answer in example.answers] for example in span_task["dev"]}
    for one in found:
        scored = score_predictions(span_task, one)
        answers = {key: str(answer) for key, answer in scored.result.answers.items()}
        assert rows[one.name].scores == squad_scores(golds, answers)
        assert rows[one.name].threshold == scored.inner.threshold if scored.inner else False
        assert {"exact", "f1", "HasAns_f1", "NoAns_f1"} <= set(rows[one.name].scores)


def test_an_ensembles_row_can_be_rebuilt_from_it(value_store: Store, value_task: Task) -> None:
    found, rows = by_name(value_store, value_task)
    row = rows["fitted(probe@0 + compress:size=4@0)"]
    assert row.members == ("probe@0", "compress:size=4@0")
    assert len(row.weights) == 2
    mixed = sum(w * np.stack(list(one.logits)) for w, one in zip(row.weights, found[:2], strict=True))
    np.testing.assert_allclose(np.stack(list(found[-1].logits)), mixed, atol=1e-5)
    assert row.parameters == found[0].parameters + found[1].parameters
