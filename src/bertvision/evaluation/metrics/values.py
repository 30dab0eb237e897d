"""Metrics of predicted values: Pearson and Spearman correlation, and RMSE.

Correlations are implemented twice, because neither form can replace the other. Tests compare the two.

- ``pearson`` and ``spearmanr`` score all examples, from deviations from the mean. The sums below lose what is huge,
  tiny or almost constant: 1, 2, 3 against 1e200, 2e200, 4e200 correlates 0.98 from deviations and 0 from sums. On usual
  values the two differ in the last bits, so that one form would change published scores.
- ``pearson_score`` and ``SpearmanScore`` score resamples, from sums over examples, so that thousands of resamples are
  one matrix product. Deviations cannot be shared like this, because every resample has its own mean and ranks.
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

EPS = 1e-9  # a smaller sum of squares of standardised values is a rounding error


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation in -1..1; 0 if one side is constant, or so large that its mean is infinite."""
    x, y = _deviations(np.asarray(gold, np.float64)), _deviations(np.asarray(predicted, np.float64))
    return float(_cosine(x @ y, x @ x, y @ y))


def spearmanr(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation of the ranks (equal values share their mean rank); 0 if one side is constant."""
    x, y = (_ranks(np.asarray(values), np.ones((1, len(values))))[0] for values in (gold, predicted))
    return pearson(x, y)


def _deviations(values: Floats) -> Floats:
    """Deviations from the mean, scaled so that the largest is 1 and squares do not underflow; 0 if constant."""
    if values.min() == values.max():  # the mean of constant values may differ from them by rounding
        return np.zeros(len(values))
    with np.errstate(all="ignore"):
        deviations = values - values.mean()
        largest = float(np.abs(deviations).max())
        return deviations / largest if 0 < largest < math.inf else np.zeros(len(values))


def _cosine(xy: Floats, xx: Floats, yy: Floats) -> Floats:
    """xy / sqrt(xx · yy), 0 where a side is constant."""
    constant = (xx <= EPS) | (yy <= EPS)
    norms = np.sqrt(np.where(constant, 1.0, xx * yy))
    return np.where(constant, 0.0, np.clip(xy / norms, -1, 1))


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Ranks (draws, examples) from 1 of values that occur ``weights`` times; ties share their mean rank."""
    levels, indices = np.unique(values, return_inverse=True)
    order = np.argsort(indices, kind="stable")
    starts = np.searchsorted(indices[order], np.arange(len(levels)))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, levels)
    ranks = np.cumsum(counts, axis=1) - (counts - 1) / 2  # (draws, levels)
    return np.asarray(ranks[:, indices])


def pearson_score(gold: NDArray[Any], predicted: NDArray[Any]) -> SumScore:
    """Pearson correlation from the sums of both sides, their squares and their product.

    Both sides are standardised, for precision and so that swapping predictions between predictors of
    different scales is meaningful.
    """
    x, y = _standardise(gold), _standardise(predicted)
    return SumScore(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], 1), _pearson)


def _pearson(sums: Floats) -> Floats:
    total, x, y, xx, yy, xy = sums.T
    return _cosine(xy - x * y / total, xx - x * x / total, yy - y * y / total)


def _standardise(values: NDArray[Any]) -> Floats:
    numbers = np.asarray(values, np.float64)
    std = float(numbers.std())
    return np.asarray((numbers - numbers.mean()) / std) if std > 0 else np.zeros(len(numbers))


@dataclass(frozen=True)
class SpearmanScore:
    """Spearman correlation; every resample is ranked again.

    Examples are sorted once: a rank in a resample is the number of draws before it plus half of its ties.
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
        """Pearson correlation of the ranks among all examples, which swapping does not recompute."""
        once = np.ones((1, len(self.gold)))
        return pearson_score(*(_ranks(values, once)[0] for values in (self.gold, self.predicted)))


def rmse(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Root mean squared error, in the unit of the data."""
    return math.dist(gold, predicted) / math.sqrt(len(gold))


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """pearson and spearmanr in percent, and rmse."""
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
