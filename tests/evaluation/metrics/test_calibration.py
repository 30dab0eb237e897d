"""Temperatures are recovered from simulated logits, calibration errors match hand-made cases, and bins add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.calibration import (
    CROSS_FOLDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    binary_choices,
    binary_probability,
    confidence_loss,
    cross_fitted,
    expected_calibration_error,
    fit_confidence_temperature,
    fit_temperature,
    log_probabilities,
    negative_log_likelihood,
    reliability_bins,
    top_choice,
)


def simulated(temperature: float, rows: int = 6000) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits that are right at this temperature: labels are drawn from softmax(logits / T)."""
    random = np.random.default_rng(0)
    logits = random.normal(scale=3 * temperature, size=(rows, 4))
    shares = np.exp(log_probabilities(logits, temperature)).cumsum(1)
    return logits, (random.random((rows, 1)) > shares).sum(1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 8.0])
def test_fit_temperature_recovers_the_true_temperature(temperature: float) -> None:
    logits, labels = simulated(temperature)
    fitted = fit_temperature(logits, labels)
    assert fitted == pytest.approx(temperature, rel=0.05)
    before, after = (expected_calibration_error(*top_choice(logits, labels, t)) for t in (1.0, fitted))
    assert after < 0.02
    assert temperature == 1.0 or before > 2 * after


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 8.0])
def test_fit_confidence_temperature_recovers_the_true_temperature(temperature: float) -> None:
    logits, labels = simulated(temperature)
    right = logits.argmax(1) == labels
    missing = np.where(np.arange(4) == 3, -np.inf, logits)  # a choice that a row does not have
    assert fit_confidence_temperature(logits, right) == pytest.approx(temperature, rel=0.1)
    assert np.isfinite(fit_confidence_temperature(missing, right))


def held_out_loss(logits: NDArray[np.float64], labels: NDArray[np.int64], cross: bool) -> float:
    """Log loss of rows at temperatures that were fitted (or kept at 1) on the other folds."""
    losses = 0.0
    for fold in range(CROSS_FOLDS):
        out = np.arange(len(logits)) % CROSS_FOLDS == fold
        temperature = fit_temperature(logits[~out], labels[~out]) if cross else 1.0
        losses += negative_log_likelihood(logits[out], labels[out], temperature) * out.sum()
    return losses / len(logits)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 60), st.floats(-1.5, 1.5))
def test_temperatures_that_are_used_do_not_raise_the_cross_fitted_loss(seed: int, rows: int, log_scale: float) -> None:
    random = np.random.default_rng(seed)
    logits, labels = random.normal(scale=10**log_scale, size=(rows, 3)), random.integers(0, 3, rows)
    temperature = cross_fitted(fit_temperature, negative_log_likelihood, logits, labels)
    if rows < 2 * CROSS_FOLDS:
        assert temperature == 1.0
    elif held_out_loss(logits, labels, cross=True) < held_out_loss(logits, labels, cross=False) - 1e-9:
        assert temperature == fit_temperature(logits, labels)
    else:
        assert temperature == 1.0 or temperature == pytest.approx(fit_temperature(logits, labels))
        gain = held_out_loss(logits, labels, cross=False) - held_out_loss(logits, labels, cross=True)
        assert temperature == 1.0 or gain > -1e-9


@pytest.mark.parametrize("temperature", [0.3, 2.5, 8.0])
def test_temperatures_that_help_are_used_as_they_were_fitted(temperature: float) -> None:
    logits, labels = simulated(temperature, rows=1000)
    assert cross_fitted(fit_temperature, negative_log_likelihood, logits, labels) == fit_temperature(logits, labels)
    right = logits.argmax(1) == labels
    by_confidence = cross_fitted(fit_confidence_temperature, confidence_loss, logits, right)
    assert by_confidence == fit_confidence_temperature(logits, right) != 1.0


