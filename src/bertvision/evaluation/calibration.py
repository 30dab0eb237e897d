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
from bertvision.evaluation.example_scores import Evidence
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
from bertvision.evaluation.scoring import Judged, Verdict

Floats = NDArray[np.float64]

BINS = 10


def temperatures(inner: Verdict | None) -> dict[str, float]:
    """One temperature for each sort of probability that a predictor gives, fitted on its verdict on inner.

    Where inner holds no mistake, the likelihood asks for the lowest temperature there is; how sure to
    be is then not known, and the probabilities stay as they are.
    """
    found = {} if inner is None or inner.evidence is None else _fitted(inner, inner.evidence)
    return {what: 1.0 if temperature <= BOUNDS[0] else temperature for what, temperature in found.items()}


def _fitted(inner: Verdict, evidence: Evidence) -> dict[str, float]:
    if evidence.outputs is not None:
        return {"label": _label_temperature(evidence.outputs, evidence.gold)}
    if evidence.spans is None:
        return {}
    found = {"answer": fit_confidence_temperature(*_choices(inner))}
    if inner.threshold is not None:
        found["no_answer"] = fit_no_answer_temperature(evidence.spans.no_answer, ~evidence.gold, inner.threshold)
    return found


def _label_temperature(outputs: Floats, gold: NDArray[Any]) -> float:
    """Examples that no window could be made for are left out; each of several labels is a yes or no of its own."""
    if gold.ndim == 2:
        return fit_no_answer_temperature(outputs.ravel(), gold.ravel())
    graded = np.abs(outputs).max(1) <= GRADED
    return fit_temperature(outputs[graded], gold[graded]) if graded.any() else 1.0


def _choices(verdict: Verdict) -> tuple[Floats, NDArray[np.bool_]]:
    """(scores of the best spans and, lowered by the threshold, of no answer; whether what was said is right).

    Questions that no window could be made for are left out.
    """
    evidence = verdict.evidence
    assert evidence is not None
    assert evidence.spans is not None
    spans = evidence.spans.spans  # (examples, TOP_K)
    asked = np.isfinite(spans[:, 0])
    if verdict.threshold is not None:
        null = spans[:, 0] + evidence.spans.no_answer - verdict.threshold
        spans = np.concatenate([spans, null[:, None]], axis=1)
    return spans[asked], evidence.means["exact"][asked] == 1


def stated(verdict: Verdict, what: str, temperature: float) -> tuple[Floats, NDArray[np.bool_]]:
    """(probability, whether it came true) for every example of a verdict."""
    evidence = verdict.evidence
    assert evidence is not None
    if what == "label":
        assert evidence.outputs is not None
        if evidence.gold.ndim == 2:
            return no_answer_probability(evidence.outputs.ravel(), 0.0, temperature), evidence.gold.ravel()
        return top_choice(evidence.outputs, evidence.gold, temperature)
    if what == "answer":
        choices, right = _choices(verdict)
        return top_choice(choices, choices.argmax(1), temperature)[0], right
    assert evidence.spans is not None
    return no_answer_probability(evidence.spans.no_answer, verdict.threshold or 0.0, temperature), ~evidence.gold


def calibration(judged: Judged) -> dict[str, dict[str, float]]:
    """By sort of probability: the temperature of inner, and the calibration error without it and with it."""
    return {
        what: {
            "temperature": temperature,
            "ece_raw": expected_calibration_error(*stated(judged.verdict, what, 1.0), bins=BINS),
            "ece": expected_calibration_error(*stated(judged.verdict, what, temperature), bins=BINS),
        }
        for what, temperature in temperatures(judged.inner).items()
    }


def reliability(judged: Judged, found: Mapping[str, Mapping[str, float]]) -> list[Reliability]:
    """The bins behind :func:`calibration`, for a picture."""
    one = judged.predictions
    return [
        Reliability(one.name, one.seed, what, _bins(judged, what, 1.0), _bins(judged, what, told["temperature"]))
        for what, told in found.items()
    ]


def _bins(judged: Judged, what: str, temperature: float) -> tuple[tuple[float, float, int], ...]:
    bins = reliability_bins(*stated(judged.verdict, what, temperature), bins=BINS)
    return tuple((one.confidence, one.accuracy, one.count) for one in bins)
