"""Paired tests of leaderboard rows match naive implementations and are Holm-corrected together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metric_oracles import bootstrap_interval, paired_test

from bertvision.core.errors import BadInput
from bertvision.core.leaderboard_text import board_document, board_notes
from bertvision.core.records import CONTROL, Board, Example, Predictions, WindowTable
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.leaderboard import advise, build_leaderboard, compare, evaluate
from bertvision.evaluation.metrics.bootstrap import holm
from bertvision.evaluation.scoring import score_predictions
from bertvision.runs.reader import group_rows, read_board
from bertvision.tasks.task import Task

COUNT = 120
GOLD = [i % 2 for i in range(COUNT)]
EXAMPLES = tuple(Example(str(i), "text", label=float(gold)) for i, gold in enumerate(GOLD))
TASK = Task("tones", "classify", {"train": (), "inner": EXAMPLES, "dev": EXAMPLES}, "accuracy", labels=("no", "yes"))


def table(count: int = COUNT) -> WindowTable:
    none = [np.full((1, 2), -1, np.int32)] * count
    return WindowTable(np.arange(count), np.zeros(count, np.int64), none, np.zeros((count, 1)))


def marks(wrong: int, seed: int) -> list[Any]:
    """Outputs that pick the gold label except for so many of the examples."""
    chosen = set(np.random.default_rng(seed).permutation(COUNT)[:wrong].tolist())
    picked = [1 - gold if i in chosen else gold for i, gold in enumerate(GOLD)]
    return [np.eye(2, dtype=np.float32)[label] for label in picked]


def predictor(name: str, wrong: int, seed: int | None = 0, kind: Any = "head", inner: int | None = None) -> Predictions:
    draw = sum(map(ord, name)) + (seed or 0)
    on_inner = Predictions(name, name, kind, "inner", marks(wrong if inner is None else inner, draw), table(), seed)
    return replace(on_inner, split="dev", logits=marks(wrong, draw), inner=on_inner)


PREDICTIONS = [
    predictor("good", 6, 0),
    predictor("good", 8, 1),
    predictor("poor", 45, 0),
    predictor("poor", 50, 1),
    predictor(CONTROL, 10, 0),
    predictor("encoder", 40, None, "encoder"),
    predictor("mixed", 7, None, "ensemble"),
]


def mean_correctness(name: str) -> Any:
    """Right (1) or wrong (0) by example, averaged over the seeds of a predictor."""
    correct = [
        np.stack(list(predictions.logits)).argmax(1) == np.array(GOLD)
        for predictions in PREDICTIONS
        if predictions.name == name
    ]
    return np.mean(correct, axis=0)


def paired_tests(board: Board) -> dict[tuple[str, str], Any]:
    return {(test.a, test.b): test for test in board.comparisons}


def test_every_pair_is_compared_once_with_the_best_head_first() -> None:
    board = evaluate(PREDICTIONS, TASK)
    assert board.best_head == "good"
    pairs = list(paired_tests(board))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == 4 + 3 + 2
    assert {b for a, b in pairs if a == "good"} == {"poor", CONTROL, "encoder", "mixed"}
    assert {a for a, b in pairs if b == "encoder"} == {"good", "poor", CONTROL, "mixed"}
    assert {a for a, b in pairs if b == CONTROL} == {"good", "poor", "mixed"}


def test_another_control() -> None:
    scored = [score_predictions(TASK, predictions) for predictions in PREDICTIONS]
    board = build_leaderboard(scored, TASK, control="poor")
    pairs = set(map(frozenset, paired_tests(board)))
    assert {frozenset(("poor", name)) for name in ("good", CONTROL, "encoder", "mixed")} <= pairs
    assert {CONTROL, "mixed"} not in pairs
    assert "the control, poor, has 60.42 (significantly better" in advise(board)
    assert any(note.startswith("vs. the control") and CONTROL in note for note in board_notes(board))
    assert {line.name for line in group_rows(board) if line.kind == "control"} == {"poor"}
    for made in (board, build_leaderboard(scored, TASK)):
        document = json.loads(json.dumps(board_document(made)))
        assert ("control" in document) == (made is board), "files without one are those of the first control"
        assert read_board(Path("leaderboard.json"), document).control == made.control


def test_comparison_is_the_paired_test_of_the_means_over_seeds() -> None:
    tests = paired_tests(evaluate(PREDICTIONS, TASK))
    for (a, b), test in tests.items():
        expected = paired_test(mean_correctness(a), mean_correctness(b))
        assert test.difference == pytest.approx(100 * expected.difference)
        assert test.p == expected.p
        assert expected.interval is not None
        assert (test.low, test.high) == pytest.approx((100 * expected.interval.low, 100 * expected.interval.high))
    assert tests["good", "poor"].a_seeds == tests["good", "poor"].b_seeds == (0, 1)
    assert tests["good", "encoder"].b_seeds == ()


def test_p_values_are_holm_corrected_over_all_comparisons() -> None:
    board = evaluate(PREDICTIONS, TASK)
    assert [test.p_holm for test in board.comparisons] == holm([test.p for test in board.comparisons])
    tests = paired_tests(board)
    assert tests["good", "encoder"].p_holm < 0.05
    assert tests["good", "mixed"].p_holm > 0.05


def test_rows_and_means_over_seeds_have_bootstrap_intervals() -> None:
    board = evaluate(PREDICTIONS, TASK)
    for row in board.rows:
        assert row.interval is not None
        assert row.interval[0] <= row.scores["accuracy"] <= row.interval[1]
    summaries = {summary.name: summary for summary in board.summary}
    expected = bootstrap_interval(mean_correctness("good"))
    assert expected is not None
    assert summaries["good"].interval == pytest.approx((100 * expected.low, 100 * expected.high))
    assert (summaries["good"].seeds, summaries["encoder"].seeds) == ((0, 1), ())
    assert summaries["good"].mean == pytest.approx(100 * mean_correctness("good").mean())
    scores = [row.scores["accuracy"] for row in board.rows if row.name == "good"]
    assert summaries["good"].std == pytest.approx(np.std(scores, ddof=1))
    assert summaries["encoder"].std is None
    assert board.resampling_info == {
        "level": 0.95,
        "draws": 2000,
        "clusters": COUNT,
        "of": "rows",
        "seeds_vary": "head",
    }


def test_perfect_score_has_an_interval_reaching_below_100_percent() -> None:
    """With 120 of 120 right, the true accuracy may still be 97 %: 0.97 ** 120 = 0.025."""
    board = evaluate([predictor("perfect", 0), predictor("encoder", 40, None, "encoder")], TASK)
    perfect = next(row for row in board.rows if row.name == "perfect")
    summary = next(summary for summary in board.summary if summary.name == "perfect")
    assert perfect.interval == summary.interval
    assert perfect.interval is not None
    assert perfect.interval == pytest.approx((96.97, 100.0), abs=0.01)


def test_questions_on_one_context_are_resampled_together() -> None:
    grouped = tuple(replace(e, pair=f"context {i // 10}", group="article") for i, e in enumerate(EXAMPLES))
    task = replace(TASK, splits={**TASK.splits, "dev": grouped})
    board = evaluate(PREDICTIONS, task)
    assert (board.resampling_info["clusters"], board.resampling_info["of"]) == (12, "contexts")
    clustered, independent = (paired_tests(evaluate(PREDICTIONS, t))["good", "poor"] for t in (task, TASK))
    assert clustered.difference == independent.difference
    assert (clustered.low, clustered.high) != (independent.low, independent.high)
    single_context = replace(
        TASK, splits={**TASK.splits, "dev": tuple(replace(e, pair="c", group="a") for e in EXAMPLES)}
    )
    single_context_board = evaluate(PREDICTIONS, single_context)
    assert single_context_board.rows[0].interval is None
    assert {(test.low, test.high) for test in single_context_board.comparisons} == {(None, None)}


@pytest.mark.parametrize("metric", ["f1", "macro_f1", "matthews_correlation"])
def test_metric_that_is_not_a_mean_is_tested_with_the_best_seed_on_inner(metric: str) -> None:
    seeds = [predictor("good", 4, 0, inner=9), predictor("good", 20, 1, inner=2), predictor(CONTROL, 40)]
    board = evaluate(seeds, replace(TASK, metric=metric))
    (test,) = board.comparisons
    assert (test.a, test.b, test.a_seeds) == ("good", CONTROL, (1,))
    scores = {(row.name, row.seed): row.scores[metric] for row in board.rows}
    assert test.difference == pytest.approx(scores["good", 1] - scores[CONTROL, 0])
    assert test.low is not None
    assert test.low <= test.difference <= test.high
    summary = next(summary for summary in board.summary if summary.name == "good")
    assert summary.mean == pytest.approx((scores["good", 0] + scores["good", 1]) / 2)
    assert summary.interval is not None
    assert summary.interval[0] <= summary.mean <= summary.interval[1]


@pytest.mark.parametrize("metric", ["pearson", "spearmanr"])
def test_values_are_compared_by_their_correlation(metric: str) -> None:
    random = np.random.default_rng(0)
    gold = random.normal(size=COUNT)
    examples = tuple(Example(str(i), "text", label=float(value)) for i, value in enumerate(gold))
    task = Task("numbers", "regress", {"inner": examples, "dev": examples}, metric)

    def outputs(name: str, noise: float) -> Predictions:
        logits = [np.array([v], np.float32) for v in gold + noise * random.normal(size=COUNT)]
        inner = Predictions(name, name, "head", "inner", logits, table(), 0)
        return replace(inner, split="dev", inner=inner)

    board = evaluate([outputs("good", 0.3), outputs(CONTROL, 3.0)], task)
    assert board.comparisons[0].p < 0.01
    assert board.comparisons[0].difference > 0
    assert board.rows[0].calibration == board.rows[0].thresholds == {}
    assert board.reliability == ()


def test_metric_that_cannot_be_resampled_has_no_seed_groups() -> None:
    comparison = Comparison(replace(TASK, metric="beauty"), "dev")
    assert comparison.seed_groups([]) == []


def test_compare_gives_the_test_of_the_leaderboard() -> None:
    by_name = {
        name: [predictions for predictions in PREDICTIONS if predictions.name == name]
        for name in ("good", "poor", "encoder")
    }
    result = compare(by_name["good"], by_name["encoder"], TASK)
    on_board = paired_tests(evaluate(PREDICTIONS, TASK))["good", "encoder"]
    assert (result.difference, result.p, result.low, result.high) == pytest.approx(
        (on_board.difference, on_board.p, on_board.low, on_board.high)
    )
    reversed_result = compare(by_name["encoder"], by_name["good"], TASK)
    assert (reversed_result.difference, reversed_result.p) == pytest.approx((-result.difference, result.p))
    with_itself = compare(PREDICTIONS[0], PREDICTIONS[0], TASK)
    assert (with_itself.difference, with_itself.p) == (0.0, 1.0)
    with pytest.raises(BadInput, match="compare needs two predictors and a metric that can be resampled, got metric"):
        compare([PREDICTIONS[0], PREDICTIONS[2]], PREDICTIONS[5], TASK)
