"""Decoding: against brute force, merged over windows, and with the no-answer rule."""

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


def places(inside: Sequence[bool], shift: int = 0) -> Offsets:
    """Tokens of two characters and a blank; NO_OFFSET where a token is not in the context."""
    rows = [(shift + 3 * t, shift + 3 * t + 2) if there else (NO_OFFSET, NO_OFFSET) for t, there in enumerate(inside)]
    return np.array(rows, np.int32).reshape(-1, 2)


@st.composite
def windows(draw: st.DrawFn) -> tuple[Logits, Offsets]:
    inside = draw(st.lists(st.booleans(), min_size=1, max_size=14))
    logits = draw(st.lists(st.tuples(LOGIT, LOGIT), min_size=len(inside), max_size=len(inside)))
    return np.array(logits, np.float32), places(inside)


def brute_force(logits: Logits, offsets: Offsets, longest: int) -> list[Candidate]:
    """Every allowed span, unordered."""
    tokens = [t for t in range(len(logits)) if offsets[t, 0] != NO_OFFSET]
    return [
        Candidate(int(offsets[i, 0]), int(offsets[j, 1]), float(logits[i, 0] + logits[j, 1]))
        for i in tokens
        for j in tokens
        if i <= j < i + longest
    ]


def table(example: Sequence[int], offsets: Sequence[Offsets], cls: int = 0) -> WindowTable:
    count = len(example)
    return WindowTable(np.array(example, np.int64), np.full(count, cls), offsets, np.zeros((count, 2)))


def peaks(tokens: int, start: int, end: int, height: float = 5.0, null: float = 0.0) -> Logits:
    """Zeros with a peak at one span, and half the null score in each logit of the CLS token in front."""
    logits = np.zeros((tokens, 2), np.float32)
    logits[0] = null / 2
    logits[start, 0] += height
    logits[end, 1] += height
    return logits


@QUICK
@given(windows(), st.integers(1, 15))
def test_all_spans_are_found_when_top_k_is_large(window: tuple[Logits, Offsets], longest: int) -> None:
    logits, offsets = window
    found = decode_window(logits, offsets, top_k=1000, longest=longest)
    expected = brute_force(logits, offsets, longest)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [one.score for one in found] == sorted((one.score for one in expected), reverse=True)


@QUICK
@given(windows(), st.integers(1, 6))
def test_a_small_top_k_gives_allowed_spans_and_the_best_of_them(window: tuple[Logits, Offsets], top_k: int) -> None:
    logits, offsets = window
    found = decode_window(logits, offsets, top_k=top_k, longest=4)
    assert len(found) <= top_k
    assert set(found) <= set(brute_force(logits, offsets, 4))
    assert all(one.start < one.end for one in found)
    inside = np.flatnonzero(offsets[:, 0] != NO_OFFSET)
    if len(inside):
        start, end = (inside[np.argmax(logits[inside, side])] for side in (0, 1))
        if start <= end < start + 4:  # then no span can be better
            assert found[0].score == float(logits[start, 0] + logits[end, 1])


def test_the_length_cap_counts_tokens() -> None:
    tokens = MAX_ANSWER_TOKENS + 2
    logits, offsets = np.full((tokens, 2), -9, np.float32), places([True] * tokens)
    logits[0, 0], logits[MAX_ANSWER_TOKENS - 1, 1], logits[MAX_ANSWER_TOKENS, 1] = 5, 5, 9
    best = decode_window(logits, offsets)[0]
    assert (best.start, best.end) == (0, offsets[MAX_ANSWER_TOKENS - 1, 1])


def test_nothing_outside_the_context_is_an_answer() -> None:
    logits = np.array([[9, 9], [9, 9], [0, 0], [1, 1], [9, 9]], np.float32)
    found = decode_window(logits, places([False, False, True, True, False]))
    assert [(one.start, one.end) for one in found] == [(9, 11), (6, 11), (6, 8)]
    assert decode_window(logits, places([False] * 5)) == []


def test_ties_are_broken_by_place_and_always_the_same() -> None:
    flat = np.zeros((4, 2), np.float32)
    found = decode_window(flat, places([True] * 4), top_k=3)
    assert [(one.start, one.end) for one in found] == [(0, 2), (0, 5), (0, 8)]
    (one,) = decode([flat], table([0], [places([True] * 4)]), 1)
    (again,) = decode([flat.copy()], table([0], [places([True] * 4)]), 1)
    assert one == again
    assert one.candidates[0] == Candidate(0, 2, 0.0)


def test_windows_of_one_question_are_merged() -> None:
    """The same span in both: the larger score; the null score: the smaller."""
    offsets = places([False, True, True])
    one, two = peaks(3, 1, 2, height=2, null=6), peaks(3, 1, 2, height=4, null=-3)
    (found,) = decode([one, two], table([0, 0], [offsets, offsets]), 1)
    spans = [(c.start, c.end) for c in found.candidates]
    assert len(set(spans)) == len(spans) == 3
    assert found.candidates[0] == Candidate(3, 8, 8.0)
    assert found.null == -3.0
    assert found.no_answer_score == -11.0


