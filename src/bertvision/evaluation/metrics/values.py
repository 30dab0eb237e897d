"""Scores of predicted values: two correlations and an error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics import check_rows

Floats = NDArray[np.float64]


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation in -1..1; 0 if one side is constant, since a constant tells nothing.

    The cosine of the two deviations from the mean. Values near 1e308 have no finite mean: 0 as well.
    """
    return _cosine(_deviations(np.asarray(gold, np.float64)), _deviations(np.asarray(predicted, np.float64)))


def spearmanr(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation of the ranks (equal values share their mean rank); 0 if one side is constant."""
    return _cosine(_deviations(_ranks(gold)), _deviations(_ranks(predicted)))


def _cosine(one: Floats, other: Floats) -> float:
    length = math.sqrt(float(one @ one) * float(other @ other))
    return min(1.0, max(-1.0, float(one @ other) / length)) if length > 0 else 0.0


def _deviations(numbers: Floats) -> Floats:
    """Deviations from the mean, scaled so that the largest is 1 and no square is lost; all 0 if there are none."""
    if numbers.min() == numbers.max():  # its rounded mean may be off by a bit
        return np.zeros(len(numbers))
    with np.errstate(all="ignore"):
        deviations = numbers - numbers.mean()
        largest = float(np.abs(deviations).max())
        return deviations / largest if 0 < largest < math.inf else np.zeros(len(numbers))


def _ranks(values: Sequence[float]) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


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
