"""Scores of predicted values: two correlations and an error."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from bertvision.errors import BadInput, shorten
from bertvision.scoring import check_rows


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation in -1..1; 0 if one side is constant, since a constant tells nothing."""
    from scipy import stats

    if _constant(gold) or _constant(predicted):
        return 0.0
    with warnings.catch_warnings():
        # Almost constant values cost digits, and values near 1e308 overflow to NaN: poor predictors, not accidents.
        warnings.simplefilter("ignore", category=RuntimeWarning)
        value = float(stats.pearsonr(gold, predicted).statistic)
    return 0.0 if math.isnan(value) else value


def spearmanr(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Linear correlation of the ranks (equal values share their mean rank); 0 if one side is constant."""
    from scipy import stats

    if _constant(gold) or _constant(predicted):
        return 0.0
    return float(stats.spearmanr(gold, predicted).statistic)


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


def _constant(values: Sequence[float]) -> bool:
    return min(values) == max(values)


def _check_finite(side: str, values: Sequence[float]) -> None:
    for row, value in enumerate(values):
        if not math.isfinite(value):
            raise BadInput(f"{side} row {row}: got {shorten(value)}, expected a finite number")
