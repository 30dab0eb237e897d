"""Accuracy by answerability, answer length, context length and question word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import Answers
from bertvision.evaluation.analyses.result import Cell, Finding, Plot, as_float, bars, mean, share

ABOUT_TYPES = (
    "Exact match on questions with an answer and on questions without one. The last column is the percentage of missed "
    "answerable questions for which the predictor returned no answer; for the others it returned a wrong one."
)

TYPE_COLUMNS = {
    "name": "predictor",
    "has_answer": "with answer",
    "has_answer_right": "right, %",
    "has_answer_f1": "F1",
    "no_answer": "without answer",
    "no_answer_right": "right, % (none)",
    "has_answer_missed": "answers missed",
    "missed_by_silence": "of these unanswered, %",
}

ABOUT_LENGTH = (
    "Answerable questions by the number of words in their shortest gold answer. For each predictor: exact match, and "
    "the mean number of words in its answers, empty answers excluded."
)

BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))

ABOUT_CONTEXT = (
    "Mean context length, in {unit}, of the examples that each predictor gets right and wrong, followed by the "
    "examples that only the first of two predictors gets right. The plot shows accuracy in each fifth of the examples "
    "by length."
)

CONTEXT_COLUMNS = {
    "name": "predictor",
    "against": "but not",
    "right": "right",
    "right_length": "mean length of right",
    "wrong": "wrong",
    "wrong_length": "mean length of wrong",
}

FIFTHS = 5

ABOUT_WORD = "Exact match by the first question word; 'other' is for questions without one. Most frequent first."

WORDS = ("what", "who", "whom", "whose", "when", "where", "which", "why", "how many", "how much", "how")

_QUESTION_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def _percent_of(hits: np.ndarray, mask: np.ndarray) -> float | None:
    """Percentage of hits among the masked examples."""
    return share(int((hits & mask).sum()), int(mask.sum()))


def answer_types(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """One row per predictor: exact match by whether the question has a gold answer."""
    gold = np.array([bool(example.answers) for example in examples])
    rows = tuple(_type_row(predictor, gold) for predictor in predictors)
    names = [predictor.name for predictor in predictors]
    kinds = {"with answer": "has_answer_right", "without answer": "no_answer_right"}
    plot = bars(names, {title: [as_float(row[key]) for row in rows] for title, key in kinds.items()}, "right, %")
    return Finding("answer-types", "With and without an answer", ABOUT_TYPES, TYPE_COLUMNS, rows, (plot,))


def _type_row(predictor: Answers, gold: np.ndarray) -> dict[str, Cell]:
    unanswered = np.array([not answer for answer in predictor.answers])
    missed = gold & ~predictor.right
    return {
        "name": predictor.name,
        "has_answer": int(gold.sum()),
        "has_answer_right": _percent_of(predictor.right, gold),
        "has_answer_f1": share(float(predictor.score[gold].sum()), int(gold.sum())),
        "no_answer": int((~gold).sum()),
        "no_answer_right": _percent_of(predictor.right, ~gold),
        "has_answer_missed": int(missed.sum()),
        "missed_by_silence": _percent_of(unanswered, missed),
    }


def answer_length(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """One row per answer length, two columns per predictor."""
    words = np.array([min((len(a.text.split()) for a in e.answers), default=0) for e in examples])
    columns = {"words": "words in gold", "questions": "questions"}
    series: dict[str, list[float | None]] = {}
    for index, predictor in enumerate(predictors):
        columns |= {
            f"right_{index}": f"{predictor.name}: right, %",
            f"words_{index}": f"{predictor.name}: words in answer",
        }
        series[predictor.name] = []
    rows, titles = [], []
    for low, high in BINS:
        mask = (words >= low) & (words <= (high or words.max()))  # (examples,)
        if not mask.any():
            continue
        titles.append(f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}")
        row: dict[str, Cell] = {"words": titles[-1], "questions": int(mask.sum())}
        for index, predictor in enumerate(predictors):
            answered = [str(predictor.answers[i]) for i in np.flatnonzero(mask) if predictor.answers[i]]
            right = _percent_of(predictor.right, mask)
            row |= {f"right_{index}": right, f"words_{index}": mean([len(answer.split()) for answer in answered])}
            series[predictor.name].append(right)
        rows.append(row)
    plot = bars(titles, series, "right, %")
    return Finding("answer-length", "Answer length", ABOUT_LENGTH, columns, tuple(rows), (plot,))


def context_length(lengths: Sequence[int], predictors: Sequence[Answers], unit: str = "words") -> Finding:
    """One row per predictor and per ordered pair; ``lengths`` are those of the examples' contexts, in order."""
    sizes = np.asarray(lengths, np.float64)
    rows = [_context_row(predictor.name, None, sizes, predictor.right, ~predictor.right) for predictor in predictors]
    rows += [
        _context_row(a.name, b.name, sizes, a.right & ~b.right, np.zeros(len(sizes), bool))
        for a, b in permutations(predictors, 2)
    ]
    series = {predictor.name: _by_fifth(sizes, predictor.right) for predictor in predictors}
    plot = Plot("lines", f"mean {unit} of the context, by fifths", "right, %", series)
    about = ABOUT_CONTEXT.format(unit=unit)
    return Finding("context-length", "Context length", about, CONTEXT_COLUMNS, tuple(rows), (plot,))


