"""Which differences are real: found where there is one, not where there is none, and corrected together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from metric_oracles import bootstrap_interval, paired_test

from bertvision.core.errors import BadInput
from bertvision.core.records import CONTROL, Board, Example, Predictions, WindowTable
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.leaderboard import compare, evaluate
from bertvision.evaluation.metrics.bootstrap import holm
from bertvision.tasks.task import Task

COUNT = 120
GOLD = [i % 2 for i in range(COUNT)]
EXAMPLES = tuple(Example(str(i), "text", label=float(gold)) for i, gold in enumerate(GOLD))
TASK = Task("tones", "classify", {"train": (), "inner": EXAMPLES, "dev": EXAMPLES}, "accuracy", labels=("no", "yes"))


def table(count: int = COUNT) -> WindowTable:
    none = [np.full((1, 2), -1, np.int32)] * count
    return WindowTable(np.arange(count), np.zeros(count, np.int64), none, np.zeros((count, 1)))


def marks(wrong: int, seed: int) -> list[Any]:
    """Outputs that pick the gold label but for so many of the examples."""
    chosen = set(np.random.default_rng(seed).permutation(COUNT)[:wrong].tolist())
    picked = [1 - gold if i in chosen else gold for i, gold in enumerate(GOLD)]
    return [np.eye(2, dtype=np.float32)[label] for label in picked]


def predictor(name: str, wrong: int, seed: int | None = 0, kind: Any = "head", inner: int | None = None) -> Predictions:
    draw = sum(map(ord, name)) + (seed or 0)
    on_inner = Predictions(name, name, kind, "inner", marks(wrong if inner is None else inner, draw), table(), seed)
    return replace(on_inner, split="dev", logits=marks(wrong, draw), inner=on_inner)


BOARD = [
    predictor("good", 6, 0),
    predictor("good", 8, 1),
    predictor("poor", 45, 0),
    predictor("poor", 50, 1),
    predictor(CONTROL, 10, 0),
    predictor("encoder", 40, None, "encoder"),
    predictor("mixed", 7, None, "ensemble"),
]


def right(name: str) -> Any:
    """Right or wrong by example, the mean over the seeds of a predictor."""
    found = [np.stack(list(one.logits)).argmax(1) == np.array(GOLD) for one in BOARD if one.name == name]
    return np.mean(found, axis=0)


def versus(board: Board) -> dict[tuple[str, str], Any]:
    return {(one.a, one.b): one for one in board.comparisons}


def test_every_pair_once_the_best_head_in_front() -> None:
    board = evaluate(BOARD, TASK)
    assert board.best_head == "good"
    pairs = list(versus(board))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == 4 + 3 + 2
    assert {b for a, b in pairs if a == "good"} == {"poor", CONTROL, "encoder", "mixed"}
    assert {a for a, b in pairs if b == "encoder"} == {"good", "poor", CONTROL, "mixed"}
    assert {a for a, b in pairs if b == CONTROL} == {"good", "poor", "mixed"}


def test_a_comparison_is_the_paired_test_of_the_means_over_seeds() -> None:
    found = versus(evaluate(BOARD, TASK))
    for (a, b), one in found.items():
        expected = paired_test(right(a), right(b))
        assert one.difference == pytest.approx(100 * expected.difference)
        assert one.p == expected.p
        assert expected.interval is not None
        assert (one.low, one.high) == pytest.approx((100 * expected.interval.low, 100 * expected.interval.high))
    assert found["good", "poor"].a_seeds == found["good", "poor"].b_seeds == (0, 1)
    assert found["good", "encoder"].b_seeds == ()


def test_p_is_corrected_over_all_that_is_compared() -> None:
    board = evaluate(BOARD, TASK)
    assert [one.p_holm for one in board.comparisons] == holm([one.p for one in board.comparisons])
    found = versus(board)
    assert found["good", "encoder"].p_holm < 0.05
    assert found["good", "mixed"].p_holm > 0.05


def test_intervals_of_rows_and_of_means_over_seeds() -> None:
    board = evaluate(BOARD, TASK)
    for row in board.rows:
        assert row.interval is not None
        assert row.interval[0] <= row.scores["accuracy"] <= row.interval[1]
    lines = {line.name: line for line in board.summary}
    expected = bootstrap_interval(right("good"))
    assert expected is not None
    assert lines["good"].interval == pytest.approx((100 * expected.low, 100 * expected.high))
    assert (lines["good"].seeds, lines["encoder"].seeds) == ((0, 1), ())
    assert lines["good"].mean == pytest.approx(100 * right("good").mean())
    scores = [row.scores["accuracy"] for row in board.rows if row.name == "good"]
    assert lines["good"].std == pytest.approx(np.std(scores, ddof=1))
    assert lines["encoder"].std is None
    assert board.resampling_info == {
        "level": 0.95,
        "draws": 2000,
        "clusters": COUNT,
        "of": "rows",
        "seeds_vary": "head",
    }


def test_everything_right_is_not_sure() -> None:
    """Of 120 that are right, one in 33 may be wrong elsewhere: 0.97 ** 120 = 0.025."""
    board = evaluate([predictor("perfect", 0), predictor("encoder", 40, None, "encoder")], TASK)
    perfect = next(row for row in board.rows if row.name == "perfect")
    line = next(line for line in board.summary if line.name == "perfect")
    assert perfect.interval == line.interval
    assert perfect.interval is not None
    assert perfect.interval == pytest.approx((96.97, 100.0), abs=0.01)


def test_questions_on_one_context_are_drawn_together() -> None:
    grouped = tuple(replace(e, pair=f"context {i // 10}", group="article") for i, e in enumerate(EXAMPLES))
    task = replace(TASK, splits={**TASK.splits, "dev": grouped})
    board = evaluate(BOARD, task)
    assert (board.resampling_info["clusters"], board.resampling_info["of"]) == (12, "contexts")
    one, other = (versus(evaluate(BOARD, t))["good", "poor"] for t in (task, TASK))
    assert one.difference == other.difference
    assert (one.low, one.high) != (other.low, other.high)
    alone = replace(TASK, splits={**TASK.splits, "dev": tuple(replace(e, pair="c", group="a") for e in EXAMPLES)})
    lonely = evaluate(BOARD, alone)
    assert lonely.rows[0].interval is None
    assert {(one.low, one.high) for one in lonely.comparisons} == {(None, None)}


@pytest.mark.parametrize("metric", ["f1", "macro_f1", "matthews_correlation"])
def test_a_metric_that_is_no_mean_is_tested_by_the_best_seed_on_inner(metric: str) -> None:
    seeds = [predictor("good", 4, 0, inner=9), predictor("good", 20, 1, inner=2), predictor(CONTROL, 40)]
    board = evaluate(seeds, replace(TASK, metric=metric))
    (one,) = board.comparisons
    assert (one.a, one.b, one.a_seeds) == ("good", CONTROL, (1,))
    scores = {(row.name, row.seed): row.scores[metric] for row in board.rows}
    assert one.difference == pytest.approx(scores["good", 1] - scores[CONTROL, 0])
    assert one.low is not None
    assert one.low <= one.difference <= one.high
    line = next(line for line in board.summary if line.name == "good")
    assert line.mean == pytest.approx((scores["good", 0] + scores["good", 1]) / 2)
    assert line.interval is not None
    assert line.interval[0] <= line.mean <= line.interval[1]


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


def test_a_metric_that_cannot_be_resampled_is_left_alone() -> None:
    comparison = Comparison(replace(TASK, metric="beauty"), "dev")
    assert comparison.seed_groups([]) == []


def test_comparing_two_predictors() -> None:
    by_name = {name: [one for one in BOARD if one.name == name] for name in ("good", "poor", "encoder")}
    found = compare(by_name["good"], by_name["encoder"], TASK)
    on_board = versus(evaluate(BOARD, TASK))["good", "encoder"]
    assert (found.difference, found.p, found.low, found.high) == pytest.approx(
        (on_board.difference, on_board.p, on_board.low, on_board.high)
    )
    back = compare(by_name["encoder"], by_name["good"], TASK)
    assert (back.difference, back.p) == pytest.approx((-found.difference, found.p))
    same = compare(BOARD[0], BOARD[0], TASK)
    assert (same.difference, same.p) == (0.0, 1.0)
    with pytest.raises(BadInput, match="compare needs two predictors and a metric that can be resampled, got metric"):
        compare([BOARD[0], BOARD[2]], BOARD[5], TASK)
