"""Decode start and end logits into answers: the best valid spans, merged over a question's windows.

A span's score is start logit + end logit. A window's null score is that sum at its CLS token; a
question's null score is the *minimum* over its windows, because a single window may contain the answer.
A question is answered iff null score - best span score <= threshold, where the threshold is fitted on
held-out data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import NO_OFFSET, Example, WindowTable

TOP_K = 20
MAX_ANSWER_TOKENS = 30


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate answer: its start and end character in the context, and its score."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class DecodedSpans:
    """A question's best candidates (best first) and its null score."""

    candidates: tuple[Candidate, ...]
    null: float

    @property
    def no_answer_score(self) -> float:
        """Null score - best span score, large for "no answer"; infinity without any candidate."""
        return self.null - self.candidates[0].score if self.candidates else float("inf")


def decode_window(
    logits: NDArray[np.float32], offsets: NDArray[np.int32], top_k: int = TOP_K, longest: int = MAX_ANSWER_TOKENS
) -> list[Candidate]:
    """Best spans of one window: top starts x top ends in the context, with start <= end and limited length."""
    tokens = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    # Stable sorting breaks ties in text order.
    starts, ends = (tokens[np.argsort(-logits[tokens, side], kind="stable")[:top_k]] for side in (0, 1))
    length = ends[None, :] - starts[:, None] + 1  # (starts, ends)
    scores = logits[starts, 0][:, None] + logits[ends, 1][None, :]  # (starts, ends)
    rows, columns = np.nonzero((length >= 1) & (length <= longest))
    best = np.argsort(-scores[rows, columns], kind="stable")[:top_k]
    return [
        Candidate(int(offsets[starts[i], 0]), int(offsets[ends[j], 1]), float(scores[i, j]))
        for i, j in zip(rows[best], columns[best], strict=True)
    ]


def decode(
    logits: Sequence[NDArray[np.float32]], table: WindowTable, examples: int, top_k: int = TOP_K
) -> list[DecodedSpans]:
    """Merge the windows of each question: best candidate per span, smallest null score."""
    spans: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
    null = np.full(examples, np.inf)
    for window, example in enumerate(table.example.tolist()):
        scores, merged = logits[window], spans[example]
        null[example] = min(null[example], float(scores[table.cls[window]].sum()))
        for candidate in decode_window(scores, table.offsets[window], top_k):
            span = candidate.start, candidate.end
            merged[span] = max(candidate.score, merged.get(span, -np.inf))
    decoded = []
    for example in range(examples):
        ranked = sorted(spans[example].items(), key=lambda item: (-item[1], item[0]))[:top_k]
        candidates = tuple(Candidate(start, end, score) for (start, end), score in ranked)
        decoded.append(DecodedSpans(candidates, float(null[example])))
    return decoded


def answer_spans(
    decoded: Sequence[DecodedSpans], examples: Sequence[Example], threshold: float | None
) -> dict[str, tuple[int, int]]:
    """Question id -> start and end of its answer in the context; unanswered questions are left out."""
    spans = {}
    for example, answer in zip(examples, decoded, strict=True):
        if answer.candidates and (threshold is None or answer.no_answer_score <= threshold):
            spans[example.id] = answer.candidates[0].start, answer.candidates[0].end
    return spans


def answer_texts(
    decoded: Sequence[DecodedSpans], examples: Sequence[Example], threshold: float | None
) -> dict[str, str]:
    """Question id -> answer text, "" for no answer; without a threshold the best span is always given."""
    spans = answer_spans(decoded, examples, threshold)
    return {example.id: (example.pair or "")[slice(*spans.get(example.id, (0, 0)))] for example in examples}


def n_best(
    decoded: DecodedSpans, context: str, threshold: float | None, count: int, temperature: float = 1.0
) -> list[dict[str, object]]:
    """The ``count`` most probable answers: softmax over scores / T and, with a threshold, the null score / T.

    The threshold is subtracted from the null score, so that "no answer" has the highest probability
    exactly when the question is left unanswered.
    """
    candidates = list(decoded.candidates)
    if not candidates:
        candidates = [Candidate(0, 0, 0.0)]
    elif threshold is not None:
        best, null = candidates[0].score, decoded.null - threshold
        if decoded.no_answer_score <= threshold:  # rounding must not put "no answer" first
            candidates.append(Candidate(0, 0, min(null, best)))
        else:  # then null >= best even after rounding
            candidates.insert(0, Candidate(0, 0, null))
        candidates.sort(key=lambda candidate: -candidate.score)
    scores = np.array([candidate.score for candidate in candidates])
    weights = np.exp((scores - scores.max()) / temperature)
    probabilities = (weights / weights.sum()).tolist()
    answers: list[dict[str, object]] = []
    for candidate, probability in list(zip(candidates, probabilities, strict=True))[:count]:
        text = context[candidate.start : candidate.end]
        answers.append({"answer": text, "score": probability, "start": candidate.start, "end": candidate.end})
    return answers
