"""Scores of thousands of resamples at once.

A resample is a row of counts: how often each cluster of examples was drawn. Most scores are functions
of sums over examples (right answers, labels by name, products of values), so that the scores of all
resamples are one product (draws, clusters) x (clusters, columns). What
:func:`bertvision.evaluation.metrics.intervals.bootstrap_metric` does draw by draw takes a hundredth of the time
here, on the same draws and with the same result. Every predictor of a board meets the same
resamples, so that differences can be taken between their scores, resample by resample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.metrics.intervals import ROUNDING
from bertvision.evaluation.metrics.resample import Clusters, Floats, cluster_sums, draw_units, number_clusters, portions

Members = NDArray[np.int64]  # (examples,) the number of each example's cluster

DRAWS = 2000
FLAT = 1e-9  # a sum of squares of values of spread 1 below this is rounding


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
