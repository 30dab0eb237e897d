"""The BERTVision paper's EM and F1, computed over word pieces without normalising answers.

Only these scores are comparable with the paper's tables: articles, punctuation and every ``##`` piece count,
whereas the official script drops articles and punctuation and compares whole words. With several gold
answers the best score counts; without any, only the empty prediction is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bertvision.evaluation.metrics import check_rows
from bertvision.evaluation.metrics.squad import split_by_answerability

Pieces = Sequence[int]
"""Word-piece ids of an answer, in order; empty for "no answer"."""


def exact(gold: Pieces, pred: Pieces) -> float:
    """1 if both have the same pieces in the same order, else 0."""
    return float(tuple(gold) == tuple(pred))


def f1(gold: Pieces, pred: Pieces) -> float:
    """2 · |gold ∩ pred| / (|gold| + |pred|) over bags of pieces; 1 for two empty answers."""
    if not len(gold) and not len(pred):
        return 1.0
    shared = (Counter(gold) & Counter(pred)).total()
    return 2 * shared / (len(gold) + len(pred))


def paper_scores(golds: Sequence[Sequence[Pieces]], predicted: Sequence[Pieces]) -> dict[str, float]:
    """legacy_exact and legacy_f1 in percent, from the gold answers and the prediction of each question.

    With prefix ``HasAns_`` and ``NoAns_``: over the questions with and without gold answers, if there are any.
    """
    check_rows(golds, predicted)
    rows = list(zip(golds, predicted, strict=True))
    metrics: dict[str, Callable[[Pieces, Pieces], float]] = {"legacy_exact": exact, "legacy_f1": f1}
    scores = {}
    for prefix, part in split_by_answerability([bool(texts) for texts in golds], rows).items():
        for name, score in metrics.items():
            best = [max(score(gold, answer) for gold in texts or [()]) for texts, answer in part]
            scores[prefix + name] = 100 * sum(best) / len(part)
    return scores
