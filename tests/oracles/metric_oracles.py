"""Slow, independent definitions of scores, intervals and tests: one example, one draw, one swap at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.bootstrap import (
    ROUNDING,
    Clusters,
    Floats,
    cluster_ids_of,
    cluster_sums,
    draw_clustered_rows,
    draw_clusters,
    sign_flip_p,
)
from bertvision.evaluation.metrics.bootstrap import percentile_interval as ends_of

Metric = Callable[..., float]
Marks = NDArray[np.bool_]


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows that are right."""
    return float(np.mean(np.equal(gold, predicted)))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """2·TP / (2·TP + FP + FN) of label 1; 0 where label 1 occurs nowhere."""
    true, said = np.equal(gold, 1), np.equal(predicted, 1)
    occurs = true.sum() + said.sum()
    return float(2 * (true & said).sum() / occurs) if occurs else 0.0


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the labels that occur, in gold or predicted: one that never occurs has no F1 to average."""
    table = _confusion(gold, predicted)
    return float(np.mean(2 * table.diagonal() / (table.sum(0) + table.sum(1))))


def matthews_correlation(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Correlation of the two labellings in -1..1 (Gorodkin's, for more than two labels); 0 if one is constant.

    With g and p the rows per label in gold and predicted, n rows, c of them right:
    (c·n - g·p) / sqrt((n² - g·g)(n² - p·p)).
    """
    table = _confusion(gold, predicted)
    n, right, g, p = int(table.sum()), int(table.trace()), table.sum(1), table.sum(0)
    spread = float(n * n - g @ g) * float(n * n - p @ p)
    return float(right * n - g @ p) / math.sqrt(spread) if spread else 0.0


def _confusion(gold: Sequence[int], predicted: Sequence[int]) -> NDArray[np.int64]:
    """Rows by gold and predicted label, for the labels that occur.

    Counted here and not by scikit-learn: intervals ask for thousands of these scores, and its checks
    of the input cost a hundred times the counting.
    """
    labels, numbers = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    one, other = np.split(numbers, 2)
    return np.bincount(one * len(labels) + other, minlength=len(labels) ** 2).reshape(len(labels), -1)


def f1_micro(gold: Marks, predicted: Marks) -> float:
    """2·TP / (2·TP + FP + FN) over all rows and labels together; 0 where nothing is labelled anywhere."""
    marked = int(gold.sum() + predicted.sum())
    return 2 * int((gold & predicted).sum()) / marked if marked else 0.0


def f1_macro(gold: Marks, predicted: Marks) -> float:
    """Mean over all labels of each one's F1; a label that occurs nowhere has 0."""
    both, marked = (gold & predicted).sum(0), gold.sum(0) + predicted.sum(0)
    return float(np.mean(2 * both / np.maximum(marked, 1)))


def exact(gold: Marks, predicted: Marks) -> float:
    """Share of rows whose labels are all right, and none too many."""
    return float(np.mean((gold == predicted).all(1)))


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


def percentile_interval(estimate: float, drawn: Floats, units: int, level: float = 0.95) -> Interval | None:
    ends = ends_of(drawn, units, level)
    return None if ends is None else Interval(estimate, *ends, level, units)


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


def bootstrap_interval(
    values: ArrayLike, clusters: Clusters = None, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval | None:
    """Interval of the mean of per-example values: Σ sums / Σ sizes over k clusters drawn with replacement.

    None for a single cluster, which shows no spread.
    """
    numbers = as_vector("values", values)
    members = cluster_ids_of(clusters, len(numbers))
    sums, sizes = cluster_sums(members, numbers), np.bincount(members)
    even = sizes.min() == sizes.max()
    drawn = [
        sums[chosen].sum(1) / (sizes[0] * len(sizes) if even else sizes[chosen].sum(1))
        for chosen in draw_clusters(len(sizes), draws, seed)
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
    members = cluster_ids_of(clusters, len(columns[0]))
    samples = draw_clustered_rows(members, draws, seed)
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
    sums = cluster_sums(cluster_ids_of(clusters, len(differences)), differences)
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
    members = cluster_ids_of(clusters, len(truth))
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
