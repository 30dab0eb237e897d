"""Scores of predicted labels. Labels are numbered 0, 1, ...; of two, 1 is the positive one (as in GLUE)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics import check_rows

Marks = NDArray[np.bool_]


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows that are right."""
    return float(np.mean(np.equal(gold, predicted)))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """2·TP / (2·TP + FP + FN) of label 1; 0 where label 1 occurs nowhere."""
    true, said = np.equal(gold, 1), np.equal(predicted, 1)
    occurs = true.sum() + said.sum()
    return float(2 * (true & said).sum() / occurs) if occurs else 0.0


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the labels that occur, in gold or predicted: one that never occurs has no F1 to average."""
    table = _confusion(gold, predicted)
    return float(np.mean(2 * table.diagonal() / (table.sum(0) + table.sum(1))))


def matthews_correlation(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Correlation of the two labellings in -1..1 (Gorodkin's, for more than two labels); 0 if one is constant.

    With g and p the rows per label in gold and predicted, n rows, c of them right:
    (c·n - g·p) / sqrt((n² - g·g)(n² - p·p)).
    """
    table = _confusion(gold, predicted)
    n, right, g, p = int(table.sum()), int(table.trace()), table.sum(1), table.sum(0)
    spread = float(n * n - g @ g) * float(n * n - p @ p)
    return float(right * n - g @ p) / math.sqrt(spread) if spread else 0.0


def _confusion(gold: Sequence[int], predicted: Sequence[int]) -> NDArray[np.int64]:
    """Rows by gold and predicted label, for the labels that occur.

    Counted here and not by scikit-learn: intervals ask for thousands of these scores, and its checks
    of the input cost a hundred times the counting.
    """
    labels, numbers = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    one, other = np.split(numbers, 2)
    return np.bincount(one * len(labels) + other, minlength=len(labels) ** 2).reshape(len(labels), -1)


def classification_scores(gold: Sequence[int], predicted: Sequence[int], labels: int) -> dict[str, float]:
    """accuracy, f1 (two labels only), macro_f1 and matthews_correlation, times 100."""
    check_rows(gold, predicted)
    _check_labels("gold", gold, labels)
    _check_labels("predicted", predicted, labels)
    scores = {"accuracy": accuracy(gold, predicted)}
    if labels == 2:
        scores["f1"] = f1(gold, predicted)
    scores["macro_f1"] = macro_f1(gold, predicted)
    scores["matthews_correlation"] = matthews_correlation(gold, predicted)
    return {name: 100 * score for name, score in scores.items()}


def _check_labels(side: str, values: Sequence[int], labels: int) -> None:
    for row, value in enumerate(values):
        if value not in range(labels):
            raise BadInput(f"{side} row {row}: got label {shorten(value)}, expected a whole number 0..{labels - 1}")


def f1_micro(gold: Marks, predicted: Marks) -> float:
    """2·TP / (2·TP + FP + FN) over all rows and labels together; 0 where nothing is labelled anywhere."""
    marked = int(gold.sum() + predicted.sum())
    return 2 * int((gold & predicted).sum()) / marked if marked else 0.0


def f1_macro(gold: Marks, predicted: Marks) -> float:
    """Mean over all labels of each one's F1; a label that occurs nowhere has 0."""
    both, marked = (gold & predicted).sum(0), gold.sum(0) + predicted.sum(0)
    return float(np.mean(2 * both / np.maximum(marked, 1)))


def exact(gold: Marks, predicted: Marks) -> float:
    """Share of rows whose labels are all right, and none too many."""
    return float(np.mean((gold == predicted).all(1)))


def multilabel_scores(gold: Marks, predicted: Marks) -> dict[str, float]:
    """f1_micro, f1_macro and exact, times 100."""
    if gold.shape != predicted.shape or gold.ndim != 2 or not gold.size:
        raise BadInput(f"got marks of shape {gold.shape} and {predicted.shape}; expected the same (rows, labels)")
    gold, predicted = gold.astype(bool), predicted.astype(bool)
    scores = {"f1_micro": f1_micro, "f1_macro": f1_macro, "exact": exact}
    return {name: 100 * score(gold, predicted) for name, score in scores.items()}


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
