"""The BERTVision paper's span decoding, for comparison with its published scores.

1. Start and end are independent arg-maxes over all tokens of a window, question and special tokens
   included, without start <= end, a maximum length or a context mask.
2. A span whose end is before its start is empty: "no answer".
3. The CLS token alone is "no answer" too; a longer span that starts at CLS is an ordinary, wrong answer.
4. The window with the largest p(start) · p(end) gives the question's answer, even if that is "no answer";
   ties go to the first window. Each p is a softmax over the window's tokens.
5. There is no null score and no threshold.

The paper padded windows to 386 tokens and took arg-max and softmax over the padding too; windows here are
not padded. An answer is a sequence of word pieces, which is what the paper compared. Its gold answers were
*all* gold texts of a question, each tokenised on its own (:func:`golds_by_text`), and never a window's
target: an answerable question counts as wrong if the winning window lacks the answer and predicts none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Answer, Example, WindowTable
from bertvision.tasks.windows import Tokenizer, answer_tokens

Golds = list[list[tuple[int, ...]]]
"""Word pieces of each gold answer of each question; a question without answers has an empty list."""


@dataclass(frozen=True, slots=True)
class PaperAnswer:
    """The answer of the best window: word pieces (empty for no answer), p(start) · p(end), window and tokens."""

    pieces: tuple[int, ...]
    probability: float
    window: int
    start: int
    end: int


NO_WINDOW = PaperAnswer((), 0.0, -1, -1, -1)
"""The answer to a question without windows."""

UNMATCHABLE = (-1,)
"""Word pieces that equal no prediction."""


def paper_decode(logits: Sequence[NDArray[np.float32]], table: WindowTable, examples: int) -> list[PaperAnswer]:
    """One answer per question; ``table`` must include the windows' input ids."""
    assert len(table.input_ids) == len(table), "the window table has no input ids"
    best = [NO_WINDOW] * examples
    for window, example in enumerate(table.example.tolist()):
        scores = logits[window]  # (tokens, 2)
        # max p(start) · max p(end); the largest value of a softmax is 1 / Σ exp(x - max x)
        shifted = np.asarray(scores, np.float64) - scores.max(0, keepdims=True)
        probability = float(1 / np.exp(shifted).sum(0).prod())
        if probability > best[example].probability:
            start, end = (int(token) for token in scores.argmax(0))
            is_null = start == end == int(table.cls[window])
            # A span that ends before its start is empty as well.
            pieces = () if is_null else tuple(table.input_ids[window][start : end + 1].tolist())
            best[example] = PaperAnswer(pieces, probability, window, start, end)
    return best


def golds_by_text(examples: Sequence[Example], tokenizer: Tokenizer) -> Golds:
    """Word pieces of every gold text, each tokenised on its own as in the paper."""
    texts = [answer.text for example in examples for answer in example.answers]
    pieces = iter(tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else ())
    return [[tuple(next(pieces)) for _ in example.answers] for example in examples]


def golds_by_window(examples: Sequence[Example], table: WindowTable) -> Golds:
    """Word pieces of every gold answer in the first window that contains it; needs no tokenizer.

    Differs from :func:`golds_by_text` for answers that begin or end within a piece (1 in 500 in SQuAD 2.0,
    1 in 200 in 1.1), where the whole piece counts. No prediction matches an answer that no window contains.
    """
    pieces: dict[tuple[int, Answer], tuple[int, ...]] = {}
    for window, example in enumerate(table.example.tolist()):
        for answer in examples[example].answers:
            tokens = answer_tokens(answer, table.offsets[window])
            if tokens is not None:
                first, last = tokens
                pieces.setdefault((example, answer), tuple(table.input_ids[window][first : last + 1].tolist()))
    return [[pieces.get((i, answer), UNMATCHABLE) for answer in e.answers] for i, e in enumerate(examples)]
