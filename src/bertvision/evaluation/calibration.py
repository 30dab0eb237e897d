"""Temperatures fitted on inner, and how honest the probabilities are on the split that is shown.

There are three sorts of probability. ``label``: that of the label that is picked or, where there may
be several, of each label. ``no_answer``: that a question has no answer. ``answer``: that what is said
(a span, or that there is no answer) is exactly right. Each has one temperature of its own, and no
temperature changes a decision. Shared ground of the steps, not a step itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Reliability
from bertvision.evaluation.example_scores import ExampleScores
from bertvision.evaluation.metrics.calibration import (
    BOUNDS,
    GRADED,
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
    """One temperature for each sort of probability that a predictor gives, fitted on its verdict on inner.

    Where inner holds no mistake, the likelihood asks for the lowest temperature there is; how sure to
    be is then not known, and the probabilities stay as they are.
    """
    found = {} if inner is None or inner.example_scores is None else _fitted(inner, inner.example_scores)
    return {what: 1.0 if temperature <= BOUNDS[0] else temperature for what, temperature in found.items()}


def _fitted(inner: SplitScores, example_scores: ExampleScores) -> dict[str, float]:
    if example_scores.outputs is not None:
        return {"label": _label_temperature(example_scores.outputs, example_scores.gold)}
    if example_scores.spans is None:
        return {}
    found = {"answer": fit_confidence_temperature(*_choices(inner))}
    if inner.threshold is not None:
        found["no_answer"] = fit_no_answer_temperature(
            example_scores.spans.no_answer, ~example_scores.gold, inner.threshold
        )
    return found


def _label_temperature(outputs: Floats, gold: NDArray[Any]) -> float:
    """Examples that no window could be made for are left out; each of several labels is a yes or no of its own."""
    if gold.ndim == 2:
        return fit_no_answer_temperature(outputs.ravel(), gold.ravel())
    graded = np.abs(outputs).max(1) <= GRADED
    return fit_temperature(outputs[graded], gold[graded]) if graded.any() else 1.0


def _choices(result: SplitScores) -> tuple[Floats, NDArray[np.bool_]]:
    """(scores of the best spans and, lowered by the threshold, of no answer; whether what was said is right).

    Questions that no window could be made for are left out.
    """
    example_scores = result.example_scores
    assert example_scores is not None
    assert example_scores.spans is not None
    spans = example_scores.spans.spans  # (examples, TOP_K)
    asked = np.isfinite(spans[:, 0])
    if result.threshold is not None:
        null = spans[:, 0] + example_scores.spans.no_answer - result.threshold
        spans = np.concatenate([spans, null[:, None]], axis=1)
    return spans[asked], example_scores.means["exact"][asked] == 1


def stated(result: SplitScores, what: str, temperature: float) -> tuple[Floats, NDArray[np.bool_]]:
    """(probability, whether it came true) for every example of a verdict."""
    example_scores = result.example_scores
    assert example_scores is not None
    if what == "label":
        assert example_scores.outputs is not None
        if example_scores.gold.ndim == 2:
            return no_answer_probability(example_scores.outputs.ravel(), 0.0, temperature), example_scores.gold.ravel()
        return top_choice(example_scores.outputs, example_scores.gold, temperature)
    if what == "answer":
        choices, right = _choices(result)
        return top_choice(choices, choices.argmax(1), temperature)[0], right
    assert example_scores.spans is not None
    return no_answer_probability(
        example_scores.spans.no_answer, result.threshold or 0.0, temperature
    ), ~example_scores.gold


def calibration(scored: ScoredPredictions) -> dict[str, dict[str, float]]:
    """By sort of probability: the temperature of inner, and the calibration error without it and with it."""
    return {
        what: {
            "temperature": temperature,
            "ece_raw": expected_calibration_error(*stated(scored.result, what, 1.0), bins=BINS),
            "ece": expected_calibration_error(*stated(scored.result, what, temperature), bins=BINS),
        }
        for what, temperature in temperatures(scored.inner).items()
    }


def reliability(scored: ScoredPredictions, found: Mapping[str, Mapping[str, float]]) -> list[Reliability]:
    """The bins behind :func:`calibration`, for a picture."""
    one = scored.predictions
    return [
        Reliability(one.name, one.seed, what, _bins(scored, what, 1.0), _bins(scored, what, told["temperature"]))
        for what, told in found.items()
    ]


def _bins(scored: ScoredPredictions, what: str, temperature: float) -> tuple[tuple[float, float, int], ...]:
    bins = reliability_bins(*stated(scored.result, what, temperature), bins=BINS)
    return tuple((one.confidence, one.accuracy, one.count) for one in bins)
