"""Questions with and without an answer: who is right on which, and how many misses were silence."""

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
    "Exactly right among the questions that have an answer and among those that have none. The last column is the "
    "share of the missed answerable questions to which the predictor said nothing: the rest got another answer."
)

TYPE_COLUMNS = {
    "name": "predictor",
    "has_answer": "with answer",
    "has_answer_right": "right, %",
    "has_answer_f1": "F1",
    "no_answer": "without answer",
    "no_answer_right": "right, % (none)",
    "has_answer_missed": "answers missed",
    "missed_by_silence": "of these silent, %",
}

ABOUT_LENGTH = (
    "Answerable questions by the words of their shortest gold answer; of each predictor the share that is exactly "
    "right, and the mean words of what it answered, silence left out."
)

BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))

ABOUT_CONTEXT = (
    "Mean length, in {unit}, of the contexts of what each predictor gets right and wrong; then, for two at a time, of "
    "what only the first gets right. The picture is the share that is right in each fifth of the examples by length."
)

CONTEXT_COLUMNS = {
    "name": "predictor",
    "against": "and not",
    "right": "right",
    "right_length": "mean length of right",
    "wrong": "wrong",
    "wrong_length": "mean length of wrong",
}

FIFTHS = 5

ABOUT_WORD = "Exactly right by the first question word in the question; what has none is 'other'. Commonest first."

WORDS = ("what", "who", "whom", "whose", "when", "where", "which", "why", "how many", "how much", "how")

_QUESTION_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def _percent_of(hits: np.ndarray, mask: np.ndarray) -> float | None:
    """Per cent of the examples of a mask."""
    return share(int((hits & mask).sum()), int(mask.sum()))


def answer_types(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """The split by gold answerability of every predictor."""
    gold = np.array([bool(example.answers) for example in examples])
    rows = tuple(_type_row(predictor, gold) for predictor in predictors)
    names = [predictor.name for predictor in predictors]
    kinds = {"has an answer": "has_answer_right", "has none": "no_answer_right"}
    picture = bars(names, {title: [as_float(row[key]) for row in rows] for title, key in kinds.items()}, "right, %")
    return Finding("answer-types", "With and without an answer", ABOUT_TYPES, TYPE_COLUMNS, rows, (picture,))


def _type_row(predictor: Answers, gold: np.ndarray) -> dict[str, Cell]:
    silent = np.array([not answer for answer in predictor.answers])
    missed = gold & ~predictor.right
    return {
        "name": predictor.name,
        "has_answer": int(gold.sum()),
        "has_answer_right": _percent_of(predictor.right, gold),
        "has_answer_f1": share(float(predictor.score[gold].sum()), int(gold.sum())),
        "no_answer": int((~gold).sum()),
        "no_answer_right": _percent_of(predictor.right, ~gold),
        "has_answer_missed": int(missed.sum()),
        "missed_by_silence": _percent_of(silent, missed),
    }


def answer_length(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """A row per length, two columns per predictor."""
    words = np.array([min((len(a.text.split()) for a in e.answers), default=0) for e in examples])
    columns = {"words": "words of gold", "questions": "questions"}
    series: dict[str, list[float | None]] = {}
    for index, predictor in enumerate(predictors):
        columns |= {f"right_{index}": f"{predictor.name}: right, %", f"words_{index}": f"{predictor.name}: words given"}
        series[predictor.name] = []
    rows, titles = [], []
    for low, high in BINS:
        mask = (words >= low) & (words <= (high or words.max()))  # (examples,)
        if not mask.any():
            continue
        titles.append(f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}")
        row: dict[str, Cell] = {"words": titles[-1], "questions": int(mask.sum())}
        for index, predictor in enumerate(predictors):
            answered = [str(predictor.answers[at]) for at in np.flatnonzero(mask) if predictor.answers[at]]
            right = _percent_of(predictor.right, mask)
            row |= {f"right_{index}": right, f"words_{index}": mean([len(answer.split()) for answer in answered])}
            series[predictor.name].append(right)
        rows.append(row)
    picture = bars(titles, series, "right, %")
    return Finding("answer-length", "Answer length", ABOUT_LENGTH, columns, tuple(rows), (picture,))


def context_length(lengths: Sequence[int], predictors: Sequence[Answers], unit: str = "words") -> Finding:
    """``lengths``: of every example's context, in order."""
    sizes = np.asarray(lengths, np.float64)
    rows = [_context_row(predictor.name, None, sizes, predictor.right, ~predictor.right) for predictor in predictors]
    rows += [
        _context_row(a.name, b.name, sizes, a.right & ~b.right, np.zeros(len(sizes), bool))
        for a, b in permutations(predictors, 2)
    ]
    series = {predictor.name: _by_fifth(sizes, predictor.right) for predictor in predictors}
    picture = Plot("lines", f"mean {unit} of the context, by fifths", "right, %", series)
    about = ABOUT_CONTEXT.format(unit=unit)
    return Finding("context-length", "Context length", about, CONTEXT_COLUMNS, tuple(rows), (picture,))


def _context_row(
    name: str, against: str | None, sizes: NDArray[np.float64], right: NDArray[np.bool_], wrong: NDArray[np.bool_]
) -> dict[str, Cell]:
    alone = against is not None
    return {
        "name": name,
        "against": against,
        "right": int(right.sum()),
        "right_length": mean(sizes[right].tolist()),
        "wrong": None if alone else int(wrong.sum()),
        "wrong_length": None if alone else mean(sizes[wrong].tolist()),
    }


def _by_fifth(sizes: NDArray[np.float64], right: NDArray[np.bool_]) -> list[tuple[float, float, str]]:
    """Equal contexts stay in one fifth, so that a point never stands for a part of one context."""
    edges = np.quantile(sizes, np.linspace(0, 1, FIFTHS + 1)[1:-1]) if len(sizes) else np.zeros(0)
    fifth = np.searchsorted(edges, sizes, side="left")
    points = []
    for number in range(FIFTHS):
        mask = fifth == number
        percent = _percent_of(right, mask)
        if percent is not None:
            points.append((float(sizes[mask].mean()), percent, f"{int(mask.sum())} examples"))
    return points


def question_word(examples: Sequence[Example], predictors: Sequence[Answers]) -> Finding:
    """A row per question word, a column per predictor."""
    asked = np.array([first_question_word(example.text) for example in examples])
    silent = np.array([not example.answers for example in examples])
    columns = {"word": "question word", "questions": "questions", "no_answer": "without answer, %"}
    series: dict[str, list[float | None]] = {}
    for index, predictor in enumerate(predictors):
        columns[f"right_{index}"] = f"{predictor.name}: right, %"
        series[predictor.name] = []
    rows, words = [], [word for word, _ in Counter(asked.tolist()).most_common()]
    for word in words:
        mask = asked == word
        row: dict[str, Cell] = {"word": word, "questions": int(mask.sum()), "no_answer": _percent_of(silent, mask)}
        for index, predictor in enumerate(predictors):
            right = _percent_of(predictor.right, mask)
            row[f"right_{index}"] = right
            series[predictor.name].append(right)
        rows.append(row)
    picture = bars(words, series, "right, %")
    return Finding("question-word", "Question word", ABOUT_WORD, columns, tuple(rows), (picture,))


def first_question_word(question: str) -> str:
    """The first question word, in lower case."""
    match = _QUESTION_WORD.search(question)
    return match[1].lower() if match else "other"
