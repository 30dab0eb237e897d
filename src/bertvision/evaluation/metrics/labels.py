"""Scores of predicted labels. Labels are numbered 0, 1, ...; of two, 1 is the positive one (as in GLUE)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics import check_rows


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
