"""How far a score may be off by the luck of the examples, and whether two predictors really differ.

Examples that share a context are right or wrong together, so they are drawn, and swapped, together:
``clusters`` names the context of each example. Without clusters every example is its own.

Intervals are bootstrap percentiles, widened for small numbers of clusters (Hesterberg 2015,
https://arxiv.org/abs/1411.5279, "expanded percentile"): the plain ones are too narrow by the factor
sqrt(1 - 1/k) and by using the normal instead of the t distribution, which matters for a dozen
contexts and vanishes for hundreds. BCa corrects skewness instead, which scores hardly have, needs
a leave-one-out value per example, and is undefined where all are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.resample import (
    Clusters,
    Floats,
    as_columns,
    as_vector,
    cluster_sums,
    draw_rows,
    draw_units,
    number_clusters,
    portions,
)

Metric = Callable[..., float]

ROUNDING = 1e-9  # differences this close, relative to the largest possible, are ties


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval; ``units`` is how many clusters it rests on."""

    estimate: float
    low: float
    high: float
    level: float
    units: int


@dataclass(frozen=True)
class Comparison:
    """First minus second: the difference, its interval (None for a single cluster) and its two-sided p."""

    difference: float
    interval: Interval | None
    p: float


@dataclass(frozen=True)
class SeedSummary:
    """The scores of one predictor over its seeds; ``std`` (n - 1 in the denominator) is None for one seed."""

    mean: float
    std: float | None
    min: float
    max: float
    n: int


def seed_summary(values: Sequence[float]) -> SeedSummary:
    """Mean and spread over seeds."""
    numbers = as_vector("values", values)
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return SeedSummary(float(numbers.mean()), std, float(numbers.min()), float(numbers.max()), len(numbers))


def bootstrap_interval(
    values: ArrayLike, clusters: Clusters = None, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval | None:
    """Interval of the mean of per-example values: Σ sums / Σ sizes over k clusters drawn with replacement.

    None for a single cluster, which shows no spread.
    """
    numbers = as_vector("values", values)
    members = number_clusters(clusters, len(numbers))
    sums, sizes = cluster_sums(members, numbers), np.bincount(members)
    even = sizes.min() == sizes.max()
    drawn = [
        sums[chosen].sum(1) / (sizes[0] * len(sizes) if even else sizes[chosen].sum(1))
        for chosen in draw_units(len(sizes), draws, seed)
    ]
    return percentile_interval(float(numbers.mean()), np.concatenate(drawn), len(sizes), level)


def bootstrap_metric(
    function: Metric,
    *arrays: ArrayLike,
    clusters: Clusters = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Interval of ``function(*arrays)``, a score that is no mean (Matthews, F1, correlation), by drawing rows.

    The function is called once per draw and must have a value for every sample, also where a label
    is missing or all predictions are equal.
    """
    columns = as_columns(arrays)
    members = number_clusters(clusters, len(columns[0]))
    samples = draw_rows(members, draws, seed)
    drawn = np.array([function(*(column[rows] for column in columns)) for rows in samples])
    return percentile_interval(float(function(*columns)), drawn, int(members.max()) + 1, level)


def paired_test(
    a: ArrayLike, b: ArrayLike, clusters: Clusters = None, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> Comparison:
    """Is the mean of ``a - b`` zero? By flipping the sign of each cluster's sum of differences.

    If both are equally good, either sign is as likely, so p is the share of sign patterns that give a
    mean at least as far from 0: of all 2^k where these are few, else of random ones with the pattern
    found counted in, so that p is never 0. Clusters without a difference do not matter.
    """
    first, second = as_columns((a, b))
    differences = as_vector("differences", np.subtract(first, second, dtype=np.float64))
    sums = cluster_sums(number_clusters(clusters, len(differences)), differences)
    interval = bootstrap_interval(differences, clusters, level=level, seed=seed)
    return Comparison(float(differences.mean()), interval, sign_flip_p(sums, draws, seed))


def paired_metric_test(
    function: Metric,
    gold: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    clusters: Clusters = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Comparison:
    """As :func:`paired_test` for ``function(gold, a) - function(gold, b)``: clusters of predictions swap sides."""
    truth, first, second = as_columns((gold, a, b))

    def difference(truth: NDArray[Any], first: NDArray[Any], second: NDArray[Any]) -> float:
        return function(truth, first) - function(truth, second)

    found = difference(truth, first, second)
    members = number_clusters(clusters, len(truth))
    random = np.random.default_rng(seed)
    reached = 1
    for _ in range(draws):
        swap = (random.random(int(members.max()) + 1) < 0.5)[members]
        swapped = difference(truth, np.where(swap, second, first), np.where(swap, first, second))
        reached += abs(swapped) >= abs(found) - ROUNDING
    interval = bootstrap_metric(
        difference, truth, first, second, clusters=clusters, level=level, draws=draws, seed=seed
    )
    return Comparison(float(found), interval, reached / (draws + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: sorted, the i-th of m becomes max over j <= i of (m - j + 1) · p_j.

    Calling real what stays below 0.05 errs in any of the m claims in at most 5 % of all tables
    (Holm 1979), however the tests depend on each other.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(order)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def sign_flip_p(sums: Floats, draws: int = 10_000, seed: int = 0) -> float:
    """The p of :func:`paired_test` from each cluster's sum of differences."""
    moving = sums[sums != 0]
    needed = abs(moving.sum()) - ROUNDING * np.abs(moving).sum()
    patterns = 2 ** len(moving) if len(moving) < 62 else math.inf
    if patterns <= draws:
        bits = np.arange(int(patterns))[:, None] >> np.arange(len(moving)) & 1  # (patterns, clusters)
        return float(np.mean(np.abs((2 * bits - 1) @ moving) >= needed))
    random = np.random.default_rng(seed)
    reached = 1
    for count in portions(draws, len(moving)):
        signs = random.integers(0, 2, size=(count, len(moving)), dtype=np.int8) * 2 - 1  # (draws, clusters)
        reached += int(np.sum(np.abs(signs @ moving) >= needed))
    return reached / (draws + 1)


def alike_share(units: int, level: float = 0.95) -> float:
    """How low a share may be of which ``units`` of ``units`` were seen: the p with p^k = (1 - level) / 2.

    What never varied has no spread to draw from, but is not sure for that (Clopper and Pearson's lower end).
    """
    return float(((1 - level) / 2) ** (1 / units))


def percentile_interval(estimate: float, drawn: Floats, units: int, level: float = 0.95) -> Interval | None:
    """Ends at the quantiles Φ(±sqrt(k / (k - 1)) · t), t being the quantile of Student's t with k - 1 degrees."""
    from scipy import special

    if not 0 < level < 1:
        raise BadInput(f"level: got {level}, expected a share between 0 and 1 such as 0.95")
    if units < 2:
        return None
    reach = math.sqrt(units / (units - 1)) * special.stdtrit(units - 1, (1 + level) / 2)
    low, high = np.quantile(drawn, special.ndtr([-reach, reach]))
    return Interval(estimate, float(low), float(high), level, units)
