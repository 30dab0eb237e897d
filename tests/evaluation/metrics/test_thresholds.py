"""The threshold of no answer that a curve through all questions gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertvision.evaluation.metrics.thresholds import logistic_threshold, oracle_threshold

Floats = NDArray[np.float64]


def drawn(seed: int, count: int, middle: float = 1.5) -> tuple[Floats, Floats]:
    """Questions of which answering gains as often as it loses at a score of ``middle``."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, count)
    good = rng.random(count) < 1 / (1 + np.exp(0.5 * (scores - middle)))
    return scores, np.where(good, 1.0, -1.0)


def luckiest(scores: Floats, gains: Floats) -> float:
    return oracle_threshold(scores, (gains > 0).astype(float), gains > 0)


def test_it_finds_where_answering_begins_to_pay() -> None:
    found = logistic_threshold(*drawn(0, 20_000))
    assert found == pytest.approx(1.5, abs=0.1)


def test_it_follows_luck_less_than_the_best_on_the_questions_at_hand() -> None:
    draws = [drawn(seed, 300) for seed in range(40)]
    steady, lucky = (np.array([how(*draw) for draw in draws], float) for how in (logistic_threshold, luckiest))
    assert np.std(steady) < 0.5 * np.std(lucky)


@given(st.integers(0, 100), st.floats(0.01, 100), st.floats(-1000, 1000))
def test_it_moves_with_the_scores(seed: int, scale: float, shift: float) -> None:
    scores, gains = drawn(seed, 60)
    found, moved = logistic_threshold(scores, gains), logistic_threshold(scale * scores + shift, gains)
    assert (found is None) == (moved is None)
    if found is not None:
        assert moved == pytest.approx(scale * found + shift, abs=1e-4 * (1 + abs(shift)) * (1 + scale))


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1, 1)), min_size=1, max_size=12))
def test_it_is_finite_and_never_worse_than_all_or_nothing(rows: list[tuple[float, float]]) -> None:
    scores, gains = (np.array(column) for column in zip(*rows, strict=True))
    found = logistic_threshold(scores, gains)
    if found is not None:
        assert np.isfinite(found)
        assert gains[scores <= found].sum() >= max(0.0, gains.sum())


def test_scores_that_tell_all_are_parted_between() -> None:
    found = logistic_threshold(np.array([-5.0, -4.0, 3.0, 4.0]), np.array([1.0, 0.5, -1.0, -1.0]))
    assert found is not None
    assert -4 < found < 3


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
def test_there_is_none_where_scores_tell_nothing(scores: list[float], gains: list[float]) -> None:
    assert logistic_threshold(np.array(scores), np.array(gains)) is None


def test_a_question_without_a_window_does_not_count() -> None:
    scores, gains = drawn(3, 200)
    with_stand_in = logistic_threshold(np.append(scores, 1e9), np.append(gains, -1.0))
    assert with_stand_in == logistic_threshold(scores, gains)
