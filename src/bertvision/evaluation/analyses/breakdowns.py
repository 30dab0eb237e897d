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
from bertvision.evaluation.analyses.result import Cell, Finding, Plot, bars, mean, number_of, share

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

_FOUND = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def answer_types(examples: Sequence[Example], said: Sequence[Answers]) -> Finding:
    """The split by gold answerability of every predictor."""
    gold = np.array([bool(example.answers) for example in examples])
    rows = tuple(_type_row(one, gold) for one in said)
    names = [one.name for one in said]
    picture = bars(
        names,
        {
            "has an answer": [number_of(row["has_answer_right"]) for row in rows],
            "has none": [number_of(row["no_answer_right"]) for row in rows],
        },
        "right, %",
    )
    return Finding("answer-types", "With and without an answer", ABOUT_TYPES, TYPE_COLUMNS, rows, (picture,))


def _type_row(one: Answers, gold: np.ndarray) -> dict[str, Cell]:
    silent = np.array([not answer for answer in one.answers])
    missed = gold & ~one.right
    return {
        "name": one.name,
        "has_answer": int(gold.sum()),
        "has_answer_right": share(int((gold & one.right).sum()), int(gold.sum())),
        "has_answer_f1": share(float(one.score[gold].sum()), int(gold.sum())),
        "no_answer": int((~gold).sum()),
        "no_answer_right": share(int((~gold & one.right).sum()), int((~gold).sum())),
        "has_answer_missed": int(missed.sum()),
        "missed_by_silence": share(int((missed & silent).sum()), int(missed.sum())),
    }


def answer_length(examples: Sequence[Example], said: Sequence[Answers]) -> Finding:
    """A row a length, two columns a predictor."""
    words = np.array([min((len(a.text.split()) for a in e.answers), default=0) for e in examples])
    groups = {_title(low, high): (words >= low) & (words <= (high or words.max())) for low, high in BINS}
    groups = {title: here for title, here in groups.items() if here.any()}
    rows = tuple(_length_row(title, here, said) for title, here in groups.items())
    columns = {"words": "words of gold", "questions": "questions"}
    for place, one in enumerate(said):
        columns |= {f"right_{place}": f"{one.name}: right, %", f"words_{place}": f"{one.name}: words given"}
    series = {one.name: [_right(one, here) for here in groups.values()] for one in said}
    picture = bars(list(groups), series, "right, %")
    return Finding("answer-length", "Answer length", ABOUT_LENGTH, columns, rows, (picture,))


def _title(low: int, high: int | None) -> str:
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


def _right(one: Answers, here: np.ndarray) -> float | None:
    return share(int(one.right[here].sum()), int(here.sum()))


def _length_row(title: str, here: np.ndarray, said: Sequence[Answers]) -> dict[str, Cell]:
    row: dict[str, Cell] = {"words": title, "questions": int(here.sum())}
    for place, one in enumerate(said):
        given = [len(str(answer).split()) for answer, asked in zip(one.answers, here, strict=True) if asked and answer]
        row |= {f"right_{place}": _right(one, here), f"words_{place}": mean(given)}
    return row


def context_length(lengths: Sequence[int], said: Sequence[Answers], unit: str = "words") -> Finding:
    """``lengths``: of every example's context, in order."""
    sizes = np.asarray(lengths, np.float64)
    rows = [_context_row(one.name, None, sizes, one.right, ~one.right) for one in said]
    rows += [
        _context_row(a.name, b.name, sizes, a.right & ~b.right, np.zeros(len(sizes), bool))
        for a, b in permutations(said, 2)
    ]
    series = {one.name: _by_fifth(sizes, one.right) for one in said}
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
        here = fifth == number
        told = share(int(right[here].sum()), int(here.sum()))
        if told is not None:
            points.append((float(sizes[here].mean()), told, f"{int(here.sum())} examples"))
    return points


def question_word(examples: Sequence[Example], said: Sequence[Answers]) -> Finding:
    """A row a question word, a column a predictor."""
    asked = np.array([word_of(example.text) for example in examples])
    names = [word for word, _ in Counter(asked.tolist()).most_common()]
    columns = {"word": "question word", "questions": "questions", "no_answer": "without answer, %"}
    columns |= {f"right_{place}": f"{one.name}: right, %" for place, one in enumerate(said)}
    silent = np.array([not example.answers for example in examples])
    rows = tuple(_word_row(word, asked == word, silent, said) for word in names)
    series = {
        one.name: [share(int(one.right[asked == word].sum()), int((asked == word).sum())) for word in names]
        for one in said
    }
    return Finding("question-word", "Question word", ABOUT_WORD, columns, rows, (bars(names, series, "right, %"),))


def word_of(question: str) -> str:
    """The first question word, in lower case."""
    found = _FOUND.search(question)
    return found[1].lower() if found else "other"


def _word_row(word: str, here: np.ndarray, silent: np.ndarray, said: Sequence[Answers]) -> dict[str, Cell]:
    count = int(here.sum())
    row: dict[str, Cell] = {"word": word, "questions": count, "no_answer": share(int((here & silent).sum()), count)}
    return row | {f"right_{place}": share(int(one.right[here].sum()), count) for place, one in enumerate(said)}
