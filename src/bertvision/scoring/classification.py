"""Scores of predicted labels. Labels are numbered 0, 1, ...; of two, 1 is the positive one (as in GLUE)."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.errors import BadInput, shorten
from bertvision.scoring import check_rows


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows that are right."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(gold, predicted))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """2·TP / (2·TP + FP + FN) of label 1; 0 where label 1 occurs nowhere."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, labels=[1], average="macro", zero_division=0.0))


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the labels that occur, in gold or predicted: one that never occurs has no F1 to average."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, average="macro", zero_division=0.0))


def matthews_correlation(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Correlation of the two labellings in -1..1 (Gorodkin's, for more than two labels); 0 if one is constant."""
    from sklearn.metrics import matthews_corrcoef

    if len(set(gold)) == 1 or len(set(predicted)) == 1:
        return 0.0
    return float(matthews_corrcoef(gold, predicted))


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
