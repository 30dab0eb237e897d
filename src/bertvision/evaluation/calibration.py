"""Calibration: temperatures fitted on inner, and the calibration error on the evaluated split.

There are three kinds of probability. ``label``: that the predicted label is correct or, with any number of labels, that
each label applies. ``no_answer``: that a question has no answer. ``answer``: that the predicted answer, a span or no
answer, is an exact match. Each has its own temperature; temperatures do not change predictions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Reliability
from bertvision.evaluation.metrics.calibration import (
    LARGEST_NO_ANSWER_SCORE,
    MIN_TEMPERATURE,
    binary_choices,
    binary_probability,
    confidence_loss,
    cross_fitted,
    expected_calibration_error,
    fit_confidence_temperature,
    fit_temperature,
    negative_log_likelihood,
    reliability_bins,
    top_choice,
    top_probability,
)
from bertvision.evaluation.scoring import ScoredPredictions, SplitScores

Floats = NDArray[np.float64]

BINS = 10


def fit_temperatures(inner: SplitScores | None) -> dict[str, float]:
    """One temperature per kind of probability, fitted on inner.

    The temperature stays 1 if cross-fitting shows no gain, or if inner has no mistakes: the best fit is then the lowest
    temperature allowed, which says nothing.
    """
    if inner is None or inner.example_scores is None:
        return {}
    outputs, spans, gold = inner.example_scores.outputs, inner.example_scores.spans, inner.example_scores.gold
    fitted = {}
    if outputs is not None and gold.ndim == 2:  # any number of labels: each one is a binary choice
        choices = binary_choices(outputs.ravel(), gold.ravel())
        fitted["label"] = cross_fitted(fit_temperature, negative_log_likelihood, *choices)
    elif outputs is not None:
        has_windows = np.abs(outputs).max(1) <= LARGEST_NO_ANSWER_SCORE  # (examples,)
        rows = outputs[has_windows], gold[has_windows]
        fitted["label"] = cross_fitted(fit_temperature, negative_log_likelihood, *rows)
    elif spans is not None:
        fitted["answer"] = cross_fitted(fit_confidence_temperature, confidence_loss, *_answer_candidates(inner))
        if inner.threshold is not None:
            choices = binary_choices(spans.no_answer, ~gold, inner.threshold)
            fitted["no_answer"] = cross_fitted(fit_temperature, negative_log_likelihood, *choices)
    return {kind: 1.0 if temperature <= MIN_TEMPERATURE else temperature for kind, temperature in fitted.items()}


def _answer_candidates(result: SplitScores) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores of the best spans and, minus the threshold, of no answer; and whether the prediction is correct.

    Questions without windows are left out.
    """
    example_scores = result.example_scores
    assert example_scores is not None
    assert example_scores.spans is not None
    scores = example_scores.spans.spans  # (examples, TOP_K)
    has_span = np.isfinite(scores[:, 0])
    if result.threshold is not None:
        null = scores[:, 0] + example_scores.spans.no_answer - result.threshold
        scores = np.concatenate([scores, null[:, None]], axis=1)
    return scores[has_span], example_scores.means["exact"][has_span] == 1


def probabilities_and_outcomes(result: SplitScores, kind: str, temperature: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Predicted probabilities of one kind, and whether each event occurred.

    One per example; with any number of labels, one per example and label. For answers, questions without windows are
    left out.
    """
    example_scores = result.example_scores
    assert example_scores is not None
    outputs, spans, gold = example_scores.outputs, example_scores.spans, example_scores.gold
    if kind == "label":
        assert outputs is not None
        if gold.ndim == 2:
            return binary_probability(outputs.ravel(), 0.0, temperature), gold.ravel()
        return top_choice(outputs, gold, temperature)
    if kind == "answer":
        candidates, correct = _answer_candidates(result)
        return top_probability(candidates, temperature), correct
    assert spans is not None
    return binary_probability(spans.no_answer, result.threshold or 0.0, temperature), ~gold


def calibration(scored: ScoredPredictions) -> dict[str, dict[str, float]]:
    """Per kind of probability: the temperature, and the calibration error without it and with it."""
    table = {}
    for kind, temperature in fit_temperatures(scored.inner).items():
        raw = probabilities_and_outcomes(scored.result, kind, 1.0)
        calibrated = probabilities_and_outcomes(scored.result, kind, temperature)
        table[kind] = {
            "temperature": temperature,
            "ece_raw": expected_calibration_error(*raw, bins=BINS),
            "ece": expected_calibration_error(*calibrated, bins=BINS),
        }
    return table


def reliability(scored: ScoredPredictions, fitted: Mapping[str, Mapping[str, float]]) -> list[Reliability]:
    """Bins of the reliability diagrams that belong to the errors of :func:`calibration`."""
    diagrams = []
    for kind, errors in fitted.items():
        raw, calibrated = _bins(scored, kind, 1.0), _bins(scored, kind, errors["temperature"])
        diagrams.append(Reliability(scored.predictions.name, scored.predictions.seed, kind, raw, calibrated))
    return diagrams


def _bins(scored: ScoredPredictions, kind: str, temperature: float) -> tuple[tuple[float, float, int], ...]:
    """Mean confidence, accuracy and number of examples of each bin."""
    bins = reliability_bins(*probabilities_and_outcomes(scored.result, kind, temperature), bins=BINS)
    return tuple((row.confidence, row.accuracy, row.count) for row in bins)
