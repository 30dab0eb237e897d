"""Scores of thousands of resamples at once.

A resample is a row of counts: how often each cluster of examples was drawn. Most scores are functions
of sums over examples (right answers, labels by name, products of values), so that the scores of all
resamples are one product (draws, clusters) x (clusters, columns). What
:func:`bertvision.evaluation.metrics.bootstrap.bootstrap_metric` does draw by draw takes a hundredth of the time
here, on the same draws and with the same result. Every predictor of a board meets the same
resamples, so that differences can be taken between their scores, resample by resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput

Floats = NDArray[np.float64]

Clusters = Sequence[Hashable] | None

AT_ONCE = 1 << 21  # random numbers held in memory at a time

Metric = Callable[..., float]

ROUNDING = 1e-9  # differences this close, relative to the largest possible, are ties

Members = NDArray[np.int64]  # (examples,) the number of each example's cluster

DRAWS = 2000

FLAT = 1e-9  # a sum of squares of values of spread 1 below this is rounding


def draw_units(units: int, draws: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Portions (draws, units) of units drawn with replacement."""
    random = np.random.default_rng(seed)
    for count in portions(draws, units):
        yield random.integers(0, units, size=(count, units), dtype=np.int32)


def portions(draws: int, units: int) -> Iterator[int]:
    """Numbers of draws that add up to all and fit into memory together with their units."""
    if draws < 1:
        raise BadInput(f"draws: got {draws}, expected at least 1")
    step = max(1, AT_ONCE // max(1, units))
    return (min(step, draws - done) for done in range(0, draws, step))


def draw_rows(members: NDArray[np.int64], draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each draw: those of every cluster drawn, as often as it is drawn."""
    order = np.argsort(members, kind="stable")  # rows, cluster by cluster
    rows = np.split(order, np.cumsum(np.bincount(members))[:-1])
    for portion in draw_units(len(rows), draws, seed):
        for chosen in portion:
            yield order[chosen] if len(rows) == len(order) else np.concatenate([rows[i] for i in chosen])


def number_clusters(clusters: Clusters, examples: int) -> NDArray[np.int64]:
    """Clusters as 0, 1, ... by first appearance (examples,)."""
    if clusters is None:
        return np.arange(examples)
    if len(clusters) != examples:
        raise BadInput(f"got {len(clusters)} clusters for {examples} examples; expected one each")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in clusters])


def cluster_sums(members: NDArray[np.int64], numbers: Floats) -> Floats:
    """Sum over each cluster (clusters,)."""
    return np.bincount(members, weights=numbers).astype(np.float64)


def as_columns(arrays: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    columns = [np.asarray(array) for array in arrays]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(
            f"got columns of {', '.join(str(len(c)) for c in columns)} rows; expected as many of each, and some"
        )
    return columns


def as_vector(what: str, values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise BadInput(f"{what}: got {numbers.shape} numbers, expected a list of finite ones, at least one")
    return numbers


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
class SeedStats:
    """The scores of one predictor over its seeds; ``std`` (n - 1 in the denominator) is None for one seed."""

    mean: float
    std: float | None
    min: float
    max: float
    n: int


def seed_summary(values: Sequence[float]) -> SeedStats:
    """Mean and spread over seeds."""
    numbers = as_vector("values", values)
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return SeedStats(float(numbers.mean()), std, float(numbers.min()), float(numbers.max()), len(numbers))


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


class Score(Protocol):
    """One predictor's score, ready to be asked for any sample of its examples."""

    def of(self, counts: Floats, members: Members) -> Floats:
        """Scores (draws,) of samples with every cluster so many times (draws, clusters)."""

    def sums(self) -> Summed:
        """The same score as a function of sums, for swapping examples between two predictors."""


@dataclass(frozen=True)
class Summed:
    """``finish`` of the sums over examples of ``columns``."""

    columns: Floats  # (examples, columns)
    finish: Callable[[Floats], Floats]  # (draws, columns) -> (draws,)

    def of(self, counts: Floats, members: Members) -> Floats:
        return self.finish(counts @ self.by_cluster(members))

    def by_cluster(self, members: Members) -> Floats:
        """Sums (clusters, columns)."""
        return np.stack([cluster_sums(members, column) for column in self.columns.T], 1)

    def sums(self) -> Summed:
        return self


@dataclass(frozen=True)
class Ranked:
    """Spearman's correlation: every resample is ranked anew.

    Sorted once, an example's rank in a resample is what was drawn before it and half of its equals.
    """

    gold: Floats  # (examples,)
    said: Floats  # (examples,)

    def of(self, counts: Floats, members: Members) -> Floats:
        weights = counts[:, members]  # (draws, examples)
        x, y = (_weighted_ranks(values, weights) for values in (self.gold, self.said))  # (draws, examples)
        total = weights.sum(1, keepdims=True)
        x, y = (ranks - (weights * ranks).sum(1, keepdims=True) / total for ranks in (x, y))
        return _cosine((weights * x * y).sum(1), (weights * x * x).sum(1), (weights * y * y).sum(1))

    def sums(self) -> Summed:
        """Pearson's of the ranks in the whole, which a swap leaves as they are."""
        once = np.ones((1, len(self.gold)))
        return pearson_score(*(_weighted_ranks(values, once)[0] for values in (self.gold, self.said)))


def mean_score(values: NDArray[Any]) -> Summed:
    """The mean of per-example values."""
    numbers = np.asarray(values, np.float64)
    return Summed(np.stack([numbers, np.ones(len(numbers))], 1), lambda sums: sums[:, 0] / sums[:, 1])


def label_score(metric: str, gold: NDArray[Any], said: NDArray[Any], labels: int) -> Summed:
    """A score of labels by its name, out of rows per label: in both, in gold, in what was said."""
    true, told = _marks(gold, labels), _marks(said, labels)  # (examples, labels)
    columns = np.concatenate([true & told, true, told], axis=1).astype(np.float64)  # (examples, 3 labels)
    finish = LABEL_SCORES[metric]
    return Summed(columns, lambda sums: finish(*np.split(sums, 3, axis=1)))


def _marks(values: NDArray[Any], labels: int) -> NDArray[np.bool_]:
    """One label a row, or any number of them as marks already."""
    return values if values.ndim == 2 else values[:, None] == np.arange(labels)


def pearson_score(gold: NDArray[Any], said: NDArray[Any]) -> Summed:
    """Out of the sums of both, their squares and their product.

    Both at mean 0 and spread 1: no square is lost, and predictors of another scale swap like with like.
    """
    x, y = _scaled(gold), _scaled(said)
    return Summed(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], 1), _pearson)


