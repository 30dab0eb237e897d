"""Scores of thousands of resamples at once, and what follows from them: intervals, tests, corrections.

A resample is a row of counts: how often each cluster of examples was drawn. Most scores are functions
of sums over examples (right answers, labels by name, products of values), so that the scores of all
resamples are one product (draws, clusters) x (clusters, columns). Every predictor of a board meets the
same resamples, so that differences can be taken between their scores, resample by resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput

Floats = NDArray[np.float64]
Clusters = Sequence[Hashable] | None
ClusterIds = NDArray[np.int64]  # (examples,) the number of each example's cluster

DRAWS = 2000
NUMBERS_AT_ONCE = 1 << 21  # random numbers held in memory at a time
ROUNDING = 1e-9  # differences this close, relative to the largest possible, are ties


class Score(Protocol):
    """One predictor's score, ready to be asked for any sample of its examples."""

    def of(self, counts: Floats, members: ClusterIds) -> Floats:
        """Scores (draws,) of samples with every cluster so many times (draws, clusters)."""

    def sums(self) -> SumScore:
        """The same score as a function of sums, for swapping examples between two predictors."""


@dataclass(frozen=True)
class SumScore:
    """``finish`` of the sums over examples of ``columns``."""

    columns: Floats  # (examples, columns)
    finish: Callable[[Floats], Floats]  # (draws, columns) -> (draws,)

    def of(self, counts: Floats, members: ClusterIds) -> Floats:
        return self.finish(counts @ self.by_cluster(members))

    def by_cluster(self, members: ClusterIds) -> Floats:
        """Sums (clusters, columns)."""
        return np.stack([cluster_sums(members, column) for column in self.columns.T], 1)

    def sums(self) -> SumScore:
        return self


def mean_score(values: NDArray[Any]) -> SumScore:
    """The mean of per-example values."""
    numbers = np.asarray(values, np.float64)
    return SumScore(np.stack([numbers, np.ones(len(numbers))], 1), lambda sums: sums[:, 0] / sums[:, 1])


def cluster_ids_of(clusters: Clusters, examples: int) -> ClusterIds:
    """Clusters as 0, 1, ... by first appearance (examples,)."""
    if clusters is None:
        return np.arange(examples)
    if len(clusters) != examples:
        raise BadInput(f"got {len(clusters)} clusters for {examples} examples; expected one each")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in clusters])


def cluster_sums(members: ClusterIds, numbers: Floats) -> Floats:
    """Sum over each cluster (clusters,)."""
    return np.bincount(members, weights=numbers).astype(np.float64)


