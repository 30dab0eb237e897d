"""Tokenise examples: one window per text, or overlapping windows over a long context.

A window starts with the whole question; only the context is split, and neighbouring windows share
``overlap`` tokens. Answers are aligned by character offsets; the target of a window that does not contain
the whole answer is its CLS token, which stands for "no answer". Labelled pairs are split in the same way if
``overlap`` is more than 0; otherwise they are one window and are truncated.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import NO_OFFSET, Answer, Example, Kind, Window
from bertvision.tasks.task import BadRows

Tokenizer = Any
"""A fast transformers tokenizer; passed in, so that tasks never import transformers."""

CHUNK = 512
LEAST_ROOM = 8
"""Smallest number of context tokens that a window must have room for after the question."""

UNANSWERABLE = 1.0
"""Label of the ``answerability`` task for a window without the answer."""

Target = Callable[[Example, NDArray[np.int32], int], tuple[float, ...]]


def make_windows(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    kind: Kind,
    max_length: int,
    overlap: int,
    bad: BadRows,
    labels: int = 1,
) -> list[Window]:
    """All windows of the examples, in order; questions too long for a window are bad rows.

    ``labels`` is the number of labels of a ``multilabel`` task.
    """
    cls_id = getattr(tokenizer, "cls_token_id", None)
    if cls_id is None or not getattr(tokenizer, "is_fast", False):
        raise BadInput("this encoder's tokenizer has no CLS token or no fast version; choose a BERT-like encoder")

    # Decided for each example on its own, so that its windows do not depend on the other examples.
    def is_split(example: Example) -> bool:
        return kind == "span" or (kind == "classify" and overlap > 0 and example.pair is not None)

    # With less room than its special tokens need, a tokenizer silently does not truncate at all.
    special = tokenizer.num_special_tokens_to_add(pair=any(example.pair is not None for example in examples))
    least = special + 1 + (LEAST_ROOM if kind == "span" or any(map(is_split, examples)) else 0)
    if max_length < least:
        raise BadInput(f"max_length: got {max_length}, which has no room for text; expected at least {least}")
    overlapping = partial(_overlapping_windows, target=_span_target if kind == "span" else _label_target)
    single = partial(_text_windows, labels=labels if kind == "multilabel" else None)
    windows: list[Window] = []
    for first in range(0, len(examples), CHUNK):
        chunk = list(enumerate(examples[first : first + CHUNK], first))
        for split, part in groupby(chunk, lambda indexed: is_split(indexed[1])):
            make = overlapping if split else single
            windows.extend(make(list(part), tokenizer, max_length, overlap, bad))
    return windows


def windows_of_texts(texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> list[Window]:
    """One window per text, truncated, without a target."""
    examples = [Example(str(number), text) for number, text in enumerate(texts)]
    return make_windows(examples, tokenizer, "regress", max_length, 0, BadRows(skip=False))


def _text_windows(
    chunk: Sequence[tuple[int, Example]],
    tokenizer: Tokenizer,
    max_length: int,
    overlap: int,
    bad: BadRows,
    labels: int | None,
) -> Iterator[Window]:
    """One window per text or pair, truncated from the longer text of a pair first."""
    # Texts and pairs are encoded separately: a pair with an empty second text has an extra special token.
    texts = [example.text for _, example in chunk if example.pair is None]
    pairs = [(example.text, example.pair) for _, example in chunk if example.pair is not None]
    encode = partial(tokenizer, truncation=True, max_length=max_length)
    cls_id = tokenizer.cls_token_id  # a slow property, so it is read once
    text_encodings, pair_encodings = (iter(encode(batch).encodings if batch else ()) for batch in (texts, pairs))
    for index, example in chunk:
        encoding = next(text_encodings if example.pair is None else pair_encodings)
        no_offsets = np.full((len(encoding.ids), 2), NO_OFFSET, np.int32)
        if labels is None:  # at inference an example has no label or value
            target: tuple[float, ...] = (float("nan") if example.label is None else float(example.label),)
        elif example.labels is None:
            target = (float("nan"),) * labels
        else:
            target = tuple(float(label in example.labels) for label in range(labels))
        yield _window(index, encoding, no_offsets, cls_id, target)


def _overlapping_windows(
    chunk: Sequence[tuple[int, Example]],
    tokenizer: Tokenizer,
    max_length: int,
    overlap: int,
    bad: BadRows,
    target: Target,
) -> Iterator[Window]:
    """Overlapping windows over each context, each with the whole question in front."""
    special, cls_id = tokenizer.num_special_tokens_to_add(pair=True), tokenizer.cls_token_id
    questions = tokenizer([e.text for _, e in chunk], add_special_tokens=False).encodings
    for (index, example), question in zip(chunk, questions, strict=True):
        room = max_length - special - len(question.ids)
        if room < LEAST_ROOM:
            bad.add(
                "question longer than the window",
                f"question {shorten(example.id)}",
                f"{len(question.ids)} tokens, at most {max_length - special - LEAST_ROOM} fit; "
                "shorten it or raise --max-length",
            )
            continue
        # After a long question, an overlap as large as the remaining room would never advance.
        encoded = tokenizer(
            example.text,
            example.pair,
            truncation="only_second",
            max_length=max_length,
            stride=min(overlap, room // 2),
            return_overflowing_tokens=True,
        )
        for encoding in encoded.encodings:
            offsets = context_offsets(encoding, example.pair or "")
            cls = encoding.ids.index(cls_id)
            yield _window(index, encoding, offsets, cls_id, target(example, offsets, cls))


def _window(index: int, encoding: Any, offsets: NDArray[np.int32], cls_id: int, target: tuple[float, ...]) -> Window:
    ids = np.asarray(encoding.ids, np.int32)
    types = np.asarray(encoding.type_ids, np.uint8)
    return Window(index, ids, types, offsets, encoding.ids.index(cls_id), target)


def context_offsets(encoding: Any, context: str) -> NDArray[np.int32]:
    """Start and end character in the context of each token, (tokens, 2).

    The leading space of RoBERTa's tokens is excluded. A combining mark that the tokenizer dropped (the
    accent of an e written as two characters) belongs to the token of its letter.
    """
    offsets = np.full((len(encoding.ids), 2), NO_OFFSET, np.int32)
    for token, (sequence, (start, end)) in enumerate(zip(encoding.sequence_ids, encoding.offsets, strict=True)):
        if sequence != 1:
            continue
        while start < end and context[start].isspace():
            start += 1
        while start < end and context[end - 1].isspace():
            end -= 1
        if start < end:
            while end < len(context) and not context[end].isascii() and unicodedata.category(context[end]) == "Mn":
                end += 1
            offsets[token] = start, end
    return offsets


def _span_target(example: Example, offsets: NDArray[np.int32], cls: int) -> tuple[float, ...]:
    """First and last token of the first gold answer; the CLS token for both if the window does not contain it."""
    tokens = answer_tokens(example.answers[0], offsets) if example.answers else None
    first, last = tokens or (cls, cls)
    return float(first), float(last)


def _label_target(example: Example, offsets: NDArray[np.int32], cls: int) -> tuple[float, ...]:
    """The example's label; unanswerable if the example has answers but this window lacks the first of them."""
    if example.label is None:
        return (float("nan"),)
    lacks_answer = example.answers and answer_tokens(example.answers[0], offsets) is None
    return (UNANSWERABLE if lacks_answer else float(example.label),)


def answer_tokens(answer: Answer, offsets: NDArray[np.int32]) -> tuple[int, int] | None:
    """First and last token of an answer, None if the window does not contain all of it."""
    start = answer.start + len(answer.text) - len(answer.text.lstrip())
    end = answer.start + len(answer.text.rstrip())
    tokens = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    if not len(tokens) or offsets[tokens[0], 0] > start or offsets[tokens[-1], 1] < end:
        return None
    inside = tokens[(offsets[tokens, 1] > start) & (offsets[tokens, 0] < end)]
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
