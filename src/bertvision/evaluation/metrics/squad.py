"""The official SQuAD 2.0 scores, their files, and the no-answer threshold.

Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822. Answers are compared after lower-casing and
without punctuation, articles and extra space. ``exact`` asks for equality, ``f1`` for shared words.
Several gold answers: the best counts. No gold answer: only the empty answer is right.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

from bertvision.core.errors import BadInput, shorten
from bertvision.tasks.readers.squad_json import answer_objects, question_fields, read_json, read_questions, string_field
from bertvision.tasks.task import BadRow, BadRows

T = TypeVar("T")

_PUNCTUATION = str.maketrans("", "", string.punctuation)

_ARTICLES = re.compile(r"\b(a|an|the)\b")

_LARGEST = 1e300  # beyond it, no finite threshold is safely on the far side of a score

_DECIMALS = 9  # sums of F1 that agree to so many decimals differ by rounding only

Golds = Mapping[str, Sequence[str]]

Pairs = Mapping[str, tuple[float, float]]


def read_by_id(path: Path, expected: str) -> dict[str, object]:
    """The entries of one object, at least one; ``expected`` shows such an object."""
    document = read_json(path, f"one object {expected}")
    if not isinstance(document, dict):
        raise BadInput(f"{path}: $: got {shorten(document)}, expected one object {expected}")
    if not document:
        raise BadInput(f"{path}: $: got no predictions, expected {expected}")
    return document


@lru_cache(maxsize=1 << 16)  # one gold text meets the predictions of every head
def normalize(text: str) -> str:
    """Lower case, no punctuation, then no articles, then single spaces; the order matters ("a.n" is "an")."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(gold: str, pred: str) -> float:
    """1 if the normalised answers are the same, else 0."""
    return float(normalize(gold) == normalize(pred))


