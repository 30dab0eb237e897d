"""Calibration: temperatures fitted on inner, and the calibration error on the split that is shown.

There are three kinds of probability. ``label``: of the predicted label or, if there may be several, of each
label. ``no_answer``: that a question has no answer. ``answer``: that the answer given (a span or no answer) is
an exact match. Each has its own temperature, and no temperature changes a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Reliability
from bertvision.evaluation.metrics.calibration import (
    BOUNDS,
    LARGEST_NO_ANSWER_SCORE,
    expected_calibration_error,
    fit_confidence_temperature,
    fit_no_answer_temperature,
    fit_temperature,
    no_answer_probability,
    reliability_bins,
    top_choice,
)
from bertvision.evaluation.scoring import ScoredPredictions, SplitScores

Floats = NDArray[np.float64]

BINS = 10


def temperatures(inner: SplitScores | None) -> dict[str, float]:
    """One temperature per kind of probability, fitted on inner.

    If inner has no mistake, the likelihood is best at the lowest temperature allowed; the confidence is then
    unknown, and the temperature stays 1.
    """
    if inner is None or inner.example_scores is None:
        return {}
    example_scores = inner.example_scores
    fitted = {}
    if example_scores.outputs is not None:
        fitted["label"] = _label_temperature(example_scores.outputs, example_scores.gold)
    elif example_scores.spans is not None:
        fitted["answer"] = fit_confidence_temperature(*_choices(inner))
        if inner.threshold is not None:
            no_answer = example_scores.spans.no_answer
            fitted["no_answer"] = fit_no_answer_temperature(no_answer, ~example_scores.gold, inner.threshold)
    return {what: 1.0 if temperature <= BOUNDS[0] else temperature for what, temperature in fitted.items()}


def _label_temperature(outputs: Floats, gold: NDArray[Any]) -> float:
    """Examples without windows are left out; each of several labels is a binary choice."""
    if gold.ndim == 2:
        return fit_no_answer_temperature(outputs.ravel(), gold.ravel())
    graded = np.abs(outputs).max(1) <= LARGEST_NO_ANSWER_SCORE
    return fit_temperature(outputs[graded], gold[graded]) if graded.any() else 1.0


def _choices(result: SplitScores) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores of the best spans and, lowered by the threshold, of no answer; and whether the answer given is right.

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


def stated(result: SplitScores, what: str, temperature: float) -> tuple[Floats, NDArray[np.bool_]]:
    """(probability, whether it came true) for every example."""
    example_scores = result.example_scores
    assert example_scores is not None
    outputs, spans, gold = example_scores.outputs, example_scores.spans, example_scores.gold
    if what == "label":
        assert outputs is not None
        if gold.ndim == 2:
            return no_answer_probability(outputs.ravel(), 0.0, temperature), gold.ravel()
        return top_choice(outputs, gold, temperature)
    if what == "answer":
        choices, right = _choices(result)
        return top_choice(choices, choices.argmax(1), temperature)[0], right
    assert spans is not None
    return no_answer_probability(spans.no_answer, result.threshold or 0.0, temperature), ~gold


def calibration(scored: ScoredPredictions) -> dict[str, dict[str, float]]:
    """Per kind of probability: the temperature, and the calibration error without it and with it."""
    return {
        what: {
            "temperature": temperature,
            "ece_raw": expected_calibration_error(*stated(scored.result, what, 1.0), bins=BINS),
            "ece": expected_calibration_error(*stated(scored.result, what, temperature), bins=BINS),
        }
        for what, temperature in temperatures(scored.inner).items()
    }


def reliability(scored: ScoredPredictions, fitted: Mapping[str, Mapping[str, float]]) -> list[Reliability]:
    """The bins behind :func:`calibration`, for a chart."""
    predictions = scored.predictions
    return [
        Reliability(
            name=predictions.name,
            seed=predictions.seed,
            what=what,
            raw=_bins(scored, what, 1.0),
            calibrated=_bins(scored, what, errors["temperature"]),
        )
        for what, errors in fitted.items()
    ]


def _bins(scored: ScoredPredictions, what: str, temperature: float) -> tuple[tuple[float, float, int], ...]:
    bins = reliability_bins(*stated(scored.result, what, temperature), bins=BINS)
    return tuple((entry.confidence, entry.accuracy, entry.count) for entry in bins)