def _context_row(
    name: str, against: str | None, sizes: NDArray[np.float64], right: NDArray[np.bool_], wrong: NDArray[np.bool_]
) -> dict[str, Cell]:
    is_pair = against is not None
    return {
        "name": name,
        "against": against,
        "right": int(right.sum()),
        "right_length": mean(sizes[right].tolist()),
        "wrong": None if is_pair else int(wrong.sum()),
        "wrong_length": None if is_pair else mean(sizes[wrong].tolist()),
    }


def _by_fifth(sizes: NDArray[np.float64], right: NDArray[np.bool_]) -> list[tuple[float, float, str]]:
    """Accuracy per fifth by length; equal lengths stay in one fifth so that no context is split."""
    edges = np.quantile(sizes, np.linspace(0, 1, FIFTHS + 1)[1:-1]) if len(sizes) else np.zeros(0)
    fifth = np.searchsorted(edges, sizes, side="left")
    points = []
    for index in range(FIFTHS):
        mask = fifth == index
        percent = _percent_of(right, mask)
        if percent is not None:
            points.append((float(sizes[mask].mean()), percent, f"{int(mask.sum())} examples"))
    return points


def question_word(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """One row per question word, one column per predictor."""
    question_words = np.array([first_question_word(example.text) for example in examples])
    unanswerable = np.array([not example.answers for example in examples])
    columns = {"word": "question word", "questions": "questions", "no_answer": "without answer, %"}
    series: dict[str, list[float | None]] = {}
    for index, predictor in enumerate(predictors):
        columns[f"right_{index}"] = f"{predictor.name}: right, %"
        series[predictor.name] = []
    rows, words = [], [word for word, _ in Counter(question_words.tolist()).most_common()]
    for word in words:
        mask = question_words == word
        row: dict[str, Cell] = {
            "word": word,
            "questions": int(mask.sum()),
            "no_answer": _percent_of(unanswerable, mask),
        }
        for index, predictor in enumerate(predictors):
            right = _percent_of(predictor.right, mask)
            row[f"right_{index}"] = right
            series[predictor.name].append(right)
        rows.append(row)
    plot = bars(words, series, "right, %")
    return Finding("question-word", "Question word", ABOUT_WORD, columns, tuple(rows), (plot,))


def first_question_word(question: str) -> str:
    """The first question word in lower case, or "other"."""
    match = _QUESTION_WORD.search(question)
    return match[1].lower() if match else "other"
