"""The BERTVision paper's decoding, rule by rule, so that its numbers can be compared with.

1. Start and end are two independent arg-maxes over all tokens of a window, question and special
   tokens included; there is no start <= end, no longest answer, no context mask.
2. A span whose end is before its start is empty: "no answer".
3. The CLS token alone is "no answer" too; CLS and more is an answer like any other, and a wrong one.
4. Of a question's windows the one with the largest p(start) · p(end) speaks, also if what it says is
   "no answer"; of equals the first. Each p is a softmax over the window's tokens.
5. There is no null score and no threshold.

The paper padded windows to 386 and let its arg-max and softmax run over the padding; windows here
have none. An answer is its word pieces, which is what the paper compared. Its gold answers were *all*
of a question's gold texts, each cut into pieces by itself (:func:`golds_by_text`), never a window's
target: a window without the answer that says "no answer" makes an answerable question wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Answer, Example, WindowTable
from bertvision.tasks.windows import Tokenizer, answer_tokens

Golds = list[list[tuple[int, ...]]]
"""By question, by gold answer: its word pieces. A question without answers has an empty list."""


@dataclass(frozen=True, slots=True)
class PaperAnswer:
    """What the winning window says: word pieces (none = no answer), where, and p(start) · p(end)."""

    pieces: tuple[int, ...]
    probability: float
    window: int
    start: int
    end: int


NOTHING = PaperAnswer((), 0.0, -1, -1, -1)
"""The answer to a question that no window could be made for."""

UNMATCHABLE = (-1,)
"""Pieces that no prediction has."""


def paper_decode(logits: Sequence[NDArray[np.float32]], table: WindowTable, examples: int) -> list[PaperAnswer]:
    """One answer a question; ``table`` must hold the windows' input ids."""
    assert len(table.input_ids) == len(table), "a table without input ids has no word pieces to answer with"
    best = [NOTHING] * examples
    for window, example in enumerate(table.example.tolist()):
        scores = logits[window]  # (tokens, 2)
        # max p(start) · max p(end); the largest value of a softmax is 1 / Σ exp(x - max x)
        shifted = np.asarray(scores, np.float64) - scores.max(0, keepdims=True)
        probability = float(1 / np.exp(shifted).sum(0).prod())
        if probability > best[example].probability:
            start, end = (int(token) for token in scores.argmax(0))
            nothing = start == end == int(table.cls[window])
            pieces = () if nothing else tuple(table.input_ids[window][start : end + 1].tolist())  # inverted: () too
            best[example] = PaperAnswer(pieces, probability, window, start, end)
    return best


def golds_by_text(examples: Sequence[Example], tokenizer: Tokenizer) -> Golds:
    """Every gold text cut into pieces by itself: the paper's way."""
    texts = [answer.text for example in examples for answer in example.answers]
    cut = iter(tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else ())
    return [[tuple(next(cut)) for _ in example.answers] for example in examples]


def golds_by_window(examples: Sequence[Example], table: WindowTable) -> Golds:
    """The pieces under every gold answer in the first window that holds it whole: needs no tokenizer.

    Differs from :func:`golds_by_text` where an answer begins or ends within a piece (one of 500 in
    SQuAD 2.0, of 200 in 1.1): there the whole piece counts. What no window holds whole is never said.
    """
    found: dict[tuple[int, Answer], tuple[int, ...]] = {}
    for window, example in enumerate(table.example.tolist()):
        for answer in examples[example].answers:
            tokens = answer_tokens(answer, table.offsets[window])
            if tokens is not None:
                first, last = tokens
                found.setdefault((example, answer), tuple(table.input_ids[window][first : last + 1].tolist()))
    return [[found.get((i, answer), UNMATCHABLE) for answer in e.answers] for i, e in enumerate(examples)]