@QUICK
@given(st.lists(windows(), min_size=1, max_size=4))
def test_merging_is_max_over_spans_and_min_over_nulls(several: list[tuple[Logits, Offsets]]) -> None:
    logits, offsets = [one for one, _ in several], [two for _, two in several]
    (found,) = decode(logits, table([0] * len(several), offsets), 1, top_k=10_000)
    best: dict[tuple[int, int], float] = {}
    for one, two in several:
        for span in brute_force(one, two, MAX_ANSWER_TOKENS):
            best[span.start, span.end] = max(span.score, best.get((span.start, span.end), -math.inf))
    assert {(one.start, one.end): one.score for one in found.candidates} == best
    assert found.null == min(float(one[0].sum()) for one in logits)
    ranked = [(-one.score, one.start, one.end) for one in found.candidates]
    assert ranked == sorted(ranked)


def test_an_answer_cut_by_a_border_is_found_whole_in_the_other_window() -> None:
    context = "aa bb cc dd ee ff"
    first, second = places([False, True, True, True], shift=-3), places([False, True, True, True], shift=3)
    cut, whole = peaks(4, 3, 3, height=2), peaks(4, 1, 2, height=5)  # "cc"; "cc dd"
    (found,) = decode([cut, whole], table([0, 0], [first, second]), 1)
    best = found.candidates[0]
    assert context[best.start : best.end] == "cc dd"


def test_every_question_gets_its_own_windows() -> None:
    offsets = places([False, True, True])
    logits = [peaks(3, 2, 2, null=1), peaks(3, 1, 1, null=2), peaks(3, 1, 2, null=3)]
    found = decode(logits, table([2, 0, 2], [offsets] * 3), 3)
    assert [one.null for one in found] == [2.0, math.inf, 1.0]
    assert [len(one.candidates) for one in found] == [3, 0, 3]
    assert (found[0].candidates[0].start, found[0].candidates[0].end) == (3, 5)


def test_the_null_score_is_at_the_cls_token_wherever_that_is() -> None:
    logits = np.array([[0, 0], [0, 0], [3, 4]], np.float32)
    (found,) = decode([logits], table([0], [places([True, True, False])], cls=2), 1)
    assert found.null == 7.0
    assert found.no_answer_score == 7.0


def test_no_more_than_top_k_candidates_are_kept() -> None:
    logits = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    (found,) = decode([logits] * 2, table([0, 0], [places([True] * 60)] * 2), 1)
    assert len(found.candidates) == TOP_K


CONTEXT = "aa bb cc"
SURE = DecodedSpans((Candidate(3, 5, 4.0), Candidate(0, 2, 1.0)), null=3.0)  # no-answer score -1
EMPTY = DecodedSpans((), null=math.inf)


def examples(count: int) -> list[Example]:
    return [Example(f"q{i}", "?", CONTEXT, (Answer("bb", 3),)) for i in range(count)]


@pytest.mark.parametrize(("threshold", "said"), [(None, "bb"), (0.0, "bb"), (-1.0, "bb"), (-1.001, ""), (-9.0, "")])
def test_a_question_is_answered_up_to_the_threshold(threshold: float | None, said: str) -> None:
    assert answer_texts([SURE], examples(1), threshold) == {"q0": said}


def test_a_question_without_candidates_is_never_answered() -> None:
    assert EMPTY.no_answer_score == math.inf
    for threshold in (None, 0.0, 1e9):
        assert answer_texts([EMPTY, SURE], examples(2), threshold) == {"q0": "", "q1": "bb"}
        (entry,) = n_best(EMPTY, CONTEXT, threshold, 5)
        assert entry == {"answer": "", "score": 1.0, "start": 0, "end": 0}


def test_as_many_answers_as_questions() -> None:
    with pytest.raises(ValueError, match="zip"):
        answer_texts([SURE], examples(2), None)


def test_n_best_without_a_threshold_has_spans_only() -> None:
    entries = n_best(SURE, CONTEXT, None, 5)
    assert [(e["answer"], e["start"], e["end"]) for e in entries] == [("bb", 3, 5), ("aa", 0, 2)]
    expected = 1 / (1 + math.exp(-3))
    assert [e["score"] for e in entries] == pytest.approx([expected, 1 - expected])


def test_n_best_with_a_threshold_has_no_answer_among_them() -> None:
    entries = n_best(SURE, CONTEXT, 1.0, 5)
    assert [e["answer"] for e in entries] == ["bb", "", "aa"]
    weights = np.exp([4.0, 3.0 - 1.0, 1.0])
    assert [e["score"] for e in entries] == pytest.approx((weights / weights.sum()).tolist())
    assert n_best(SURE, CONTEXT, 1.0, 1) == entries[:1]


@st.composite
def decoded(draw: st.DrawFn) -> DecodedSpans:
    scores = sorted(draw(st.lists(SCORE, min_size=1, max_size=4)), reverse=True)
    return DecodedSpans(tuple(Candidate(3 * i, 3 * i + 2, score) for i, score in enumerate(scores)), draw(SCORE))


@QUICK
@given(decoded(), SCORE, st.sampled_from(["far", "at", "above", "below"]))
@example(DecodedSpans((Candidate(0, 2, 0.11),), -0.95), 0.0, "at")  # null - threshold > best, by rounding alone
def test_no_answer_is_first_exactly_when_the_threshold_says_so(one: DecodedSpans, far: float, where: str) -> None:
    at = one.no_answer_score
    threshold = {"far": far, "at": at, "above": math.nextafter(at, 99), "below": math.nextafter(at, -99)}[where]
    entries = n_best(one, "aa bb cc dd", threshold, 10)
    said = answer_texts([one], [Example("q", "?", "aa bb cc dd")], threshold)["q"]
    assert entries[0]["answer"] == said
    shares = [float(str(entry["score"])) for entry in entries]
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares, reverse=True)
    assert len(entries) == len(one.candidates) + 1
