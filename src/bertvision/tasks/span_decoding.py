"""Start and end logits into an answer: constrained decoding, merged over a question's windows.

A span's score is start logit + end logit. A window's null score is that sum at its CLS token; a
question's null score is the *minimum* over its windows, because one window that holds the answer is
enough. A question is answered iff null score - best span score <= threshold; the threshold is
fitted on held-out data elsewhere and passed in.
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
    """A possible answer: its characters in the context and its score."""

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
        """Null score - best span score; large means "no answer". Nothing to answer with: infinity."""
        return self.null - self.candidates[0].score if self.candidates else float("inf")


def decode_window(
    logits: NDArray[np.float32], offsets: NDArray[np.int32], top_k: int = TOP_K, longest: int = MAX_ANSWER_TOKENS
) -> list[Candidate]:
    """Best spans of one window: the top starts x top ends inside the context, start <= end, capped length."""
    tokens = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    # The tokens with the largest logits, largest first, ties in text order.
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
    """Question id -> start and end of its answer in the context; a question without an answer is left out."""
    places = {}
    for example, answer in zip(examples, decoded, strict=True):
        if answer.candidates and (threshold is None or answer.no_answer_score <= threshold):
            places[example.id] = answer.candidates[0].start, answer.candidates[0].end
    return places


def answer_texts(
    decoded: Sequence[DecodedSpans], examples: Sequence[Example], threshold: float | None
) -> dict[str, str]:
    """Question id -> answer text, "" for no answer; without a threshold the best span is always given."""
    places = answer_spans(decoded, examples, threshold)
    return {example.id: (example.pair or "")[slice(*places.get(example.id, (0, 0)))] for example in examples}


def n_best(
    decoded: DecodedSpans, context: str, threshold: float | None, count: int, temperature: float = 1.0
) -> list[dict[str, object]]:
    """Candidates with probabilities: softmax over their scores / T and, with a threshold, the null score / T.

    The null score enters lowered by the threshold, so that "no answer" is the likeliest entry
    exactly when the threshold says so.
    """
    may_be_empty = threshold is not None or not decoded.candidates
    entries = _with_nothing(decoded, threshold or 0.0) if may_be_empty else list(decoded.candidates)
    scores = np.array([entry.score for entry in entries])
    weights = np.exp((scores - scores.max()) / temperature)
    shares = (weights / weights.sum()).tolist()
    return [
        {"answer": context[entry.start : entry.end], "score": share, "start": entry.start, "end": entry.end}
        for entry, share in list(zip(entries, shares, strict=True))[:count]
    ]


def _with_nothing(decoded: DecodedSpans, threshold: float) -> list[Candidate]:
    """The candidates and, as an empty one, "no answer", best first; rounding must not overrule the threshold."""
    if not decoded.candidates:
        return [Candidate(0, 0, 0.0)]
    best, null = decoded.candidates[0].score, decoded.null - threshold
    if decoded.no_answer_score <= threshold:
        listed = [*decoded.candidates, Candidate(0, 0, min(null, best))]
    else:  # then null >= best, rounded or not
        listed = [Candidate(0, 0, null), *decoded.candidates]
    return sorted(listed, key=lambda entry: -entry.score)
