"""Naive bootstrap and paired tests: coverage, false positives and Holm's correction; all seeded."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_oracles import (
    Interval,
    bootstrap_interval,
    bootstrap_metric,
    f1,
    matthews_correlation,
    paired_metric_test,
    paired_test,
)

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.bootstrap import holm
from bertvision.evaluation.metrics.values import pearson

VALUES = np.random.default_rng(5).random(40)


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def width(interval: Interval | None) -> float:
    low, high = ends(interval)
    return high - low


def coverage(rows: int, clusters: int | None, repeats: int = 200) -> float:
    """How often the interval contains the true mean 0 of values with a shared part per cluster."""
    random = np.random.default_rng(11)
    names = None if clusters is None else (np.arange(rows) % clusters).tolist()
    hits = 0
    for seed in range(repeats):
        shared = 0.0 if clusters is None else random.normal(size=clusters)[np.arange(rows) % clusters]
        low, high = ends(bootstrap_interval(random.normal(size=rows) + shared, names, draws=400, seed=seed))
        hits += low <= 0 <= high
    return hits / repeats


@pytest.mark.parametrize(("rows", "clusters"), [(60, None), (6, None), (60, 20), (60, 5)])
def test_intervals_contain_the_true_mean_about_95_percent_of_the_time(rows: int, clusters: int | None) -> None:
    """Plain percentiles would contain it in 84 of 100 with five clusters."""
    assert 0.88 <= coverage(rows, clusters) <= 0.99


def test_interval_of_a_large_sample_matches_the_normal_approximation() -> None:
    values = np.random.default_rng(0).random(4000) < 0.8
    low, high = ends(bootstrap_interval(values))
    error = values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.1 * error)


def test_higher_level_gives_a_wider_interval() -> None:
    widths = [width(bootstrap_interval(VALUES, level=level)) for level in (0.5, 0.8, 0.95, 0.99)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


def test_clusters_that_agree_widen_the_interval() -> None:
    """Ten equal answers to a context are one answer: sqrt(10) times as wide."""
    values, contexts = np.repeat(VALUES > 0.5, 10), np.repeat(np.arange(len(VALUES)), 10)
    naive, honest = bootstrap_interval(values), bootstrap_interval(values, contexts.tolist())
    assert 2.5 < width(honest) / width(naive) < 4.0
    assert honest is not None
    assert honest.units == len(VALUES)
    assert honest.estimate == values.mean()


def test_clusters_of_one_example_equal_no_clusters() -> None:
    plain = bootstrap_interval(VALUES)
    assert bootstrap_interval(VALUES, [f"context {i}" for i in range(len(VALUES))]) == plain
    assert bootstrap_interval(VALUES, list(range(100, 100 + len(VALUES)))) == plain


def test_uneven_clusters_are_weighted_by_their_size() -> None:
    """One cluster of 98 zeros, two of a single 1: a draw without the large one has mean 1."""
    values, names = [0.0] * 98 + [1.0, 1.0], ["a"] * 98 + ["b", "c"]
    interval = bootstrap_interval(values, names)
    assert interval is not None
    assert (interval.estimate, interval.low, interval.high) == (0.02, 0.0, 1.0)


def test_draws_in_chunks_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_interval(VALUES, draws=300)
    monkeypatch.setattr("bertvision.evaluation.metrics.bootstrap.NUMBERS_AT_ONCE", 7 * len(VALUES))
    assert bootstrap_interval(VALUES, draws=300) == whole


def test_results_are_reproducible_by_seed() -> None:
    assert bootstrap_interval(VALUES, seed=3) == bootstrap_interval(VALUES, seed=3)
    assert bootstrap_interval(VALUES, seed=3) != bootstrap_interval(VALUES, seed=4)
    assert paired_test(VALUES, VALUES[::-1], seed=3) == paired_test(VALUES, VALUES[::-1], seed=3)


def test_constants_have_no_width_and_a_single_cluster_no_interval() -> None:
    assert ends(bootstrap_interval([1.0] * 9)) == (1.0, 1.0)
    assert bootstrap_interval([1.0]) is None
    assert bootstrap_interval([1.0, 0.0, 1.0], ["a", "a", "a"]) is None
    assert bootstrap_metric(pearson, [1.0], [2.0]) is None


def test_bootstrap_metric_of_the_mean_equals_bootstrap_interval() -> None:
    names = (np.arange(len(VALUES)) // 3).tolist()
    for clusters in (None, names):
        interval = bootstrap_metric(lambda values: float(values.mean()), VALUES, clusters=clusters, draws=500)
        assert ends(interval) == pytest.approx(ends(bootstrap_interval(VALUES, clusters, draws=500)))


def test_interval_of_a_correlation_matches_fishers() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=400)
    y = x + random.normal(size=400)
    low, high = ends(bootstrap_metric(pearson, x, y, draws=500))
    middle = math.atanh(pearson(x.tolist(), y.tolist()))
    expected = [math.tanh(middle + sign * 1.96 / math.sqrt(397)) for sign in (-1, 1)]
    assert [low, high] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("metric", [f1, matthews_correlation])
def test_intervals_of_label_scores_contain_the_estimate(metric: object) -> None:
    assert callable(metric)
    random = np.random.default_rng(2)
    gold = random.integers(0, 2, 200)
    predicted = np.where(random.random(200) < 0.85, gold, 1 - gold)
    interval = bootstrap_metric(metric, gold, predicted, draws=200)
    assert interval is not None
    assert interval.low < interval.estimate < interval.high <= 1.0
    assert interval.estimate == metric(gold, predicted)


DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.4, 0.0, 0.4, 2 / 3, 1.0]), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(DIFFERENCES)
def test_few_differences_are_tested_with_all_sign_patterns(differences: list[float]) -> None:
    patterns = itertools.product((-1, 1), repeat=len(differences))
    totals = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in patterns]
    expected = sum(total >= abs(sum(differences)) - 1e-9 for total in totals) / len(totals)
    result = paired_test(differences, [0.0] * len(differences))
    assert result.p == pytest.approx(expected)
    assert result.difference == pytest.approx(np.mean(differences))


def test_many_differences_are_tested_with_random_signs() -> None:
    """20 wins and 4 losses: the two-sided sign test says 2 · P(X <= 4), X ~ Binomial(24, 1/2)."""
    a, b = [1.0] * 20 + [0.0] * 4 + [1.0] * 50, [0.0] * 20 + [1.0] * 4 + [1.0] * 50
    expected = 2 * sum(math.comb(24, i) for i in range(5)) / 2**24
    assert paired_test(a, b, draws=40_000).p == pytest.approx(expected, rel=0.4)
    assert paired_test([1.0] * 30, [0.0] * 30, draws=99).p == 1 / 100  # never 0


def test_equal_predictors_have_difference_0_and_p_1() -> None:
    result = paired_test(VALUES, VALUES)
    assert (result.difference, result.p) == (0.0, 1.0)
    assert ends(result.interval) == (0.0, 0.0)


def test_swapping_the_predictors_changes_the_sign_only() -> None:
    forward, backward = paired_test(VALUES, VALUES**2), paired_test(VALUES**2, VALUES)
    assert (forward.difference, forward.p) == (-backward.difference, backward.p)
    assert ends(forward.interval) == pytest.approx(tuple(-end for end in reversed(ends(backward.interval))), abs=0.02)


@pytest.mark.parametrize("clusters", [None, (np.arange(40) // 4).tolist()])
def test_p_values_are_uniform_without_a_difference(clusters: list[int] | None) -> None:
    random = np.random.default_rng(7)
    shared = 0.0 if clusters is None else 1.0
    p_values = []
    for seed in range(200):
        common = shared * random.normal(size=10)[np.arange(40) // 4]
        a, b = random.normal(size=40) + common, random.normal(size=40)
        p_values.append(paired_test(a, b, clusters, draws=200, seed=seed).p)
    for level in (0.05, 0.25, 0.5, 0.75):
        assert np.mean(np.array(p_values) <= level) == pytest.approx(
            level, abs=3.5 * math.sqrt(level * (1 - level) / 200)
        )


def test_ignoring_clusters_gives_false_positives() -> None:
    """Twenty contexts of ten equal answers: treated as independent, chance looks significant far too often."""
    random = np.random.default_rng(8)
    contexts = np.repeat(np.arange(20), 10)
    false_positives = {"naive": 0, "clustered": 0}
    for seed in range(60):
        differences = random.normal(size=20)[contexts]
        zeros = np.zeros(200)
        false_positives["naive"] += paired_test(differences, zeros, draws=200, seed=seed).p < 0.05
        false_positives["clustered"] += (
            paired_test(differences, zeros, contexts.tolist(), draws=200, seed=seed).p < 0.05
        )
    assert false_positives["clustered"] <= 8
    assert false_positives["naive"] >= 20


def test_paired_metric_test_detects_a_real_difference() -> None:
    random = np.random.default_rng(3)
    gold = random.integers(0, 2, 300)
    good, poor, same = (np.where(random.random(300) < rate, gold, 1 - gold) for rate in (0.9, 0.6, 0.9))
    real = paired_metric_test(matthews_correlation, gold, good, poor, draws=200)
    assert real.p < 0.01
    assert real.difference == pytest.approx(matthews_correlation(gold, good) - matthews_correlation(gold, poor))
    assert ends(real.interval)[0] > 0
    none = paired_metric_test(matthews_correlation, gold, good, same, draws=200)
    assert none.p > 0.05
    assert ends(none.interval)[0] < 0 < ends(none.interval)[1]
    assert paired_metric_test(f1, gold, good, good, draws=50).p == 1.0


def test_swap_test_equals_sign_flip_test_for_means() -> None:
    random = np.random.default_rng(3)
    gold, a, b = (np.repeat(random.integers(0, 2, 20), 3) for _ in range(3))
    contexts = (np.arange(60) // 3).tolist()
    swapped = paired_metric_test(lambda g, s: float(np.mean(g == s)), gold, a, b, contexts, draws=4000)
    flipped = paired_test(gold == a, gold == b, contexts)
    assert swapped.p == pytest.approx(flipped.p, abs=0.04)
    assert flipped.p > paired_test(gold == a, gold == b).p + 0.1  # clusters matter here
    assert swapped.difference == pytest.approx(flipped.difference)


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4·.005, 3·.01, 2·.03, then .04 lifted to .06
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
        ([0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_holm_by_hand(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_the_same_as_its_stepwise_definition(p_values: list[float]) -> None:
    """At any level: from the smallest on, as long as p <= level / (number of tests left)."""
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for level in (0.01, 0.05, 0.3):
        rejecting = True
        for remaining, i in zip(range(len(order), 0, -1), order, strict=True):
            rejecting = rejecting and remaining * p_values[i] <= level
            assert (adjusted[i] <= level) == rejecting


def test_invalid_inputs_are_refused() -> None:
    with pytest.raises(BadInput, match="non-empty list"):
        bootstrap_interval([])
    with pytest.raises(BadInput, match="finite"):
        bootstrap_interval([1.0, math.nan])
    with pytest.raises(BadInput, match="clusters: got 2 for 3 examples"):
        bootstrap_interval([1.0, 2.0, 3.0], ["a", "b"])
    with pytest.raises(BadInput, match="columns of 2, 3 rows"):
        paired_test([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(BadInput, match="level: got 95"):
        bootstrap_interval([1.0, 2.0], level=95)
    with pytest.raises(BadInput, match="draws: got 0"):
        bootstrap_interval([1.0, 2.0], draws=0)
