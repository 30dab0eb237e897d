"""Multilabel scores match scikit-learn, and the fitted threshold matches a search over all cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from metric_oracles import exact, f1_macro, f1_micro
from sklearn.metrics import accuracy_score, f1_score

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.labels import best_micro_threshold, multilabel_scores

SHAPES = st.tuples(st.integers(1, 8), st.integers(2, 4))
PAIRS = SHAPES.flatmap(lambda shape: st.tuples(arrays.arrays(bool, shape), arrays.arrays(bool, shape)))
LEVELS = st.sampled_from([-2.0, -0.5, -1e-3, 0.0, 1e-3, 0.25, 3.0]) | st.floats(-30, 30, width=32)
OUTPUTS = SHAPES.flatmap(
    lambda shape: st.tuples(arrays.arrays(bool, shape), arrays.arrays(float, shape, elements=LEVELS))
)


@given(PAIRS)
def test_scores_match_scikit_learn(pair: tuple[np.ndarray, np.ndarray]) -> None:
    gold, predicted = pair
    scores = multilabel_scores(gold, predicted)
    wanted = {name: f1_score(gold, predicted, average=name, zero_division=0) for name in ("micro", "macro")}
    assert scores == pytest.approx(
        {
            "f1_micro": 100 * wanted["micro"],
            "f1_macro": 100 * wanted["macro"],
            "exact": 100 * accuracy_score(gold, predicted),
        }
    )


@given(PAIRS)
def test_scores_equal_the_naive_definitions_exactly(pair: tuple[np.ndarray, np.ndarray]) -> None:
    naive = {"f1_micro": f1_micro, "f1_macro": f1_macro, "exact": exact}
    assert multilabel_scores(*pair) == {name: 100 * score(*pair) for name, score in naive.items()}


def test_scores_by_hand() -> None:
    gold = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0]], bool)
    predicted = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]], bool)
    scores = multilabel_scores(gold, predicted)
    assert scores == pytest.approx({"f1_micro": 200 / 3, "f1_macro": 100 * (1 + 2 / 3 + 0) / 3, "exact": 100 / 3})


@given(OUTPUTS)
def test_best_micro_threshold_is_the_best_of_all_cuts(pair: tuple[np.ndarray, np.ndarray]) -> None:
    gold, outputs = pair
    best = f1_micro(gold, outputs >= best_micro_threshold(gold, outputs))
    tried = [f1_micro(gold, outputs >= level) for level in [*np.unique(outputs), np.inf]]
    assert best == pytest.approx(max(tried))


def test_threshold_lies_midway_and_ties_take_the_nearest_to_zero() -> None:
    gold = np.array([[True, False], [True, False]])
    assert best_micro_threshold(gold, np.array([[3.0, 1.0], [4.0, -1.0]])) == 2.0
    # One right of one predicted or two right of four predicted: F1 is 2/3 at both cuts.
    assert best_micro_threshold(gold, np.array([[-4.0, -3.0], [5.0, -3.5]])) == 1.0
    assert best_micro_threshold(gold, np.array([[1.0, 3.0], [10.0, 2.0]])) == 0.0


def test_threshold_separates_neighbouring_floats() -> None:
    low = 1.0
    high = float(np.nextafter(low, 2.0))
    gold, outputs = np.array([[False, True]]), np.array([[low, high]])
    assert f1_micro(gold, outputs >= best_micro_threshold(gold, outputs)) == 1.0


def test_threshold_is_zero_if_no_label_is_right() -> None:
    assert best_micro_threshold(np.zeros((2, 2), bool), np.array([[1.0, 2.0], [3.0, -4.0]])) == 0.0


@pytest.mark.parametrize(("gold", "predicted"), [((2, 2), (3, 2)), ((2, 2), (2, 3)), ((0, 2), (0, 2)), ((4,), (4,))])
def test_arrays_of_different_shapes_are_refused(gold: tuple[int, ...], predicted: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="expected the same"):
        multilabel_scores(np.zeros(gold, bool), np.zeros(predicted, bool))
