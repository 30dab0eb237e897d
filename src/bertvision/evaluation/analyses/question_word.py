"""What is asked: right by the question word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import Said
from bertvision.evaluation.analyses.result import Cell, Finding, bars, share

ABOUT_WORD = "Exactly right by the first question word in the question; what has none is 'other'. Commonest first."
WORDS = ("what", "who", "whom", "whose", "when", "where", "which", "why", "how many", "how much", "how")
_FOUND = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def question_word(examples: Sequence[Example], said: Sequence[Said]) -> Finding:
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


def _word_row(word: str, here: np.ndarray, silent: np.ndarray, said: Sequence[Said]) -> dict[str, Cell]:
    count = int(here.sum())
    row: dict[str, Cell] = {"word": word, "questions": count, "no_answer": share(int((here & silent).sum()), count)}
    return row | {f"right_{place}": share(int(one.right[here].sum()), count) for place, one in enumerate(said)}
