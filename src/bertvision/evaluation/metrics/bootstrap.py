"""Cluster bootstrap and permutation tests: confidence intervals, p-values, Holm's correction.

A resample is a row of counts: how often each cluster of examples was drawn. Most scores are functions
of sums over examples (right answers, counts by label, products of values), so that the scores of all
resamples are one product (draws, clusters) x (clusters, columns). All predictors are scored on the same
resamples, so that differences between them are paired.
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
    """A predictor's score that can be computed on resamples of its examples."""

    def of(self, counts: Floats, members: ClusterIds) -> Floats:
        """Scores (draws,) of resamples that contain each cluster ``counts`` (draws, clusters) times."""

    def sums(self) -> SumScore:
        """The same score as a function of sums, for swapping examples between two predictors."""


@dataclass(frozen=True)
class SumScore:
    """A score ``finish(sums)``, where ``sums`` are sums of ``columns`` over examples."""

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
    """Clusters as ids 0, 1, ... in order of first appearance (examples,)."""
    if clusters is None:
        return np.arange(examples)
    if len(clusters) != examples:
        raise BadInput(f"clusters: got {len(clusters)} for {examples} examples, expected one per example")
    ids: dict[Hashable, int] = {}
    return np.array([ids.setdefault(name, len(ids)) for name in clusters])


def cluster_sums(members: ClusterIds, values: Floats) -> Floats:
    """Sum of the values of each cluster (clusters,)."""
    return np.bincount(members, weights=values).astype(np.float64)


def draw_clusters(units: int, draws: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Chunks (draws, units) of cluster ids drawn with replacement."""
    random = np.random.default_rng(seed)
    for count in draw_chunks(draws, units):
        yield random.integers(0, units, size=(count, units), dtype=np.int32)


def draw_chunks(draws: int, units: int) -> Iterator[int]:
    """Sizes of chunks that add up to ``draws`` and whose random numbers fit into memory."""
    if draws < 1:
        raise BadInput(f"draws: got {draws}, expected at least 1")
    step = max(1, NUMBERS_AT_ONCE // max(1, units))
    return (min(step, draws - done) for done in range(0, draws, step))


def draw_clustered_rows(members: ClusterIds, draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Row indices of each draw: the rows of every cluster, as often as it is drawn."""
    order = np.argsort(members, kind="stable")  # rows, cluster by cluster
    rows = np.split(order, np.cumsum(np.bincount(members))[:-1])
    for chunk in draw_clusters(len(rows), draws, seed):
        for drawn in chunk:
            yield order[drawn] if len(rows) == len(order) else np.concatenate([rows[i] for i in drawn])


def resample_scores(
    scores: Sequence[Score], clusters: Clusters, examples: int, draws: int = DRAWS, seed: int = 0
) -> Floats:
    """All scores on the same resamples (scores, draws)."""
    members = cluster_ids_of(clusters, examples)
    units = int(members.max()) + 1
    chunks = []
    for drawn in draw_clusters(units, draws, seed):  # (draws, clusters)
        flat = drawn + units * np.arange(len(drawn))[:, None]
        counts = np.bincount(flat.ravel(), minlength=flat.size).reshape(flat.shape).astype(np.float64)
        chunks.append(np.stack([score.of(counts, members) for score in scores]))  # (scores, draws)
    return np.concatenate(chunks, axis=1)


def percentile_interval(drawn: Floats, units: int, level: float = 0.95) -> tuple[float, float] | None:
    """Quantiles Φ(±sqrt(k / (k - 1)) · t) of resampled scores, with t Student's quantile for k - 1 degrees.

    ``units`` is k, the number of clusters; None for a single cluster, which has no variance.
    """
    from scipy import special

    if not 0 < level < 1:
        raise BadInput(f"level: got {level}, expected a number between 0 and 1 such as 0.95")
    if units < 2:
        return None
    reach = math.sqrt(units / (units - 1)) * special.stdtrit(units - 1, (1 + level) / 2)
    low, high = np.quantile(drawn, special.ndtr([-reach, reach]))
    return float(low), float(high)


def clopper_pearson_lower(units: int, level: float = 0.95) -> float:
    """Clopper-Pearson lower bound of a proportion of which ``units`` of ``units`` were observed.

    The p with p^k = (1 - level) / 2, for scores without variance, of which a bootstrap interval is a point.
    """
    return float(((1 - level) / 2) ** (1 / units))


def sign_flip_p(sums: Floats, draws: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of the sign-flip test, from each cluster's sum of differences (clusters,).

    If both predictors are equally good, both signs of a sum are equally likely, so p is the fraction of sign
    patterns whose total is at least as far from 0: of all 2^k patterns if these are few, else of random ones
    with the observed pattern included, so that p is never 0. Clusters without a difference are ignored.
    """
    nonzero = sums[sums != 0]
    observed = abs(nonzero.sum()) - ROUNDING * np.abs(nonzero).sum()
    patterns = 2 ** len(nonzero) if len(nonzero) < 62 else math.inf
    if patterns <= draws:
        bits = np.arange(int(patterns))[:, None] >> np.arange(len(nonzero)) & 1  # (patterns, clusters)
        return float(np.mean(np.abs((2 * bits - 1) @ nonzero) >= observed))
    random = np.random.default_rng(seed)
    extreme = 1
    for count in draw_chunks(draws, len(nonzero)):
        signs = random.integers(0, 2, size=(count, len(nonzero)), dtype=np.int8) * 2 - 1  # (draws, clusters)
        extreme += int(np.sum(np.abs(signs @ nonzero) >= observed))
    return extreme / (draws + 1)


def swap_p(a: Score, b: Score, clusters: Clusters, draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided p-value of a permutation test that swaps clusters of predictions, for scores that are not means.

    With s in {0, 1} for every cluster, the sums of a become Σ a + s · (b - a) and those of b Σ b - s · (b - a).
    """
    first, second = a.sums(), b.sums()
    members = cluster_ids_of(clusters, len(first.columns))
    gaps = second.by_cluster(members) - first.by_cluster(members)  # (clusters, columns)
    first_sums, second_sums = first.columns.sum(0), second.columns.sum(0)  # (columns,)
    observed = abs(float(first.finish(first_sums[None])[0] - second.finish(second_sums[None])[0]))
    random = np.random.default_rng(seed)
    extreme = 1
    for count in draw_chunks(draws, len(gaps)):
        swapped = (random.random((count, len(gaps))) < 0.5).astype(np.float64) @ gaps  # (draws, columns)
        differences = first.finish(first_sums + swapped) - second.finish(second_sums - swapped)
        extreme += int(np.sum(np.abs(differences) >= observed - ROUNDING))
    return extreme / (draws + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (1979), in the order given: the i-th smallest becomes max_{j <= i} (m - j + 1) · p_j.

    Rejecting below 0.05 limits the probability of any false rejection to 5 %, even for dependent tests.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(order)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