def test_few_rows_that_agree_by_chance_give_no_temperature() -> None:
    logits, labels = simulated(1.0, rows=6000)
    kept = sum(
        cross_fitted(fit_temperature, negative_log_likelihood, logits[i : i + 12], labels[i : i + 12]) == 1.0
        for i in range(0, 1200, 12)
    )
    assert kept > 50, "of a hundred samples of twelve rows"


def test_fit_confidence_temperature_stays_within_bounds() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_confidence_temperature(logits, [True, True]) == MIN_TEMPERATURE
    assert fit_confidence_temperature(logits, [False, False]) == MAX_TEMPERATURE
    assert fit_confidence_temperature(np.empty((0, 3)), []) == 1.0


def test_fit_temperature_stays_within_bounds_on_separable_data() -> None:
    separated = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(separated, [0, 1]) == MIN_TEMPERATURE
    assert fit_temperature(separated, [1, 0]) == MAX_TEMPERATURE
    assert fit_temperature([[1.0, 1.0], [0.0, 0.0]], [0, 1]) == 1.0  # nothing to gain


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(-1e4, 1e4) | st.integers(-3, 3), min_size=3, max_size=3), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    )
)
def test_fitting_never_worsens_the_likelihood(rows: list[tuple[list[float], int]]) -> None:
    logits, labels = np.array([row[0] for row in rows], dtype=float), [row[1] for row in rows]
    fitted = fit_temperature(logits, labels)
    assert MIN_TEMPERATURE <= fitted <= MAX_TEMPERATURE
    best = negative_log_likelihood(logits, labels, fitted)
    grid = np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 30)
    assert best <= negative_log_likelihood(logits, labels)
    assert best <= min(negative_log_likelihood(logits, labels, t) for t in grid) * (1 + 1e-6) + 1e-9


def test_negative_log_likelihood_by_hand() -> None:
    logits = [[math.log(9), 0.0], [0.0, math.log(3)]]
    assert negative_log_likelihood(logits, [0, 0]) == pytest.approx(-(math.log(0.9) + math.log(0.25)) / 2)
    assert negative_log_likelihood(logits, [0, 0], 2.0) == pytest.approx(
        -(math.log(0.75) + math.log(1 / (1 + 3**0.5))) / 2
    )
    assert np.exp(log_probabilities([[1e5, 0.0]])).tolist() == [[1.0, 0.0]]


def test_choices_of_minus_infinity_do_not_change_the_temperature() -> None:
    logits, labels = simulated(2.0, 500)
    padded = np.concatenate([logits, np.full((len(logits), 2), -np.inf)], axis=1)
    assert fit_temperature(padded, labels) == pytest.approx(fit_temperature(logits, labels), rel=1e-4)


def test_no_answer_temperature_is_recovered_and_changes_no_decision() -> None:
    random = np.random.default_rng(1)
    scores = random.normal(loc=1.5, scale=9, size=8000)
    unanswerable = random.random(8000) < binary_probability(scores, 1.5, 4.0)
    fitted = fit_temperature(*binary_choices(scores, unanswerable, 1.5))
    assert fitted == pytest.approx(4.0, rel=0.05)
    probability = binary_probability(scores, 1.5, fitted)
    assert expected_calibration_error(probability, unanswerable) < 0.02
    assert ((probability > 0.5) == (scores > 1.5)).all()
    assert binary_probability([1.5, math.inf, -math.inf], 1.5).tolist() == [0.5, 1.0, 0.0]


def test_questions_without_a_span_do_not_change_the_no_answer_temperature() -> None:
    scores, unanswerable = [2.0, -1.0, 0.5, -3.0, 0.5], [1, 0, 0, 0, 1]
    fitted = fit_temperature(*binary_choices(scores, unanswerable))
    assert MIN_TEMPERATURE < fitted < MAX_TEMPERATURE
    assert fit_temperature(*binary_choices([*scores, 1e9, math.inf], [*unanswerable, 0, 0])) == fitted
    assert not len(binary_choices([math.inf], [0])[1])


