"""Calibration of probabilities: temperature scaling and expected calibration error.

Guo et al. 2017, https://arxiv.org/abs/1706.04599. Dividing logits by a temperature T changes confidences but
no prediction. T is fitted on the inner split, where nothing was trained and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput

Floats = NDArray[np.float64]

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
"""Bounds of T: without them perfectly separating logits would give 0, and useless ones infinity."""

GRID = 25
CROSS_FOLDS = 5
EPS = 1e-12  # smallest probability in a logarithm

LARGEST_NO_ANSWER_SCORE = 1e6
"""Larger no-answer scores mark questions without any candidate answer; fits leave them out."""


def log_probabilities(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    """log softmax(logits / T) over the last axis; a logit of -inf marks a choice that a row does not have."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    shifted = scaled - scaled.max(-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def negative_log_likelihood(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> float:
    """Mean of -log p(label) at a temperature, for logits (rows, choices) and labels (rows,)."""
    columns = np.asarray(labels, dtype=np.int64)[:, None]  # (rows, 1)
    return -float(np.take_along_axis(log_probabilities(logits, temperature), columns, 1).mean())


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The T within bounds that minimises the negative log likelihood; 1 unless another T is better.

    The negative log likelihood is convex in 1/T, so that the search over log T has no local minima.
    """
    rows, targets = _check_rows(logits, labels)
    return _minimise(
        lambda temperature: negative_log_likelihood(rows, targets, temperature), MIN_TEMPERATURE, MAX_TEMPERATURE
    )


def _minimise(loss: Callable[[float], float], low: float, high: float) -> float:
    """The temperature in an interval with the lowest loss; 1 unless another one is better."""
    from scipy.optimize import minimize_scalar

    bounds = (float(np.log(low)), float(np.log(high)))
    minimum = minimize_scalar(
        lambda log_t: loss(float(np.exp(log_t))), bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    candidates = [1.0, float(np.exp(minimum.x)), low, high]  # the search stops just short of a bound
    losses = [loss(candidate) for candidate in candidates]
    best = int(np.argmin(losses))
    return candidates[best] if losses[best] < losses[0] - 1e-12 else 1.0


def fit_confidence_temperature(choices: ArrayLike, correct: ArrayLike) -> float:
    """The T within bounds at which the confidence of the top choice best predicts whether it is correct.

    Minimises -log p over the correct ones plus -log(1 - p) over the wrong ones, with p the probability of the
    top choice at T. For choices that may not include the correct one, such as the spans of a window, where the
    likelihood of the correct choice is undefined. A coarse grid avoids local minima.
    """
    if not len(np.asarray(correct)):
        return 1.0

    def loss(temperature: float) -> float:
        return confidence_loss(choices, correct, temperature)

    grid = np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, GRID)
    best = int(np.argmin([loss(float(temperature)) for temperature in grid]))
    return _minimise(loss, float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)]))


def confidence_loss(choices: ArrayLike, correct: ArrayLike, temperature: float) -> float:
    """Mean of -log p over correct top choices and -log(1 - p) over wrong ones."""
    confidence = top_probability(choices, temperature)  # (rows,)
    return -float(np.log(np.maximum(np.where(np.asarray(correct, dtype=bool), confidence, 1 - confidence), EPS)).mean())


def cross_fitted(
    fit: Callable[[Floats, NDArray[Any]], float],
    loss: Callable[[Floats, NDArray[Any], float], float],
    choices: ArrayLike,
    outcomes: ArrayLike,
) -> float:
    """The fitted temperature, or 1 if temperatures fitted without some rows do not lower the loss on those rows."""
    rows, labels = np.asarray(choices, dtype=np.float64), np.asarray(outcomes)
    if len(rows) < 2 * CROSS_FOLDS:
        return 1.0
    folds, gain = np.arange(len(rows)) % CROSS_FOLDS, 0.0
    for fold in range(CROSS_FOLDS):
        out = folds == fold
        temperature = fit(rows[~out], labels[~out])
        gain += (loss(rows[out], labels[out], 1.0) - loss(rows[out], labels[out], temperature)) * int(out.sum())
    return fit(rows, labels) if gain > 0 else 1.0


def binary_choices(scores: ArrayLike, present: ArrayLike, threshold: float = 0.0) -> tuple[Floats, NDArray[np.int64]]:
    """Logits 0 (absent) and score - threshold (present), and which is right, of the scores that can be used."""
    margins = np.asarray(scores, dtype=np.float64) - threshold
    valid = np.abs(margins) <= LARGEST_NO_ANSWER_SCORE
    choices = np.stack([np.zeros(int(valid.sum())), margins[valid]], axis=1)  # (scores, 2)
    return choices, np.asarray(present, dtype=np.int64)[valid]


def binary_probability(scores: ArrayLike, threshold: float = 0.0, temperature: float = 1.0) -> Floats:
    """sigmoid((score - threshold) / T), which is 0.5 at the threshold.

    The score is that of no answer, or the logit of one label of a multilabel task.
    """
    from scipy.special import expit

    result: Floats = expit((np.asarray(scores, dtype=np.float64) - threshold) / temperature)
    return result


def top_probability(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    """The probability of the most probable choice of each row."""
    result: Floats = np.exp(log_probabilities(logits, temperature)).max(-1)
    return result


def top_choice(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> tuple[Floats, NDArray[np.bool_]]:
    """(confidence, correct) of the most probable choice of each row, the input of the errors below."""
    probabilities = np.exp(log_probabilities(logits, temperature))
    return probabilities.max(-1), probabilities.argmax(-1) == np.asarray(labels)


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions of similar confidence, with their mean confidence and their accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability_bins(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, adaptive: bool = False
) -> list[ReliabilityBin]:
    """Non-empty bins (low, high] of equal width over 0..1 or, if ``adaptive``, of about equal count.

    Equal confidences always share a bin, so that the order of the rows does not matter.
    """
    sure, right = _check_confidence(confidence, correct, bins)
    edges = np.linspace(0.0, 1.0, bins + 1)
    if adaptive:
        quantiles = np.quantile(sure, np.arange(1, bins) / bins, method="inverted_cdf")
        edges = np.unique(np.concatenate([[0.0], quantiles, [1.0]]))
    indices = np.searchsorted(edges[1:-1], sure, side="left")  # bin i is edges[i] < confidence <= edges[i + 1]
    counts = np.bincount(indices, minlength=len(edges) - 1)
    sums = [np.bincount(indices, weights=values, minlength=len(edges) - 1) for values in (sure, right)]
    return [
        ReliabilityBin(
            float(edges[i]),
            float(edges[i + 1]),
            int(counts[i]),
            float(sums[0][i] / counts[i]),
            float(sums[1][i] / counts[i]),
        )
        for i in np.flatnonzero(counts)
    ]


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, adaptive: bool = False
) -> float:
    """Σ count / n · |accuracy - confidence| over the bins, in 0..1."""
    rows = reliability_bins(confidence, correct, bins, adaptive)
    return sum(row.count * abs(row.accuracy - row.confidence) for row in rows) / sum(row.count for row in rows)


def _check_confidence(confidence: ArrayLike, correct: ArrayLike, bins: int) -> tuple[Floats, Floats]:
    sure, right = (np.asarray(values, dtype=np.float64) for values in (confidence, correct))
    if bins < 1:
        raise BadInput(f"bins: got {bins}, expected at least 1")
    if sure.shape != right.shape or sure.ndim != 1 or not len(sure):
        raise BadInput(f"got {sure.shape} confidences for {right.shape} rows; expected one per row, at least one row")
    if not ((sure >= 0) & (sure <= 1)).all():
        raise BadInput(f"confidence: got {sure.min()} to {sure.max()}, expected probabilities in 0..1")
    return sure, right


def _check_rows(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Sequence[int]]:
    rows, targets = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if rows.ndim != 2 or targets.shape != rows.shape[:1] or not rows.size:
        raise BadInput(f"got logits {rows.shape} and labels {targets.shape}; expected (rows, choices) and (rows,)")
    if ((targets < 0) | (targets >= rows.shape[1])).any():
        raise BadInput(f"labels: got {targets.min()} to {targets.max()}, expected 0..{rows.shape[1] - 1}")
    if not np.isfinite(rows[np.arange(len(rows)), targets]).all() or np.isnan(rows).any() or (rows == np.inf).any():
        raise BadInput("logits: got a value that is not finite; expected numbers (-inf only for missing choices)")
    return rows, targets.tolist()
