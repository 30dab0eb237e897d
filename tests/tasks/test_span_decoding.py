"""Span decoding: compared with brute force, merged over windows, and with the no-answer threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertvision.core.records import NO_OFFSET, Answer, Example, WindowTable
from bertvision.tasks.span_decoding import (
    MAX_ANSWER_TOKENS,
    TOP_K,
    Candidate,
    DecodedSpans,
    answer_texts,
    decode,
    decode_window,
    n_best,
)

QUICK = settings(max_examples=120, deadline=None, derandomize=True)
LOGIT = st.integers(-40, 40).map(lambda n: n / 8)  # few values, exact in f32: many ties
SCORE = st.floats(-50, 50)

Logits = NDArray[np.float32]
Offsets = NDArray[np.int32]


def offsets_of(context_mask: Sequence[bool], shift: int = 0) -> Offsets:
    """Offsets of tokens of two characters and a blank; NO_OFFSET for tokens outside the context."""
    rows = [
        (shift + 3 * t, shift + 3 * t + 2) if in_context else (NO_OFFSET, NO_OFFSET)
        for t, in_context in enumerate(context_mask)
    ]
    return np.array(rows, np.int32).reshape(-1, 2)


@st.composite
def random_windows(draw: st.DrawFn) -> tuple[Logits, Offsets]:
    context_mask = draw(st.lists(st.booleans(), min_size=1, max_size=14))
    logits = draw(st.lists(st.tuples(LOGIT, LOGIT), min_size=len(context_mask), max_size=len(context_mask)))
    return np.array(logits, np.float32), offsets_of(context_mask)


def brute_force(logits: Logits, offsets: Offsets, longest: int) -> list[Candidate]:
    """Every allowed span, unordered."""
    tokens = [t for t in range(len(logits)) if offsets[t, 0] != NO_OFFSET]
    return [
        Candidate(int(offsets[i, 0]), int(offsets[j, 1]), float(logits[i, 0] + logits[j, 1]))
        for i in tokens
        for j in tokens
        if i <= j < i + longest
    ]


def window_table(examples: Sequence[int], offsets: Sequence[Offsets], cls: int = 0) -> WindowTable:
    count = len(examples)
    return WindowTable(np.array(examples, np.int64), np.full(count, cls), offsets, np.zeros((count, 2)))


def peaks(tokens: int, start: int, end: int, height: float = 5.0, null: float = 0.0) -> Logits:
    """Zeros with a peak at one span, and half the null score in each logit of the CLS token in front."""
    logits = np.zeros((tokens, 2), np.float32)
    logits[0] = null / 2
    logits[start, 0] += height
    logits[end, 1] += height
    return logits


@QUICK
@given(random_windows(), st.integers(1, 15))
def test_decode_window_finds_all_spans_with_a_large_top_k(window: tuple[Logits, Offsets], longest: int) -> None:
    logits, offsets = window
    candidates = decode_window(logits, offsets, top_k=1000, longest=longest)
    expected = brute_force(logits, offsets, longest)
    assert sorted(candidates, key=repr) == sorted(expected, key=repr)
    assert [candidate.score for candidate in candidates] == sorted(
        (candidate.score for candidate in expected), reverse=True
    )


@QUICK
@given(random_windows(), st.integers(1, 6))
def test_decode_window_with_a_small_top_k_finds_valid_spans_and_the_best(
    window: tuple[Logits, Offsets], top_k: int
) -> None:
    logits, offsets = window
    candidates = decode_window(logits, offsets, top_k=top_k, longest=4)
    assert len(candidates) <= top_k
    assert set(candidates) <= set(brute_force(logits, offsets, 4))
    assert all(candidate.start < candidate.end for candidate in candidates)
    context_tokens = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    if len(context_tokens):
        start, end = (context_tokens[np.argmax(logits[context_tokens, side])] for side in (0, 1))
        if start <= end < start + 4:  # then no span can be better
            assert candidates[0].score == float(logits[start, 0] + logits[end, 1])


def test_maximum_answer_length_counts_tokens() -> None:
    tokens = MAX_ANSWER_TOKENS + 2
    logits, offsets = np.full((tokens, 2), -9, np.float32), offsets_of([True] * tokens)
    logits[0, 0], logits[MAX_ANSWER_TOKENS - 1, 1], logits[MAX_ANSWER_TOKENS, 1] = 5, 5, 9
    best = decode_window(logits, offsets)[0]
    assert (best.start, best.end) == (0, offsets[MAX_ANSWER_TOKENS - 1, 1])


def test_tokens_outside_the_context_are_never_answers() -> None:
    logits = np.array([[9, 9], [9, 9], [0, 0], [1, 1], [9, 9]], np.float32)
    candidates = decode_window(logits, offsets_of([False, False, True, True, False]))
    assert [(candidate.start, candidate.end) for candidate in candidates] == [(9, 11), (6, 11), (6, 8)]
    assert decode_window(logits, offsets_of([False] * 5)) == []


def test_ties_are_broken_by_position() -> None:
    flat = np.zeros((4, 2), np.float32)
    candidates = decode_window(flat, offsets_of([True] * 4), top_k=3)
    assert [(candidate.start, candidate.end) for candidate in candidates] == [(0, 2), (0, 5), (0, 8)]
    (decoded_question,) = decode([flat], window_table([0], [offsets_of([True] * 4)]), 1)
    (again,) = decode([flat.copy()], window_table([0], [offsets_of([True] * 4)]), 1)
    assert decoded_question == again
    assert decoded_question.candidates[0] == Candidate(0, 2, 0.0)


def test_decode_merges_the_windows_of_a_question() -> None:
    """A span in both windows has the larger score; the null score is the smaller one."""
    offsets = offsets_of([False, True, True])
    first, second = peaks(3, 1, 2, height=2, null=6), peaks(3, 1, 2, height=4, null=-3)
    (merged,) = decode([first, second], window_table([0, 0], [offsets, offsets]), 1)
    spans = [(c.start, c.end) for c in merged.candidates]
    assert len(set(spans)) == len(spans) == 3
    assert merged.candidates[0] == Candidate(3, 8, 8.0)
    assert merged.null == -3.0
    assert merged.no_answer_score == -11.0


@QUICK
@given(st.lists(random_windows(), min_size=1, max_size=4))
def test_decode_takes_the_maximum_over_spans_and_the_minimum_over_nulls(windows: list[tuple[Logits, Offsets]]) -> None:
    logits, offsets = [pair[0] for pair in windows], [pair[1] for pair in windows]
    (merged,) = decode(logits, window_table([0] * len(windows), offsets), 1, top_k=10_000)
    best: dict[tuple[int, int], float] = {}
    for window_logits, window_offsets in windows:
        for span in brute_force(window_logits, window_offsets, MAX_ANSWER_TOKENS):
            best[span.start, span.end] = max(span.score, best.get((span.start, span.end), -math.inf))
    assert {(span.start, span.end): span.score for span in merged.candidates} == best
    assert merged.null == min(float(window[0].sum()) for window in logits)
    ranked = [(-span.score, span.start, span.end) for span in merged.candidates]
    assert ranked == sorted(ranked)


def test_truncated_answer_is_found_in_the_overlapping_window() -> None:
    context = "aa bb cc dd ee ff"
    first, second = offsets_of([False, True, True, True], shift=-3), offsets_of([False, True, True, True], shift=3)
    cut, whole = peaks(4, 3, 3, height=2), peaks(4, 1, 2, height=5)  # "cc"; "cc dd"
    (merged,) = decode([cut, whole], window_table([0, 0], [first, second]), 1)
    best = merged.candidates[0]
    assert context[best.start : best.end] == "cc dd"


def test_decode_groups_windows_by_question() -> None:
    offsets = offsets_of([False, True, True])
    logits = [peaks(3, 2, 2, null=1), peaks(3, 1, 1, null=2), peaks(3, 1, 2, null=3)]
    decoded_questions = decode(logits, window_table([2, 0, 2], [offsets] * 3), 3)
    assert [decoded_question.null for decoded_question in decoded_questions] == [2.0, math.inf, 1.0]
    assert [len(decoded_question.candidates) for decoded_question in decoded_questions] == [3, 0, 3]
    assert (decoded_questions[0].candidates[0].start, decoded_questions[0].candidates[0].end) == (3, 5)


def test_null_score_is_read_at_the_cls_token() -> None:
    logits = np.array([[0, 0], [0, 0], [3, 4]], np.float32)
    (decoded_question,) = decode([logits], window_table([0], [offsets_of([True, True, False])], cls=2), 1)
    assert decoded_question.null == 7.0
    assert decoded_question.no_answer_score == 7.0


def test_decode_keeps_at_most_top_k_candidates() -> None:
    logits = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    (decoded_question,) = decode([logits] * 2, window_table([0, 0], [offsets_of([True] * 60)] * 2), 1)
    assert len(decoded_question.candidates) == TOP_K


CONTEXT = "aa bb cc"
DECODED = DecodedSpans((Candidate(3, 5, 4.0), Candidate(0, 2, 1.0)), null=3.0)  # no-answer score -1
EMPTY = DecodedSpans((), null=math.inf)


def examples(count: int) -> list[Example]:
    return [Example(f"q{i}", "?", CONTEXT, (Answer("bb", 3),)) for i in range(count)]


@pytest.mark.parametrize(("threshold", "expected"), [(None, "bb"), (0.0, "bb"), (-1.0, "bb"), (-1.001, ""), (-9.0, "")])
def test_answer_is_given_up_to_the_threshold(threshold: float | None, expected: str) -> None:
    assert answer_texts([DECODED], examples(1), threshold) == {"q0": expected}


def test_question_without_candidates_has_no_answer() -> None:
    assert EMPTY.no_answer_score == math.inf
    for threshold in (None, 0.0, 1e9):
        assert answer_texts([EMPTY, DECODED], examples(2), threshold) == {"q0": "", "q1": "bb"}
        (entry,) = n_best(EMPTY, CONTEXT, threshold, 5)
        assert entry == {"answer": "", "score": 1.0, "start": 0, "end": 0}


def test_answer_texts_needs_one_decoding_per_question() -> None:
    with pytest.raises(ValueError, match="zip"):
        answer_texts([DECODED], examples(2), None)


def test_n_best_without_a_threshold_has_spans_only() -> None:
    entries = n_best(DECODED, CONTEXT, None, 5)
    assert [(e["answer"], e["start"], e["end"]) for e in entries] == [("bb", 3, 5), ("aa", 0, 2)]
    expected = 1 / (1 + math.exp(-3))
    assert [e["score"] for e in entries] == pytest.approx([expected, 1 - expected])


def test_n_best_with_a_threshold_includes_no_answer() -> None:
    entries = n_best(DECODED, CONTEXT, 1.0, 5)
    assert [e["answer"] for e in entries] == ["bb", "", "aa"]
    weights = np.exp([4.0, 3.0 - 1.0, 1.0])
    assert [e["score"] for e in entries] == pytest.approx((weights / weights.sum()).tolist())
    assert n_best(DECODED, CONTEXT, 1.0, 1) == entries[:1]


@st.composite
def random_decoded(draw: st.DrawFn) -> DecodedSpans:
    scores = sorted(draw(st.lists(SCORE, min_size=1, max_size=4)), reverse=True)
    return DecodedSpans(tuple(Candidate(3 * i, 3 * i + 2, score) for i, score in enumerate(scores)), draw(SCORE))


@QUICK
@given(random_decoded(), SCORE, st.sampled_from(["far", "at", "above", "below"]))
@example(DecodedSpans((Candidate(0, 2, 0.11),), -0.95), 0.0, "at")  # null - threshold > best only because of rounding
def test_n_best_starts_with_no_answer_iff_the_threshold_is_exceeded(
    decoded_question: DecodedSpans, arbitrary: float, position: str
) -> None:
    boundary = decoded_question.no_answer_score
    threshold = {
        "far": arbitrary,
        "at": boundary,
        "above": math.nextafter(boundary, 99),
        "below": math.nextafter(boundary, -99),
    }[position]
    entries = n_best(decoded_question, "aa bb cc dd", threshold, 10)
    answer = answer_texts([decoded_question], [Example("q", "?", "aa bb cc dd")], threshold)["q"]
    assert entries[0]["answer"] == answer
    shares = [float(str(entry["score"])) for entry in entries]
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares, reverse=True)
    assert len(entries) == len(decoded_question.candidates) + 1
