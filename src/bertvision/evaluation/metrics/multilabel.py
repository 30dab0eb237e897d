"""Scores where a row has any number of labels. Gold and predicted are (rows, labels), true where a row has a label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput

Marks = NDArray[np.bool_]


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
