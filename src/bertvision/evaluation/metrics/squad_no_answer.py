"""SQuAD 2.0 scores of a system that also says how probable "no answer" is, as the official script defines them.

The predictions are answers, each question has a no-answer probability (any number that grows with
the belief in "no answer" will do), and a threshold overrules: where the probability is above it, the
question counts as unanswered. ``best_exact`` and ``best_f1`` are the scores at the thresholds that
are best on these very questions. That is an oracle: an upper bound, not a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics.json_files import read_by_id
from bertvision.evaluation.metrics.squad import require_all, score_examples, summarise

Golds = Mapping[str, Sequence[str]]
Pairs = Mapping[str, tuple[float, float]]


def no_answer_scores(
    golds: Golds, predictions: Mapping[str, str], na_probs: Mapping[str, float], threshold: float = 1.0
) -> dict[str, float]:
    """Scores at ``threshold`` under the official names, then both oracles, each with its threshold."""
    scores = score_examples(golds, predictions)
    require_all(golds, na_probs, "no-answer probability", "one for every question")
    result = summarise(golds, overruled(golds, scores, na_probs, threshold))
    for name, part in (("exact", 0), ("f1", 1)):
        single = {qid: pair[part] for qid, pair in scores.items()}
        result[f"best_{name}"], result[f"best_{name}_thresh"] = best_by_sweep(golds, predictions, single, na_probs)
    return result


def overruled(golds: Golds, scores: Pairs, na_probs: Mapping[str, float], threshold: float) -> Pairs:
    """(exact, f1) by question; above the threshold 1 where no gold answer is listed, else 0."""
    silent = {True: (0.0, 0.0), False: (1.0, 1.0)}  # by: is there an answer?
    return {qid: silent[bool(golds[qid])] if na_probs[qid] > threshold else pair for qid, pair in scores.items()}


def best_by_sweep(
    golds: Golds, predictions: Mapping[str, str], scores: Mapping[str, float], na_probs: Mapping[str, float]
) -> tuple[float, float]:
    """(best score in percent, threshold): start with everything unanswered, answer one question after the other.

    Questions go by rising probability, equal ones in the order of ``na_probs``. Answering adds the
    score of a question that has an answer, and takes 1 from one that has none if the prediction is
    not empty. A total counts as soon as it is reached, even between questions that no threshold can
    tell apart, so with ties the best score may be more than its threshold gives. That is the official
    definition; :func:`bertvision.evaluation.metrics.squad.best_threshold` keeps ties together.
    """
    total: float = sum(not golds[qid] for qid in scores)
    best, threshold = total, 0.0
    for qid in sorted((qid for qid in na_probs if qid in scores), key=na_probs.__getitem__):
        total += scores[qid] if golds[qid] else -bool(predictions[qid])
        if total > best:
            best, threshold = total, na_probs[qid]
    return 100 * best / len(scores), threshold


def read_na_probs(path: Path) -> dict[str, float]:
    """No-answer probabilities by question id: one object {"id": 0.3, ...}, in the order of the file."""
    found: dict[str, float] = {}
    for qid, value in read_by_id(path, '{"question id": no-answer probability, ...}').items():
        number = _finite_number(value)
        if number is None:
            raise BadInput(f"{path}: $[{shorten(qid)}]: got {shorten(value)}, expected a finite number")
        found[qid] = number
    return found


def _finite_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
