"""Examples into encoder inputs: one window per text, or overlapping windows over a long context.

Question first, only the context is cut, neighbouring windows share ``overlap`` tokens. Answers are
aligned by character offsets; a window that does not hold the whole answer is labelled at its CLS
token, which is how "no answer here" is taught and scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.errors import BadInput, shorten
from bertvision.records import NO_OFFSET, Example, Kind, Window
from bertvision.tasks.base import BadRows

Tokenizer = Any
"""A fast transformers tokenizer; passed in, so that tasks never import transformers."""

CHUNK = 512
LEAST_ROOM = 8
"""Context tokens a window must have room for beside the question."""


def make_windows(
    examples: Sequence[Example], tokenizer: Tokenizer, kind: Kind, max_length: int, overlap: int, bad: BadRows
) -> list[Window]:
    """All windows of the examples, in order; examples that cannot be asked are bad rows."""
    cls_id = getattr(tokenizer, "cls_token_id", None)
    if cls_id is None or not getattr(tokenizer, "is_fast", False):
        raise BadInput("this encoder's tokenizer has no CLS token or no fast version; choose a BERT-like encoder")
    cut = _span_windows if kind == "span" else _text_windows
    windows: list[Window] = []
    for first in range(0, len(examples), CHUNK):
        chunk = list(enumerate(examples[first : first + CHUNK], first))
        windows.extend(cut(chunk, tokenizer, max_length, overlap, bad))
    return windows


def _text_windows(
    chunk: Sequence[tuple[int, Example]], tokenizer: Tokenizer, max_length: int, overlap: int, bad: BadRows
) -> Iterator[Window]:
    """One window per text or pair; what is too long is cut, the longer text of a pair first."""
    pairs = [example.pair or "" for _, example in chunk] if any(e.pair is not None for _, e in chunk) else None
    texts = [example.text for _, example in chunk]
    encoded = tokenizer(texts, pairs, truncation=True, max_length=max_length)
    for (index, example), encoding in zip(chunk, encoded.encodings, strict=True):
        nowhere = np.full((len(encoding.ids), 2), NO_OFFSET, np.int32)
        target = (float("nan") if example.label is None else float(example.label),)
        yield _window(index, encoding, nowhere, tokenizer.cls_token_id, target)


def _span_windows(
    chunk: Sequence[tuple[int, Example]], tokenizer: Tokenizer, max_length: int, overlap: int, bad: BadRows
) -> Iterator[Window]:
    """Overlapping windows over each context, the question in front of each."""
    special = tokenizer.num_special_tokens_to_add(pair=True)
    questions = tokenizer([e.text for _, e in chunk], add_special_tokens=False).encodings
    for (index, example), question in zip(chunk, questions, strict=True):
        room = max_length - special - len(question.ids)
        if room < LEAST_ROOM:
            bad.add(
                "question longer than the window",
                f"question {shorten(example.id)}",
                f"{len(question.ids)} tokens, at most {max_length - special - LEAST_ROOM} fit; raise --max-length",
            )
            continue
        # A long question leaves little room; an overlap as large as the room would never move on.
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
            cls = encoding.ids.index(tokenizer.cls_token_id)
            yield _window(index, encoding, offsets, tokenizer.cls_token_id, _span_target(example, offsets, cls))


def _window(index: int, encoding: Any, offsets: NDArray[np.int32], cls_id: int, target: tuple[float, ...]) -> Window:
    ids = np.asarray(encoding.ids, np.int32)
    types = np.asarray(encoding.type_ids, np.uint8)
    return Window(index, ids, types, offsets, encoding.ids.index(cls_id), target)


def context_offsets(encoding: Any, context: str) -> NDArray[np.int32]:
    """Characters of the context under each token; RoBERTa's tokens lose the blank they carry in front."""
    offsets = np.full((len(encoding.ids), 2), NO_OFFSET, np.int32)
    for token, (sequence, (start, end)) in enumerate(zip(encoding.sequence_ids, encoding.offsets, strict=True)):
        if sequence != 1:
            continue
        while start < end and context[start].isspace():
            start += 1
        while start < end and context[end - 1].isspace():
            end -= 1
        if start < end:
            offsets[token] = start, end
    return offsets


def _span_target(example: Example, offsets: NDArray[np.int32], cls: int) -> tuple[float, float]:
    """First and last token of the first gold answer, or the CLS token twice."""
    nothing = (float(cls), float(cls))
    if not example.answers:
        return nothing
    answer = example.answers[0]
    start = answer.start + len(answer.text) - len(answer.text.lstrip())
    end = answer.start + len(answer.text.rstrip())
    tokens = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    if not len(tokens) or offsets[tokens[0], 0] > start or offsets[tokens[-1], 1] < end:
        return nothing
    inside = tokens[(offsets[tokens, 1] > start) & (offsets[tokens, 0] < end)]
    return (float(inside[0]), float(inside[-1])) if len(inside) else nothing
