"""Do probabilities mean what they say? One temperature to mend them, and the error that is left.

Guo et al. 2017, https://arxiv.org/abs/1706.04599. Dividing logits by a temperature T changes no
decision, only how sure it sounds. T is fitted where nothing was trained and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput

Floats = NDArray[np.float64]

BOUNDS = (0.05, 20.0)
"""Temperatures: labels that the logits separate perfectly would else ask for 0, useless ones for infinity."""

GRID = 25
LEAST = 1e-12  # of a probability in a logarithm

LARGEST_NO_ANSWER_SCORE = 1e6
"""A no-answer score beyond this is a stand-in for "nothing to answer with", and says nothing of T."""


def log_probabilities(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    """log softmax(logits / T) over the last axis; -inf is a choice that a row does not have."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    shifted = scaled - scaled.max(-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def negative_log_likelihood(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> float:
    """Mean of -log p(label) at a temperature, (rows, choices) and (rows,)."""
    picked = np.asarray(labels, dtype=np.int64)[:, None]
    return -float(np.take_along_axis(log_probabilities(logits, temperature), picked, 1).mean())


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The T within bounds that minimises the negative log likelihood; 1 where none is better than that.

    The likelihood is convex in 1/T, so that the search over log T meets one valley only.
    """
    rows, picked = _check_rows(logits, labels)
    return _lowest(lambda temperature: negative_log_likelihood(rows, picked, temperature), *BOUNDS)


def _lowest(loss: Callable[[float], float], low: float, high: float) -> float:
    """The temperature between two with the lowest loss; 1 where none is better than that."""
    from scipy.optimize import minimize_scalar

    ends = (float(np.log(low)), float(np.log(high)))
    found = minimize_scalar(
        lambda log_t: loss(float(np.exp(log_t))), bounds=ends, method="bounded", options={"xatol": 1e-6}
    )
    candidates = [1.0, float(np.exp(found.x)), low, high]  # the search stops just short of a bound
    losses = [loss(candidate) for candidate in candidates]
    best = int(np.argmin(losses))
    return candidates[best] if losses[best] < losses[0] - 1e-12 else 1.0


def fit_confidence_temperature(choices: ArrayLike, right: ArrayLike) -> float:
    """The T within bounds that best tells how often the likeliest choice is right: the one that minimises

    -log p where it is right and -log(1 - p) where it is not, p being its share at T. For choices that
    need not hold the right one, as the spans of a window: there the likelihood of the right choice is
    not defined. This loss may have several valleys, so a coarse grid finds the deepest first.
    """
    rows, true = np.asarray(choices, dtype=np.float64), np.asarray(right, dtype=bool)
    if not len(rows):
        return 1.0
    shifted = rows - rows.max(-1, keepdims=True)

    def loss(temperature: float) -> float:
        share = 1 / np.exp(shifted / temperature).sum(-1)
        return -float(np.log(np.maximum(np.where(true, share, 1 - share), LEAST)).mean())

    grid = np.geomspace(*BOUNDS, GRID)
    best = int(np.argmin([loss(float(temperature)) for temperature in grid]))
    return _lowest(loss, float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)]))


def fit_no_answer_temperature(scores: ArrayLike, unanswerable: ArrayLike, threshold: float = 0.0) -> float:
    """The T of :func:`no_answer_probability`: the choice between answering (logit 0) and not (score - threshold)."""
    margins = np.asarray(scores, dtype=np.float64) - threshold
    graded = np.abs(margins) <= LARGEST_NO_ANSWER_SCORE
    if not graded.any():
        return 1.0
    choices = np.stack([np.zeros(int(graded.sum())), margins[graded]], axis=1)  # (questions, 2)
    return fit_temperature(choices, np.asarray(unanswerable, dtype=np.int64)[graded])


def no_answer_probability(scores: ArrayLike, threshold: float = 0.0, temperature: float = 1.0) -> Floats:
    """sigmoid((score - threshold) / T); one half exactly where the threshold turns an answer into none.

    Of a label that may be there or not, the logit is the score.
    """
    from scipy.special import expit

    result: Floats = expit((np.asarray(scores, dtype=np.float64) - threshold) / temperature)
    return result


def top_choice(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> tuple[Floats, NDArray[np.bool_]]:
    """(confidence, correct) of the likeliest choice of each row, as the errors below take them."""
    shares = np.exp(log_probabilities(logits, temperature))
    return shares.max(-1), shares.argmax(-1) == np.asarray(labels)


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions of about the same confidence: how sure they were on average, and how often right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability_bins(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, adaptive: bool = False
) -> list[ReliabilityBin]:
    """Bins (low, high] with predictions in them: of equal width over 0..1 or, ``adaptive``, of about equal count.

    Equal confidences always share a bin, so that the order of the rows cannot matter.
    """
    sure, right = _check_confidence(confidence, correct, bins)
    edges = _equal_counts(sure, bins) if adaptive else np.linspace(0.0, 1.0, bins + 1)
    places = np.searchsorted(edges[1:-1], sure, side="left")  # bin i holds edges[i] < confidence <= edges[i + 1]
    counts = np.bincount(places, minlength=len(edges) - 1)
    sums = [np.bincount(places, weights=values, minlength=len(edges) - 1) for values in (sure, right)]
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


def _equal_counts(sure: Floats, bins: int) -> Floats:
    inner = np.quantile(sure, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def _check_confidence(confidence: ArrayLike, correct: ArrayLike, bins: int) -> tuple[Floats, Floats]:
    sure, right = (np.asarray(values, dtype=np.float64) for values in (confidence, correct))
    if bins < 1:
        raise BadInput(f"bins: got {bins}, expected at least 1")
    if sure.shape != right.shape or sure.ndim != 1 or not len(sure):
        raise BadInput(f"got {sure.shape} confidences for {right.shape} rows; expected one per row, and some")
    if not ((sure >= 0) & (sure <= 1)).all():
        raise BadInput(f"confidence: got {sure.min()} to {sure.max()}, expected shares in 0..1")
    return sure, right


def _check_rows(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Sequence[int]]:
    rows, picked = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if rows.ndim != 2 or picked.shape != rows.shape[:1] or not rows.size:
        raise BadInput(f"got logits {rows.shape} and labels {picked.shape}; expected (rows, choices) and (rows,)")
    if ((picked < 0) | (picked >= rows.shape[1])).any():
        raise BadInput(f"labels: got {picked.min()} to {picked.max()}, expected 0..{rows.shape[1] - 1}")
    if not np.isfinite(rows[np.arange(len(rows)), picked]).all() or np.isnan(rows).any() or (rows == np.inf).any():
        raise BadInput("logits: got one that is not finite; expected numbers (-inf only where a choice is missing)")
    return rows, picked.tolist()
