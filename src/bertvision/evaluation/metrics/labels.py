"""Scores of predicted labels, each a function of three counts per label: right, in gold, predicted.

Counts of all examples give the score; counts of many resamples give as many scores at once. Labels
are numbered 0, 1, ...; of two, 1 is the positive one (as in GLUE).
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
    """Share of rows that are right."""
    return _share(right.sum(1), gold.sum(1))


def f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """2·TP / (2·TP + FP + FN) of label 1; 0 where label 1 occurs nowhere."""
    return _share(2 * right[:, 1], gold[:, 1] + predicted[:, 1])


def macro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Mean F1 over the labels that occur, in gold or predicted: one that never occurs has no F1 to average."""
    return _share(_share(2 * right, gold + predicted).sum(1), (gold + predicted > 0).sum(1))


def matthews_correlation(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Correlation of the two labellings in -1..1 (Gorodkin's, for more than two labels); 0 if one is constant.

    With g and p the rows per label in gold and predicted, n rows, c of them right:
    (c·n - g·p) / sqrt((n² - g·g)(n² - p·p)).
    """
    total = gold.sum(1)
    spread = (total**2 - (gold**2).sum(1)) * (total**2 - (predicted**2).sum(1))
    return _share(right.sum(1) * total - (gold * predicted).sum(1), np.sqrt(spread))


def f1_micro(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """2·TP / (2·TP + FP + FN) over all rows and labels together; 0 where nothing is labelled anywhere."""
    return _share(2 * right.sum(1), (gold + predicted).sum(1))


def f1_macro(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """Mean over all labels of each one's F1; a label that occurs nowhere has 0."""
    return np.asarray(_share(2 * right, gold + predicted).mean(1))


def _share(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, 0 where there is no whole."""
    return np.asarray(part / np.where(whole == 0, 1, whole) * (whole != 0), np.float64)


# Counts (draws, labels) of right, gold and predicted to scores (draws,).
LABEL_SCORES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews_correlation,
    "f1_micro": f1_micro,
    "f1_macro": f1_macro,
}


def label_score(metric: str, gold: NDArray[Any], predicted: NDArray[Any], labels: int) -> SumScore:
    """A score that can be resampled; gold and predicted are one label a row, or marks (examples, labels)."""
    if gold.ndim == 1:
        gold, predicted = (values[:, None] == np.arange(labels) for values in (gold, predicted))
    columns = np.concatenate([gold & predicted, gold, predicted], axis=1).astype(np.float64)  # (examples, 3 labels)
    return SumScore(columns, lambda sums: LABEL_SCORES[metric](*np.split(sums, 3, axis=1)))


def classification_scores(gold: Sequence[int], predicted: Sequence[int], labels: int) -> dict[str, float]:
    """accuracy, f1 (two labels only), macro_f1 and matthews_correlation, times 100."""
    check_rows(gold, predicted)
    _check_labels("gold", gold, labels)
    _check_labels("predicted", predicted, labels)
    truth, said = np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    counts = np.stack([np.bincount(rows, minlength=labels) for rows in (truth[truth == said], truth, said)])
    if labels == 2:
        return _points(["accuracy", "f1", "macro_f1", "matthews_correlation"], counts)
    # Labels that never occur are left out: among eight or more they would change how the sum of macro-F1 is rounded.
    return _points(["accuracy", "macro_f1", "matthews_correlation"], counts[:, counts[1] + counts[2] > 0])


def _check_labels(side: str, values: Sequence[int], labels: int) -> None:
    for row, value in enumerate(values):
        if value not in range(labels):
            raise BadInput(f"{side} row {row}: got label {shorten(value)}, expected a whole number 0..{labels - 1}")


def multilabel_scores(gold: Marks, predicted: Marks) -> dict[str, float]:
    """f1_micro, f1_macro and exact (the share of rows whose labels are all right, and none too many), times 100."""
    if gold.shape != predicted.shape or gold.ndim != 2 or not gold.size:
        raise BadInput(f"got marks of shape {gold.shape} and {predicted.shape}; expected the same (rows, labels)")
    gold, predicted = gold.astype(bool), predicted.astype(bool)
    counts = np.stack([marks.sum(0) for marks in (gold & predicted, gold, predicted)])
    exact = float(np.mean((gold == predicted).all(1)))
    return {**_points(["f1_micro", "f1_macro"], counts), "exact": 100 * exact}


def _points(metrics: Sequence[str], counts: NDArray[np.int64]) -> dict[str, float]:
    """Scores times 100 of counts (3, labels): right, gold, predicted."""
    once = counts[:, None].astype(np.float64)  # (3, draws = 1, labels)
    return {metric: 100 * float(LABEL_SCORES[metric](*once)[0]) for metric in metrics}


def best_micro_threshold(gold: Marks, outputs: NDArray[np.float64]) -> float:
    """The threshold t at which ``outputs >= t`` has the largest micro-F1; the one nearest 0 of equals.

    Every cut between two neighbouring outputs is tried: with the s largest taken for yes, and TP(s)
    of them right, F1 = 2·TP(s) / (s + labels in gold). A cut lies midway, so that it is as far from
    either side as can be.
    """
    levels, places = np.unique(outputs, return_inverse=True)  # (levels,), ascending
    said = np.bincount(places.ravel())[::-1].cumsum()[::-1]  # outputs at each level and above
    right = np.bincount(places.ravel(), weights=gold.ravel())[::-1].cumsum()[::-1]
    f1 = 2 * right / (said + gold.sum())
    cuts = np.concatenate([[levels[0] - 1.0], _between(levels)])  # (levels,): below each level
    best = np.flatnonzero(f1 == f1.max())
    return float(cuts[best[np.argmin(np.abs(cuts[best]))]]) if f1.max() > 0 else 0.0


def _between(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Midway to the level below; the level itself where rounding leaves no number in between."""
    middle = (levels[:-1] + levels[1:]) / 2
    return np.where(middle > levels[:-1], middle, levels[1:])
