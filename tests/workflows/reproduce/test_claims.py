"""Claims: from the interval of a difference to a verdict."""

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
def measured_differences(draw: st.DrawFn) -> Measured:
    low, middle, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    return Measured(middle, low, high)


@given(measured_differences(), st.sampled_from(RULES), margins)
def test_narrower_interval_never_reverses_a_verdict(measured: Measured, rule: str, margin: float) -> None:
    point = Measured(measured.difference, measured.difference, measured.difference)
    wide_verdict, point_verdict = verdict(measured, rule, margin), verdict(point, rule, margin)
    assert wide_verdict in (OPEN, point_verdict)
    assert point_verdict != OPEN


@given(measured_differences(), margins)
def test_rules_are_consistent(measured: Measured, margin: float) -> None:
    """ "more" and "not-more" are opposites; "about" is "as-good" in both directions."""
    assert {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}[verdict(measured, "more", margin)] == verdict(
        measured, "not-more", margin
    )
    reversed_difference = Measured(-(measured.difference or 0), -(measured.high or 0), -(measured.low or 0))
    both_directions = [verdict(measured, "as-good", margin), verdict(reversed_difference, "as-good", margin)]
    assert (verdict(measured, "about", margin) == HOLDS) == (both_directions == [HOLDS, HOLDS])


@given(st.sampled_from(RULES), margins)
def test_verdict_without_an_interval_is_open(rule: str, margin: float) -> None:
    assert verdict(Measured(why="no data"), rule, margin) == OPEN
    assert verdict(Measured(3.0), rule, margin) == OPEN
    assert verdict(Measured(3.0, math.nan, 4.0), rule, margin) == OPEN


def test_verdicts_of_known_examples() -> None:
    assert verdict(Measured(1, 0.2, 1.8), "more") == HOLDS
    assert verdict(Measured(1, 0, 2), "more") == OPEN
    assert verdict(Measured(0, 0, 0), "more") == FAILS
    assert verdict(Measured(-1, -0.4, 0.1), "as-good", 0.5) == HOLDS
    assert verdict(Measured(2, 1.2, 3), "about", 1) == FAILS


@given(measured_differences(), st.sampled_from(RULES), margins, st.integers(2, 9))
def test_more_comparisons_only_make_failing_harder(
    measured: Measured, rule: str, margin: float, comparisons: int
) -> None:
    single, corrected = verdict(measured, rule, margin), verdict(measured, rule, margin, comparisons)
    assert corrected == single or (single, corrected) == (FAILS, OPEN)


def test_bonferroni_interval() -> None:
    low, high = bonferroni_interval(1.0 - 1.959964, 1.0, 1.0 + 2 * 1.959964, 5)
    assert (1.0 - low, (high - 1.0) / 2) == pytest.approx((2.575829, 2.575829))
    assert verdict(Measured(-0.69, -1.38, -0.02), "more") == FAILS
    assert verdict(Measured(-0.69, -1.38, -0.02), "more", comparisons=6) == OPEN


@given(st.lists(verdicts, max_size=5))
def test_combined_verdict_is_the_weakest(parts: list[str]) -> None:
    combined = combine_verdicts(parts)
    assert (combined == HOLDS) == (bool(parts) and set(parts) == {HOLDS})
    assert (combined == FAILS) == (FAILS in parts)


@given(st.lists(measured_differences(), min_size=1, max_size=6))
def test_mean_difference_is_within_its_interval_and_not_wider_than_its_parts(parts: list[Measured]) -> None:
    mean = mean_difference(parts)
    assert mean.low is not None and mean.high is not None and mean.difference is not None  # noqa: PT018
    assert mean.low <= mean.difference + 1e-9
    assert mean.difference <= mean.high + 1e-9
    widest = max((measured.high or 0) - (measured.low or 0) for measured in parts)
    assert mean.high - mean.low <= widest + 1e-9
    assert mean_difference([*parts, Measured(why="lost")]).interval is None


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
def test_scaled_method_trains_the_same_share_of_the_encoder(
    method: str, layers: int, width: int, expected: str
) -> None:
    assert parse_spec(scaled_method(method, layers, width)) == parse_spec(expected)
