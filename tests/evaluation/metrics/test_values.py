"""Value scores against cases worked out by hand and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.values import SpearmanScore, pearson, pearson_score, regression_scores, spearmanr

PAIRS = st.lists(st.tuples(*[st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)] * 2), min_size=1, max_size=20)


def test_scores_by_hand() -> None:
    """Deviations (-1, 0, 1) and (-1, -1, 2): 3 / sqrt(2 · 6); ranks 1 2 3 and 1.5 1.5 3: 1.5 / sqrt(2 · 1.5)."""
    scores = regression_scores([1, 2, 3], [1, 1, 4])
    assert list(scores) == ["pearson", "spearmanr", "rmse"]
    assert list(scores.values()) == pytest.approx([100 * 3 / math.sqrt(12), 100 * 1.5 / math.sqrt(3), math.sqrt(2 / 3)])


def test_spearman_depends_on_the_order_only() -> None:
    scores = regression_scores([1, 2, 3, 4], [1, 10, 100, 1000])
    assert scores["spearmanr"] == pytest.approx(100)
    assert scores["pearson"] < 90
    assert regression_scores([1, 2], [2, 1])["spearmanr"] == pytest.approx(-100)


@pytest.mark.parametrize(
    ("gold", "predicted", "rmse"),
    [([1, 2, 3], [2, 2, 2], math.sqrt(2 / 3)), ([5, 5], [4, 6], 1), ([5], [3], 2), ([0.1] * 3, [0.1] * 3, 0)],
)
def test_constant_values_have_defined_scores(gold: list[float], predicted: list[float], rmse: float) -> None:
    scores = regression_scores(gold, predicted)
    assert scores == {"pearson": 0.0, "spearmanr": 0.0, "rmse": pytest.approx(rmse)}


def test_almost_constant_values_do_not_warn() -> None:
    assert -100 <= regression_scores([1, 2, 3], [1.0, 1.0, 1.0 + 2**-52])["pearson"] <= 100
    assert regression_scores([1, 2, 3], [0.0, 0.0, 5e-324])["spearmanr"] == pytest.approx(100 * math.sqrt(3) / 2)


def test_values_that_overflow_have_correlation_0() -> None:
    """Their mean overflows."""
    assert regression_scores([1, 2, 3], [1.7e308, 1.7e308, 1e308])["pearson"] == 0.0


@given(PAIRS)
def test_correlations_are_bounded_and_symmetric(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for correlate in (pearson, spearmanr):
        value = correlate(gold, predicted)
        assert abs(value) <= 1 + 1e-9
        assert value == pytest.approx(correlate(predicted, gold), abs=1e-9)


@given(PAIRS)
def test_sums_over_examples_give_the_same_correlations(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = (np.array(side) for side in zip(*pairs, strict=True))
    once, members = np.ones((1, len(pairs))), np.arange(len(pairs))
    assert pearson_score(gold, predicted).of(once, members)[0] == pytest.approx(pearson(gold, predicted), abs=1e-6)
    assert SpearmanScore(gold, predicted).of(once, members)[0] == pytest.approx(spearmanr(gold, predicted), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_scores_match_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    gold = random.integers(0, 6, size=200).astype(float)
    predicted = gold + random.normal(scale=2, size=200)
    scores = regression_scores(gold.tolist(), predicted.tolist())
    assert scores["pearson"] == pytest.approx(100 * stats.pearsonr(gold, predicted).statistic)
    assert scores["spearmanr"] == pytest.approx(100 * stats.spearmanr(gold, predicted).statistic)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((gold - predicted) ** 2)))
    assert regression_scores(list(gold), list(predicted)) == scores  # numpy floats are accepted too


def test_invalid_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="1 predictions for 2 gold rows"):
        regression_scores([0, 1], [0])
    with pytest.raises(BadInput, match="no rows"):
        regression_scores([], [])
    with pytest.raises(BadInput, match="predicted row 1: got nan"):
        regression_scores([0, 1], [0, math.nan])
    with pytest.raises(BadInput, match="gold row 0: got inf"):
        regression_scores([math.inf, 1], [0, 1])
