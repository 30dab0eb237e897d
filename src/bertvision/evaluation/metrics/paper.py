"""The BERTVision paper's EM and F1: over word pieces as they are, no normalising of answers.

Numbers in its tables can be compared with these and with nothing else: articles, punctuation and
every ``##`` piece count, where the official script drops the first two and knows whole words only.
Several gold answers: the best counts. No gold answer: only the empty prediction is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bertvision.evaluation.metrics import check_rows

Pieces = Sequence[int]
"""Word-piece ids of an answer, in order; none of them is "no answer"."""


def exact(gold: Pieces, pred: Pieces) -> float:
    """1 if both are the same pieces in the same order, else 0."""
    return float(tuple(gold) == tuple(pred))


def f1(gold: Pieces, pred: Pieces) -> float:
    """2 · |gold ∩ pred| / (|gold| + |pred|) over bags of pieces; two empty answers agree fully."""
    if not len(gold) and not len(pred):
        return 1.0
    shared = (Counter(gold) & Counter(pred)).total()
    return 2 * shared / (len(gold) + len(pred))


def legacy_scores(golds: Sequence[Sequence[Pieces]], predicted: Sequence[Pieces]) -> dict[str, float]:
    """legacy_exact and legacy_f1 in percent, by position: each question's gold answers, and what was said.

    ``HasAns_`` and ``NoAns_`` in front: the same over the questions with and without gold answers,
    where there are such.
    """
    check_rows(golds, predicted)
    rows = list(zip(golds, predicted, strict=True))
    scores = _means("", rows)
    for prefix, answerable in (("HasAns_", True), ("NoAns_", False)):
        part = [row for row in rows if bool(row[0]) == answerable]
        if part:
            scores |= _means(prefix, part)
    return scores


def _means(prefix: str, rows: Sequence[tuple[Sequence[Pieces], Pieces]]) -> dict[str, float]:
    metrics: dict[str, Callable[[Pieces, Pieces], float]] = {"legacy_exact": exact, "legacy_f1": f1}
    return {
        f"{prefix}{name}": 100
        * sum(max(score(gold, said) for gold in golds or [()]) for golds, said in rows)
        / len(rows)
        for name, score in metrics.items()
    }