def f1(gold: str, pred: str) -> float:
    """2 · precision · recall / (precision + recall) over bags of words.

    Two empty answers agree fully; where nothing is shared the score is 0. Rounded as the official
    script rounds: where sums of F1 tie, the last bit decides which no-answer threshold is best.
    """
    gold_words, pred_words = normalize(gold).split(), normalize(pred).split()
    if not gold_words and not pred_words:
        return 1.0
    shared = (Counter(gold_words) & Counter(pred_words)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(pred_words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def best_over_golds(score: Callable[[str, str], float], golds: Sequence[str], pred: str) -> float:
    """The best score over the golds; a gold with nothing left after normalising is none, and none means "" is right."""
    return max(score(gold, pred) for gold in [g for g in golds if normalize(g)] or [""])


def score_examples(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Per question (exact, f1), each in 0..1; predictions for other questions are ignored."""
    require_all(golds, predictions, "prediction", 'an answer for every question, "" for no answer')
    return {
        qid: (best_over_golds(exact, texts, predictions[qid]), best_over_golds(f1, texts, predictions[qid]))
        for qid, texts in golds.items()
    }


def squad_scores(golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Percentages under the official names; ``HasAns_``/``NoAns_`` where there are such questions."""
    return summarise(golds, score_examples(golds, predictions))


def summarise(golds: Mapping[str, Sequence[str]], scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Means over all questions and over those with and without answer.

    As in the official script a question counts as HasAns if it lists any gold answer at all.
    """
    result: dict[str, float] = {}
    for prefix, pairs in split_by_answerability([bool(golds[qid]) for qid in scores], list(scores.values())).items():
        result[f"{prefix}exact"] = 100 * sum(pair[0] for pair in pairs) / len(pairs)
        result[f"{prefix}f1"] = 100 * sum(pair[1] for pair in pairs) / len(pairs)
        result[f"{prefix}total"] = len(pairs)
    return result


def split_by_answerability(answerable: Sequence[bool], rows: Sequence[T]) -> dict[str, list[T]]:
    """Rows by what their scores' names begin with: all, then those with and without answer where there are such."""
    parts: dict[str, list[T]] = {"": list(rows), "HasAns_": [], "NoAns_": []}
    for answered, row in zip(answerable, rows, strict=True):
        parts["HasAns_" if answered else "NoAns_"].append(row)
    return {prefix: part for prefix, part in parts.items() if part}


def best_threshold(
    no_answer_scores: Mapping[str, float], score_if_answered: Mapping[str, float], has_answer: Mapping[str, bool]
) -> tuple[float, float]:
    """(t, mean score) for the t that maximises the mean score when a question is answered iff its no-answer score <= t.

    An unanswered question scores 1 if it has no answer, else 0. Questions with equal no-answer scores
    can only be answered together, so t always lies between different scores, midway; or beyond all
    of them. Among equally good t the lowest is taken. Compare with t in double precision.
    """
    require_all(has_answer, no_answer_scores, "no-answer score", "one for every question")
    require_all(has_answer, score_if_answered, "score", "one for every question")
    gains: defaultdict[float, float] = defaultdict(float)  # by no-answer score: what answering adds to the total
    for qid, answerable in has_answer.items():
        score = no_answer_scores[qid]
        if not abs(score) <= _LARGEST:  # written so that NaN fails too
            raise BadInput(f"no-answer score of question {shorten(qid)}: got {score}, expected a finite number")
        gains[float(score)] += score_if_answered[qid] - (not answerable)
    levels = sorted(gains)
    unanswered = sum(not answerable for answerable in has_answer.values())
    totals = list(accumulate((gains[level] for level in levels), initial=float(unanswered)))
    best = max(range(len(totals)), key=lambda cut: round(totals[cut], _DECIMALS))
    # Thresholds that answer nothing, the lowest level, the lowest two, ..., everything.
    cuts = [levels[0] - max(1.0, abs(levels[0]))]
    for below, above in pairwise(levels):
        middle = (below + above) / 2
        cuts.append(middle if middle < above else below)  # rounding may leave no number in between
    cuts.append(levels[-1] + max(1.0, abs(levels[-1])))
    return cuts[best], totals[best] / len(has_answer)


def require_all(questions: Mapping[str, object], given: Mapping[str, object], what: str, expected: str) -> None:
    if not questions:
        raise BadInput("got no questions to score; expected at least one")
    missing = [qid for qid in questions if qid not in given]
    if missing:
        raise BadInput(
            f"{len(missing)} of {len(questions)} questions have no {what}, the first is {shorten(missing[0])}; "
            f"expected {expected}"
        )


def read_gold(paths: Sequence[Path]) -> dict[str, list[str]]:
    """Gold answers by question id from official SQuAD files, 1.1 or 2.0; an unanswerable question has none."""
    golds: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    bad = BadRows(skip=False, advice="")  # a question that is left out would change the score
    for path in paths:
        for raw in read_questions(path, bad):
            with bad.row(raw.where):
                question = question_fields(raw)
                qid = string_field(question, "id")
                if qid in golds:
                    raise BadRow("duplicate id", f"also at {first[qid]}; ids must differ")
                if "answers" not in question:
                    raise BadRow("missing answers", "expected a list, which is empty if there is no answer")
                # The official script takes what is listed, whatever is_impossible says and however blank a text is.
                golds[qid] = [string_field(answer, "text") for answer in answer_objects(question)]
                first[qid] = raw.where
    return golds


def read_predictions(path: Path) -> dict[str, str]:
    """Answers by question id, as the official script reads them: one object {"id": "answer", ...}."""
    answers: dict[str, str] = {}
    for qid, answer in read_by_id(path, '{"question id": "answer", ...}').items():
        if not isinstance(answer, str):
            raise BadInput(
                f'{path}: $[{shorten(qid)}]: got {shorten(answer)}, expected a string answer, "" for no answer'
            )
        answers[qid] = answer
    return answers


def no_answer_scores(
    golds: Golds, predictions: Mapping[str, str], na_probs: Mapping[str, float], threshold: float = 1.0
) -> dict[str, float]:
    """Scores at ``threshold`` under the official names, then both oracles, each with its threshold."""
    scores = score_examples(golds, predictions)
    require_all(golds, na_probs, "no-answer probability", "one for every question")
    result = summarise(golds, apply_no_answer_threshold(golds, scores, na_probs, threshold))
    for name, part in (("exact", 0), ("f1", 1)):
        single = {qid: pair[part] for qid, pair in scores.items()}
        result[f"best_{name}"], result[f"best_{name}_thresh"] = official_best_threshold(
            golds, predictions, single, na_probs
        )
    return result


def apply_no_answer_threshold(golds: Golds, scores: Pairs, na_probs: Mapping[str, float], threshold: float) -> Pairs:
    """(exact, f1) by question; above the threshold 1 where no gold answer is listed, else 0."""
    silent = {True: (0.0, 0.0), False: (1.0, 1.0)}  # by: is there an answer?
    return {qid: silent[bool(golds[qid])] if na_probs[qid] > threshold else pair for qid, pair in scores.items()}


def official_best_threshold(
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
    probabilities: dict[str, float] = {}
    for qid, value in read_by_id(path, '{"question id": no-answer probability, ...}').items():
        number = _finite_number(value)
        if number is None:
            raise BadInput(f"{path}: $[{shorten(qid)}]: got {shorten(value)}, expected a finite number")
        probabilities[qid] = number
    return probabilities


def _finite_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
