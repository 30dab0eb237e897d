"""Scores of predicted values: two correlations and an error.

A correlation is written down twice: of the values themselves, with deviations from their own mean, so
that neither huge nor almost constant values spoil it; and of sums over examples, so that thousands of
resamples are one product. Tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics import check_rows
from bertvision.evaluation.metrics.bootstrap import ClusterIds, Floats, SumScore

FLAT = 1e-9  # a sum of squares of values of spread 1 below this is rounding


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation in -1..1; 0 if one side is constant, since a constant tells nothing.

    The cosine of the two deviations from the mean. Values near 1e308 have no finite mean: 0 as well.
    """
    x, y = _deviations(np.asarray(gold, np.float64)), _deviations(np.asarray(predicted, np.float64))
    return float(_cosine(x @ y, x @ x, y @ y))


def spearmanr(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation of the ranks (equal values share their mean rank); 0 if one side is constant."""
    x, y = (_ranks(np.asarray(values), np.ones((1, len(values))))[0] for values in (gold, predicted))
    return pearson(x, y)


def _deviations(numbers: Floats) -> Floats:
    """Deviations from the mean, scaled so that the largest is 1 and no square is lost; all 0 if there are none."""
    if numbers.min() == numbers.max():  # its rounded mean may be off by a bit
        return np.zeros(len(numbers))
    with np.errstate(all="ignore"):
        deviations = numbers - numbers.mean()
        largest = float(np.abs(deviations).max())
        return deviations / largest if 0 < largest < math.inf else np.zeros(len(numbers))


def _cosine(both: Floats, one: Floats, other: Floats) -> Floats:
    """both / sqrt(one · other), 0 where a side does not vary."""
    flat = (one <= FLAT) | (other <= FLAT)
    lengths = np.sqrt(np.where(flat, 1.0, one * other))
    return np.where(flat, 0.0, np.clip(both / lengths, -1, 1))


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Ranks (draws, examples) from 1 of values that occur ``weights`` times; equal values share their mean rank."""
    levels, positions = np.unique(values, return_inverse=True)
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(levels)))
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, levels)
    ranks = np.cumsum(drawn, axis=1) - (drawn - 1) / 2
    return np.asarray(ranks[:, positions])


def pearson_score(gold: NDArray[Any], predicted: NDArray[Any]) -> SumScore:
    """Out of the sums of both, their squares and their product.

    Both at mean 0 and spread 1: no square is lost, and predictors of another scale swap like with like.
    """
    x, y = _scaled(gold), _scaled(predicted)
    return SumScore(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], 1), _pearson)


def _pearson(sums: Floats) -> Floats:
    total, x, y, xx, yy, xy = sums.T
    return _cosine(xy - x * y / total, xx - x * x / total, yy - y * y / total)


def _scaled(values: NDArray[Any]) -> Floats:
    numbers = np.asarray(values, np.float64)
    spread = float(numbers.std())
    return np.asarray((numbers - numbers.mean()) / spread) if spread > 0 else np.zeros(len(numbers))


@dataclass(frozen=True)
class Ranked:
    """Spearman's correlation: every resample is ranked anew.

    Sorted once, an example's rank in a resample is what was drawn before it and half of its equals.
    """

    gold: Floats  # (examples,)
    predicted: Floats  # (examples,)

    def of(self, counts: Floats, members: ClusterIds) -> Floats:
        weights = counts[:, members]  # (draws, examples)
        x, y = (_ranks(values, weights) for values in (self.gold, self.predicted))  # (draws, examples)
        total = weights.sum(1, keepdims=True)
        x, y = (ranks - (weights * ranks).sum(1, keepdims=True) / total for ranks in (x, y))
        return _cosine((weights * x * y).sum(1), (weights * x * x).sum(1), (weights * y * y).sum(1))

    def sums(self) -> SumScore:
        """Pearson's of the ranks in the whole, which a swap leaves as they are."""
        once = np.ones((1, len(self.gold)))
        return pearson_score(*(_ranks(values, once)[0] for values in (self.gold, self.predicted)))


def rmse(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """sqrt(mean (gold - predicted)²), in the unit of the data."""
    return math.dist(gold, predicted) / math.sqrt(len(gold))


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """pearson and spearmanr times 100, and rmse as it is."""
    check_rows(gold, predicted)
    _check_finite("gold", gold)
    _check_finite("predicted", predicted)
    return {
        "pearson": 100 * pearson(gold, predicted),
        "spearmanr": 100 * spearmanr(gold, predicted),
        "rmse": rmse(gold, predicted),
    }


def _check_finite(side: str, values: Sequence[float]) -> None:
    for row, value in enumerate(values):
        if not math.isfinite(value):
            raise BadInput(f"{side} row {row}: got {shorten(value)}, expected a finite number")
