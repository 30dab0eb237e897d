"""From an interval to a verdict, for all intervals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.registry import parse_spec
from bertvision.workflows.reproduce.claims import (
    FAILS,
    HOLDS,
    OPEN,
    Measured,
    bonferroni_interval,
    combine_verdicts,
    mean_difference,
    verdict,
)
from bertvision.workflows.reproduce.experiments import scaled_method
from bertvision.workflows.reproduce.published import RULES

numbers = st.floats(-50, 50, allow_nan=False)
margins = st.floats(0, 10, allow_nan=False)
verdicts = st.sampled_from([HOLDS, FAILS, OPEN])


@st.composite
def found(draw: st.DrawFn) -> Measured:
    low, middle, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    return Measured(middle, low, high)


@given(found(), st.sampled_from(RULES), margins)
def test_a_narrower_interval_never_turns_a_verdict_around(one: Measured, says: str, margin: float) -> None:
    point = Measured(one.difference, one.difference, one.difference)
    wide, sharp = verdict(one, says, margin), verdict(point, says, margin)
    assert wide in (OPEN, sharp)
    assert sharp != OPEN


@given(found(), margins)
def test_rules_fit_together(one: Measured, margin: float) -> None:
    """More and not-more are opposites; about is as good both ways round."""
    assert {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}[verdict(one, "more", margin)] == verdict(one, "not-more", margin)
    turned = Measured(-(one.difference or 0), -(one.high or 0), -(one.low or 0))
    both = [verdict(one, "as-good", margin), verdict(turned, "as-good", margin)]
    assert (verdict(one, "about", margin) == HOLDS) == (both == [HOLDS, HOLDS])


@given(st.sampled_from(RULES), margins)
def test_without_an_interval_nothing_is_decided(says: str, margin: float) -> None:
    assert verdict(Measured(why="no data"), says, margin) == OPEN
    assert verdict(Measured(3.0), says, margin) == OPEN
    assert verdict(Measured(3.0, math.nan, 4.0), says, margin) == OPEN


def test_examples_by_hand() -> None:
    assert verdict(Measured(1, 0.2, 1.8), "more") == HOLDS
    assert verdict(Measured(1, 0, 2), "more") == OPEN
    assert verdict(Measured(0, 0, 0), "more") == FAILS
    assert verdict(Measured(-1, -0.4, 0.1), "as-good", 0.5) == HOLDS
    assert verdict(Measured(2, 1.2, 3), "about", 1) == FAILS


@given(found(), st.sampled_from(RULES), margins, st.integers(2, 9))
def test_several_looks_only_make_it_harder_to_fail(one: Measured, says: str, margin: float, looks: int) -> None:
    alone, among = verdict(one, says, margin), verdict(one, says, margin, looks)
    assert among == alone or (alone, among) == (FAILS, OPEN)


def test_the_interval_of_several_looks_is_bonferronis() -> None:
    low, high = bonferroni_interval(1.0 - 1.959964, 1.0, 1.0 + 2 * 1.959964, 5)
    assert (1.0 - low, (high - 1.0) / 2) == pytest.approx((2.575829, 2.575829))
    assert verdict(Measured(-0.69, -1.38, -0.02), "more") == FAILS
    assert verdict(Measured(-0.69, -1.38, -0.02), "more", comparisons=6) == OPEN


@given(st.lists(verdicts, max_size=5))
def test_a_claim_is_as_strong_as_its_weakest_test(some: list[str]) -> None:
    got = combine_verdicts(some)
    assert (got == HOLDS) == (bool(some) and set(some) == {HOLDS})
    assert (got == FAILS) == (FAILS in some)


@given(st.lists(found(), min_size=1, max_size=6))
def test_a_mean_lies_within_and_is_no_wider_than_its_parts(some: list[Measured]) -> None:
    got = mean_difference(some)
    assert got.low is not None and got.high is not None and got.difference is not None  # noqa: PT018
    assert got.low <= got.difference + 1e-9
    assert got.difference <= got.high + 1e-9
    widest = max((one.high or 0) - (one.low or 0) for one in some)
    assert got.high - got.low <= widest + 1e-9
    assert mean_difference([*some, Measured(why="lost")]).interval is None


@pytest.mark.parametrize(
    ("method", "layers", "width", "expected"),
    [
        ("freeze:k=6,norms=true", 12, 768, "freeze:k=6,norms=true"),
        ("freeze:k=6,norms=true", 6, 384, "freeze:k=3,norms=true"),
        ("freeze:k=9,norms=true", 6, 384, "freeze:k=4,norms=true"),
        ("freeze:k=11,norms=true", 6, 384, "freeze:k=5,norms=true"),
        ("freeze:k=12,norms=true", 6, 384, "freeze:k=6,norms=true"),
        ("adapters:size=768", 12, 768, "adapters:size=768"),
        ("adapters:size=768", 6, 384, "adapters:size=384"),
        ("adapters:share=3,norms=false", 6, 384, "adapters:norms=false,share=3,size=32"),
        ("full", 6, 384, "full"),
    ],
)
def test_the_same_share_of_the_encoder_is_trained(method: str, layers: int, width: int, expected: str) -> None:
    assert parse_spec(scaled_method(method, layers, width)) == parse_spec(expected)