@pytest.mark.parametrize("adaptive", [False, True])
def test_calibrated_predictions_have_no_calibration_error(adaptive: bool) -> None:
    """Of ten predictions at 0.1 one is right, and so on."""
    confidence = np.repeat(np.arange(1, 11) / 10, 10)
    correct = np.concatenate([np.arange(10) < right for right in range(1, 11)])
    assert expected_calibration_error(confidence, correct, bins=10, adaptive=adaptive) == pytest.approx(0, abs=1e-12)


def test_expected_calibration_error_by_hand() -> None:
    confidence, correct = [0.9, 0.8, 0.3, 0.1], [1, 0, 1, 0]
    bins = reliability_bins(confidence, correct, bins=2)
    assert [(b.low, b.high, b.count, b.confidence, b.accuracy) for b in bins] == [
        (0.0, 0.5, 2, pytest.approx(0.2), 0.5),
        (0.5, 1.0, 2, pytest.approx(0.85), 0.5),
    ]
    assert expected_calibration_error(confidence, correct, bins=2) == pytest.approx((0.3 + 0.35) / 2)
    assert expected_calibration_error(confidence, correct, bins=1) == pytest.approx(0.525 - 0.5)
    assert expected_calibration_error([1.0, 1.0], [0, 0]) == 1.0


def test_adaptive_bins_have_equal_counts() -> None:
    confidence = np.concatenate([np.linspace(0.91, 0.99, 90), np.linspace(0.11, 0.19, 10)])
    counts = [b.count for b in reliability_bins(confidence, confidence > 0.5, bins=10, adaptive=True)]
    assert counts == [10] * 10
    assert len(reliability_bins(confidence, confidence > 0.5, bins=10)) == 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.booleans()), min_size=1, max_size=30
    ),
    st.integers(1, 20),
    st.booleans(),
)
def test_bins_hold_every_prediction_once(rows: list[tuple[float, bool]], bins: int, adaptive: bool) -> None:
    confidence, correct = [row[0] for row in rows], [row[1] for row in rows]
    result = reliability_bins(confidence, correct, bins, adaptive)
    assert sum(b.count for b in result) == len(rows)
    assert 1 <= len(result) <= bins
    assert all(b.count and b.low - 1e-12 <= b.confidence <= b.high + 1e-12 for b in result)
    assert sum(b.count * b.accuracy for b in result) == pytest.approx(sum(correct))
    error = expected_calibration_error(confidence, correct, bins, adaptive)
    overall = abs(float(np.mean(confidence)) - float(np.mean(correct)))
    assert overall - 1e-9 <= error <= 1.0
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    shuffled_error = expected_calibration_error([r[0] for r in shuffled], [r[1] for r in shuffled], bins, adaptive)
    assert shuffled_error == pytest.approx(error)


def test_invalid_inputs_are_refused() -> None:
    with pytest.raises(BadInput, match=r"confidence: got 0.5 to 1.5, expected probabilities"):
        expected_calibration_error([0.5, 1.5], [1, 0])
    with pytest.raises(BadInput, match="confidence: got nan"):
        reliability_bins([math.nan], [1])
    with pytest.raises(BadInput, match="expected one per row"):
        reliability_bins([0.5, 0.5], [1])
    with pytest.raises(BadInput, match="bins: got 0"):
        reliability_bins([0.5], [1], bins=0)
    with pytest.raises(BadInput, match=r"labels: got 0 to 2, expected 0\.\.1"):
        fit_temperature([[0.0, 1.0]] * 2, [0, 2])
    with pytest.raises(BadInput, match=r"expected \(rows, choices\)"):
        fit_temperature([0.0, 1.0], [0, 1])
    for broken in ([[math.nan, 1.0]], [[math.inf, 1.0]], [[1.0, -math.inf]]):
        with pytest.raises(BadInput, match="not finite"):
            fit_temperature(broken, [1])