def draw_clusters(units: int, draws: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Portions (draws, units) of units drawn with replacement."""
    random = np.random.default_rng(seed)
    for count in draw_chunks(draws, units):
        yield random.integers(0, units, size=(count, units), dtype=np.int32)


def draw_chunks(draws: int, units: int) -> Iterator[int]:
    """Numbers of draws that add up to all and fit into memory together with their units."""
    if draws < 1:
        raise BadInput(f"draws: got {draws}, expected at least 1")
    step = max(1, NUMBERS_AT_ONCE // max(1, units))
    return (min(step, draws - done) for done in range(0, draws, step))


def draw_clustered_rows(members: ClusterIds, draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each draw: those of every cluster drawn, as often as it is drawn."""
    order = np.argsort(members, kind="stable")  # rows, cluster by cluster
    rows = np.split(order, np.cumsum(np.bincount(members))[:-1])
    for portion in draw_clusters(len(rows), draws, seed):
        for chosen in portion:
            yield order[chosen] if len(rows) == len(order) else np.concatenate([rows[i] for i in chosen])


def resampled(scores: Sequence[Score], clusters: Clusters, examples: int, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Every score on the same resamples (scores, draws)."""
    members = cluster_ids_of(clusters, examples)
    units = int(members.max()) + 1
    portions_of_scores = []
    for chosen in draw_clusters(units, draws, seed):  # (draws, clusters)
        flat = chosen + units * np.arange(len(chosen))[:, None]
        counts = np.bincount(flat.ravel(), minlength=flat.size).reshape(flat.shape).astype(np.float64)
        portions_of_scores.append(np.stack([score.of(counts, members) for score in scores]))
    return np.concatenate(portions_of_scores, axis=1)


def percentile_interval(drawn: Floats, units: int, level: float = 0.95) -> tuple[float, float] | None:
    """Quantiles Φ(±sqrt(k / (k - 1)) · t) of the scores drawn, t being Student's quantile with k - 1 degrees.

    ``units`` is k, the number of clusters; None for a single one, which shows no spread.
    """
    from scipy import special

    if not 0 < level < 1:
        raise BadInput(f"level: got {level}, expected a share between 0 and 1 such as 0.95")
    if units < 2:
        return None
    reach = math.sqrt(units / (units - 1)) * special.stdtrit(units - 1, (1 + level) / 2)
    low, high = np.quantile(drawn, special.ndtr([-reach, reach]))
    return float(low), float(high)


def clopper_pearson_lower(units: int, level: float = 0.95) -> float:
    """How low a share may be of which ``units`` of ``units`` were seen: the p with p^k = (1 - level) / 2.

    What never varied has no spread to draw from, but is not sure for that (Clopper and Pearson's lower end).
    """
    return float(((1 - level) / 2) ** (1 / units))


def sign_flip_p(sums: Floats, draws: int = 10_000, seed: int = 0) -> float:
    """Two-sided p of a mean difference of 0, from each cluster's sum of differences (clusters,).

    If both predictors are equally good, either sign of a sum is as likely, so p is the share of sign
    patterns that give a total at least as far from 0: of all 2^k where these are few, else of random
    ones with the actual pattern counted in, so that p is never 0. Clusters without a difference do not matter.
    """
    moving = sums[sums != 0]
    needed = abs(moving.sum()) - ROUNDING * np.abs(moving).sum()
    patterns = 2 ** len(moving) if len(moving) < 62 else math.inf
    if patterns <= draws:
        bits = np.arange(int(patterns))[:, None] >> np.arange(len(moving)) & 1  # (patterns, clusters)
        return float(np.mean(np.abs((2 * bits - 1) @ moving) >= needed))
    random = np.random.default_rng(seed)
    reached = 1
    for count in draw_chunks(draws, len(moving)):
        signs = random.integers(0, 2, size=(count, len(moving)), dtype=np.int8) * 2 - 1  # (draws, clusters)
        reached += int(np.sum(np.abs(signs @ moving) >= needed))
    return reached / (draws + 1)


def swap_p(a: Score, b: Score, clusters: Clusters, draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided p of a difference of scores that are no means: clusters of predictions swap sides.

    With s in {0, 1} for every cluster, the sums of a become Σ a + s · (b - a) and those of b the rest.
    """
    first, second = a.sums(), b.sums()
    members = cluster_ids_of(clusters, len(first.columns))
    gaps = second.by_cluster(members) - first.by_cluster(members)  # (clusters, columns)
    first_sums, second_sums = first.columns.sum(0), second.columns.sum(0)  # (columns,)
    actual = abs(float(first.finish(first_sums[None])[0] - second.finish(second_sums[None])[0]))
    random = np.random.default_rng(seed)
    reached = 1
    for count in draw_chunks(draws, len(gaps)):
        moved = (random.random((count, len(gaps))) < 0.5).astype(np.float64) @ gaps  # (draws, columns)
        differences = first.finish(first_sums + moved) - second.finish(second_sums - moved)
        reached += int(np.sum(np.abs(differences) >= actual - ROUNDING))
    return reached / (draws + 1)


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
    numbers = np.asarray(values, dtype=np.float64)
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return SeedSummary(float(numbers.mean()), std, float(numbers.min()), float(numbers.max()), len(numbers))
