"""Metrics of predicted labels, as functions of three counts per label: right, in gold, predicted.

Counts of many resamples give as many scores at once. Labels are indices 0, 1, ...; of two labels, 1 is the
positive class (as in GLUE).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics import check_rows
from bertvision.evaluation.metrics.bootstrap import SumScore

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]  # (examples, labels)


def accuracy(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Fraction of rows that are right."""
    return _ratio(right.sum(1), gold.sum(1))


def f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """2·TP / (2·TP + FP + FN) of label 1; 0 if label 1 does not occur."""
    return _ratio(2 * right[:, 1], gold[:, 1] + predicted[:, 1])


def macro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Mean F1 over the labels that occur in gold or predicted."""
    return _ratio(_ratio(2 * right, gold + predicted).sum(1), (gold + predicted > 0).sum(1))


def matthews_correlation(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Matthews correlation in -1..1 (Gorodkin's for more than two labels); 0 if one side is constant.

    With g and p the rows per label in gold and predicted, n rows, c of them right:
    (c·n - g·p) / sqrt((n² - g·g)(n² - p·p)).
    """
    total = gold.sum(1)
    variances = (total**2 - (gold**2).sum(1)) * (total**2 - (predicted**2).sum(1))
    return _ratio(right.sum(1) * total - (gold * predicted).sum(1), np.sqrt(variances))


def f1_micro(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """2·TP / (2·TP + FP + FN) over all rows and labels together; 0 without any gold or predicted label."""
    return _ratio(2 * right.sum(1), (gold + predicted).sum(1))


def f1_macro(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Mean F1 over all labels; a label that does not occur has F1 0."""
    return np.asarray(_ratio(2 * right, gold + predicted).mean(1))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, 0 where whole is 0."""
    return np.asarray(part / np.where(whole == 0, 1, whole) * (whole != 0), np.float64)


# Functions of counts (draws, labels) of right, gold and predicted that return scores (draws,).
LABEL_SCORES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews_correlation,
    "f1_micro": f1_micro,
    "f1_macro": f1_macro,
}


def label_score(metric: str, gold: NDArray[Any], predicted: NDArray[Any], labels: int) -> SumScore:
    """A metric that can be resampled; gold and predicted are labels (examples,) or marks (examples, labels)."""
    if gold.ndim == 1:
        gold, predicted = (values[:, None] == np.arange(labels) for values in (gold, predicted))
    columns = np.concatenate([gold & predicted, gold, predicted], axis=1).astype(np.float64)  # (examples, 3 labels)
    return SumScore(columns, lambda sums: LABEL_SCORES[metric](*np.split(sums, 3, axis=1)))


def classification_scores(gold: Sequence[int], predicted: Sequence[int], labels: int) -> dict[str, float]:
    """accuracy, f1 (two labels only), macro_f1 and matthews_correlation, in percent."""
    check_rows(gold, predicted)
    _check_labels("gold", gold, labels)
    _check_labels("predicted", predicted, labels)
    y, y_pred = np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    counts = np.stack([np.bincount(rows, minlength=labels) for rows in (y[y == y_pred], y, y_pred)])  # (3, labels)
    if labels == 2:
        return _in_percent(["accuracy", "f1", "macro_f1", "matthews_correlation"], counts)
    # Labels that do not occur are left out: zeros would change the rounding of the sum in macro-F1.
    return _in_percent(["accuracy", "macro_f1", "matthews_correlation"], counts[:, counts[1] + counts[2] > 0])


def _check_labels(side: str, values: Sequence[int], labels: int) -> None:
    for row, value in enumerate(values):
        if value not in range(labels):
            raise BadInput(f"{side} row {row}: got label {shorten(value)}, expected an integer 0..{labels - 1}")


def multilabel_scores(gold: Marks, predicted: Marks) -> dict[str, float]:
    """f1_micro, f1_macro and exact (the fraction of rows with exactly the right labels), in percent."""
    if gold.shape != predicted.shape or gold.ndim != 2 or not gold.size:
        raise BadInput(f"got marks of shape {gold.shape} and {predicted.shape}; expected the same (rows, labels)")
    gold, predicted = gold.astype(bool), predicted.astype(bool)
    counts = np.stack([marks.sum(0) for marks in (gold & predicted, gold, predicted)])
    exact = float(np.mean((gold == predicted).all(1)))
    return {**_in_percent(["f1_micro", "f1_macro"], counts), "exact": 100 * exact}


def _in_percent(metrics: Sequence[str], counts: NDArray[np.int64]) -> dict[str, float]:
    """Metrics in percent from the counts right, gold and predicted (3, labels)."""
    once = counts[:, None].astype(np.float64)  # (3, draws = 1, labels)
    return {metric: 100 * float(LABEL_SCORES[metric](*once)[0]) for metric in metrics}


def best_micro_threshold(gold: Marks, outputs: NDArray[np.float64]) -> float:
    """The threshold t that maximises the micro-F1 of ``outputs >= t``; of several, the one closest to 0.

    Candidates lie midway between neighbouring outputs. With the s largest outputs predicted, TP(s) of them
    right, F1 = 2·TP(s) / (s + labels in gold).
    """
    levels, indices = np.unique(outputs, return_inverse=True)  # (levels,), ascending
    predicted = np.bincount(indices.ravel())[::-1].cumsum()[::-1]  # outputs at each level and above
    right = np.bincount(indices.ravel(), weights=gold.ravel())[::-1].cumsum()[::-1]
    f1 = 2 * right / (predicted + gold.sum())
    middles = (levels[:-1] + levels[1:]) / 2
    middles = np.where(middles > levels[:-1], middles, levels[1:])  # rounding may leave no number in between
    cuts = np.concatenate([[levels[0] - 1.0], middles])  # (levels,): below each level
    best = np.flatnonzero(f1 == f1.max())
    return float(cuts[best[np.argmin(np.abs(cuts[best]))]]) if f1.max() > 0 else 0.0