def _pearson(sums: Floats) -> Floats:
    total, x, y, xx, yy, xy = sums.T
    return _cosine(xy - x * y / total, xx - x * x / total, yy - y * y / total)


def _scaled(values: NDArray[Any]) -> Floats:
    numbers = np.asarray(values, np.float64)
    spread = float(numbers.std())
    return np.asarray((numbers - numbers.mean()) / spread) if spread > 0 else np.zeros(len(numbers))


def _cosine(both: Floats, one: Floats, other: Floats) -> Floats:
    """both / sqrt(one · other), 0 where a side does not vary."""
    flat = (one <= FLAT) | (other <= FLAT)
    lengths = np.sqrt(np.where(flat, 1.0, one * other))
    return np.where(flat, 0.0, np.clip(both / lengths, -1, 1))


def _accuracy(both: Floats, gold: Floats, said: Floats) -> Floats:
    return _share(both.sum(1), gold.sum(1))


def _f1(both: Floats, gold: Floats, said: Floats) -> Floats:
    """Of label 1."""
    return _share(2 * both[:, 1], gold[:, 1] + said[:, 1])


def _macro_f1(both: Floats, gold: Floats, said: Floats) -> Floats:
    """Over the labels that occur."""
    return _share(_share(2 * both, gold + said).sum(1), (gold + said > 0).sum(1))


def _micro_f1(both: Floats, gold: Floats, said: Floats) -> Floats:
    return _share(2 * both.sum(1), (gold + said).sum(1))


def _mean_f1(both: Floats, gold: Floats, said: Floats) -> Floats:
    """Over all labels."""
    return np.asarray(_share(2 * both, gold + said).mean(1))


def _matthews(both: Floats, gold: Floats, said: Floats) -> Floats:
    total, right = gold.sum(1), both.sum(1)
    shared = (gold * said).sum(1)
    spread = (total**2 - (gold**2).sum(1)) * (total**2 - (said**2).sum(1))
    return _share(right * total - shared, np.sqrt(spread))


def _share(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, 0 where there is no whole."""
    return np.asarray(part / np.where(whole == 0, 1, whole) * (whole != 0), np.float64)


LABEL_SCORES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "matthews_correlation": _matthews,
    "f1_micro": _micro_f1,
    "f1_macro": _mean_f1,
}


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Ranks (draws, examples) from 1 of values that occur ``weights`` times; equal values share their mean rank."""
    levels, places = np.unique(values, return_inverse=True)
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(levels)))
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, levels)
    ranks = np.cumsum(drawn, axis=1) - (drawn - 1) / 2
    return np.asarray(ranks[:, places])


def resampled(scores: Sequence[Score], clusters: Clusters, examples: int, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Every score on the same resamples (scores, draws)."""
    members = number_clusters(clusters, examples)
    drawn = _drawn_counts(int(members.max()) + 1, draws, seed)
    return np.concatenate([np.stack([score.of(counts, members) for score in scores]) for counts in drawn], axis=1)


def _drawn_counts(units: int, draws: int, seed: int) -> Iterator[Floats]:
    """How often each cluster comes in the draws of the bootstrap in ``intervals``: portions (draws, clusters)."""
    for chosen in draw_units(units, draws, seed):
        flat = chosen + units * np.arange(len(chosen))[:, None]
        counts = np.bincount(flat.ravel(), minlength=units * len(chosen)).reshape(len(chosen), units)
        yield counts.astype(np.float64)


def swap_p(a: Score, b: Score, clusters: Clusters, draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided p of a difference of scores: clusters of predictions swap sides, as in ``paired_metric_test``.

    With s in {0, 1} for every cluster, the sums of a become Σ a + s · (b - a) and those of b the rest.
    """
    one, other = a.sums(), b.sums()
    members = number_clusters(clusters, len(one.columns))
    gaps = other.by_cluster(members) - one.by_cluster(members)  # (clusters, columns)
    first, second = one.columns.sum(0), other.columns.sum(0)
    found = abs(float(one.finish(first[None])[0] - other.finish(second[None])[0]))
    random = np.random.default_rng(seed)
    reached = 1
    for count in portions(draws, len(gaps)):
        moved = (random.random((count, len(gaps))) < 0.5).astype(np.float64) @ gaps  # (draws, columns)
        differences = one.finish(first + moved) - other.finish(second - moved)
        reached += int(np.sum(np.abs(differences) >= found - ROUNDING))
    return reached / (draws + 1)
