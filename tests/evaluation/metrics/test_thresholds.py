"""logistic_threshold: the no-answer threshold from a logistic curve through all questions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertvision.evaluation.metrics.thresholds import logistic_threshold, oracle_threshold

Floats = NDArray[np.float64]


def simulated(seed: int, count: int, middle: float = 1.5) -> tuple[Floats, Floats]:
    """Scores and gains of answering; at a score of ``middle`` an answer gains as often as it loses."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, count)
    good = rng.random(count) < 1 / (1 + np.exp(0.5 * (scores - middle)))
    return scores, np.where(good, 1.0, -1.0)


def oracle_of_sample(scores: Floats, gains: Floats) -> float:
    return oracle_threshold(scores, (gains > 0).astype(float), gains > 0)


def test_threshold_is_close_to_the_true_break_even_score() -> None:
    threshold = logistic_threshold(*simulated(0, 20_000))
    assert threshold == pytest.approx(1.5, abs=0.1)


def test_threshold_varies_less_than_the_oracle_threshold() -> None:
    draws = [simulated(seed, 300) for seed in range(40)]
    logistic, oracle = (
        np.array([function(*draw) for draw in draws], float) for function in (logistic_threshold, oracle_of_sample)
    )
    assert np.std(logistic) < 0.5 * np.std(oracle)


@given(st.integers(0, 100), st.floats(0.01, 100), st.floats(-1000, 1000))
def test_threshold_scales_and_shifts_with_the_scores(seed: int, scale: float, shift: float) -> None:
    scores, gains = simulated(seed, 60)
    threshold, moved = logistic_threshold(scores, gains), logistic_threshold(scale * scores + shift, gains)
    assert (threshold is None) == (moved is None)
    if threshold is not None:
        assert moved == pytest.approx(scale * threshold + shift, abs=1e-4 * (1 + abs(shift)) * (1 + scale))


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1, 1)), min_size=1, max_size=12))
def test_threshold_is_finite_and_never_worse_than_all_or_nothing(rows: list[tuple[float, float]]) -> None:
    scores, gains = (np.array(column) for column in zip(*rows, strict=True))
    threshold = logistic_threshold(scores, gains)
    if threshold is not None:
        assert np.isfinite(threshold)
        assert gains[scores <= threshold].sum() >= max(0.0, gains.sum())


def test_threshold_separates_separable_scores() -> None:
    threshold = logistic_threshold(np.array([-5.0, -4.0, 3.0, 4.0]), np.array([1.0, 0.5, -1.0, -1.0]))
    assert threshold is not None
    assert -4 < threshold < 3


@pytest.mark.parametrize(
    ("scores", "gains"),
    [
        ([0.0, 1.0], [1.0, 1.0]),
        ([0.0, 1.0], [-1.0, 0.0]),
        ([2.0, 2.0], [1.0, -1.0]),
        ([0.0, 1.0, 2.0, 3.0], [-1.0, -1.0, 1.0, 1.0]),
        ([1e9, 1e9, 0.0], [1.0, -1.0, 1.0]),
    ],
)
def test_threshold_is_none_if_scores_are_uninformative(scores: list[float], gains: list[float]) -> None:
    assert logistic_threshold(np.array(scores), np.array(gains)) is None


def test_question_without_a_window_does_not_change_the_threshold() -> None:
    scores, gains = simulated(3, 200)
    with_placeholder = logistic_threshold(np.append(scores, 1e9), np.append(gains, -1.0))
    assert with_placeholder == logistic_threshold(scores, gains)
