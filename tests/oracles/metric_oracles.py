"""Reference implementations of metrics, confidence intervals and paired tests, written for clarity, not for speed."""

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
from bertvision.evaluation.metrics.bootstrap import percentile_interval as interval_bounds

Metric = Callable[..., float]
LabelMatrix = NDArray[np.bool_]


def accuracy(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Share of rows whose predicted label is correct."""
    return float(np.mean(np.equal(gold, predicted)))


def f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """2·TP / (2·TP + FP + FN) of label 1; 0 if label 1 does not occur."""
    true, predicted_positive = np.equal(gold, 1), np.equal(predicted, 1)
    occurs = true.sum() + predicted_positive.sum()
    return float(2 * (true & predicted_positive).sum() / occurs) if occurs else 0.0


def macro_f1(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean F1 over the labels that occur in gold or predictions."""
    table = _confusion_matrix(gold, predicted)
    return float(np.mean(2 * table.diagonal() / (table.sum(0) + table.sum(1))))


def matthews_correlation(gold: Sequence[int], predicted: Sequence[int]) -> float:
    """Correlation of the two labellings in -1..1 (Gorodkin's, for more than two labels); 0 if one is constant.

    With n rows, c of them correct, and g and p the number of rows per label in gold and predictions:
    (c·n - g·p) / sqrt((n² - g·g)(n² - p·p)).
    """
    table = _confusion_matrix(gold, predicted)
    n, right, g, p = int(table.sum()), int(table.trace()), table.sum(1), table.sum(0)
    spread = float(n * n - g @ g) * float(n * n - p @ p)
    return float(right * n - g @ p) / math.sqrt(spread) if spread else 0.0


def _confusion_matrix(gold: Sequence[int], predicted: Sequence[int]) -> NDArray[np.int64]:
    """Number of rows by gold and predicted label, for the labels that occur.

    Without scikit-learn, because an interval needs thousands of these and its input checks cost a
    hundred times as much as the counting.
    """
    labels, codes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    gold_codes, predicted_codes = np.split(codes, 2)
    return np.bincount(gold_codes * len(labels) + predicted_codes, minlength=len(labels) ** 2).reshape(len(labels), -1)


def f1_micro(gold: LabelMatrix, predicted: LabelMatrix) -> float:
    """2·TP / (2·TP + FP + FN) over all rows and labels together; 0 if there are no labels at all."""
    marked = int(gold.sum() + predicted.sum())
    return 2 * int((gold & predicted).sum()) / marked if marked else 0.0


def f1_macro(gold: LabelMatrix, predicted: LabelMatrix) -> float:
    """Mean of the F1 scores of all labels; a label that does not occur counts as 0."""
    both, marked = (gold & predicted).sum(0), gold.sum(0) + predicted.sum(0)
    return float(np.mean(2 * both / np.maximum(marked, 1)))


def exact(gold: LabelMatrix, predicted: LabelMatrix) -> float:
    """Share of rows whose set of predicted labels equals the gold set."""
    return float(np.mean((gold == predicted).all(1)))


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; ``units`` is the number of clusters that were resampled."""

    estimate: float
    low: float
    high: float
    level: float
    units: int


@dataclass(frozen=True)
class Comparison:
    """First minus second: the difference, its interval (None for a single cluster) and its two-sided p-value."""

    difference: float
    interval: Interval | None
    p: float


def percentile_interval(estimate: float, resampled: Floats, units: int, level: float = 0.95) -> Interval | None:
    bounds = interval_bounds(resampled, units, level)
    return None if bounds is None else Interval(estimate, *bounds, level, units)


def as_columns(arrays: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    columns = [np.asarray(array) for array in arrays]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(
            f"got columns of {', '.join(str(len(c)) for c in columns)} rows; expected equally many, at least one"
        )
    return columns


def as_vector(what: str, values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise BadInput(f"{what}: got {numbers.shape} numbers, expected a non-empty list of finite numbers")
    return numbers


def bootstrap_interval(
    values: ArrayLike, clusters: Clusters = None, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval | None:
    """Interval of the mean of per-example values: Σ sums / Σ sizes over k clusters drawn with replacement.

    None for a single cluster, whose spread cannot be estimated.
    """
    scores = as_vector("values", values)
    members = cluster_ids_of(clusters, len(scores))
    sums, sizes = cluster_sums(members, scores), np.bincount(members)
    even = sizes.min() == sizes.max()
    resampled = [
        sums[chosen].sum(1) / (sizes[0] * len(sizes) if even else sizes[chosen].sum(1))
        for chosen in draw_clusters(len(sizes), draws, seed)
    ]
    return percentile_interval(float(scores.mean()), np.concatenate(resampled), len(sizes), level)


def bootstrap_metric(
    function: Metric,
    *arrays: ArrayLike,
    clusters: Clusters = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Interval of a score that is not a mean (Matthews, F1, correlation), by resampling rows.

    ``function(*arrays)`` is called once per resample and must be defined for each of them, even if a
    label is missing or all predictions are equal.
    """
    columns = as_columns(arrays)
    members = cluster_ids_of(clusters, len(columns[0]))
    samples = draw_clustered_rows(members, draws, seed)
    resampled = np.array([function(*(column[rows] for column in columns)) for rows in samples])
    return percentile_interval(float(function(*columns)), resampled, int(members.max()) + 1, level)


def paired_test(
    a: ArrayLike, b: ArrayLike, clusters: Clusters = None, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> Comparison:
    """Sign-flip test of the hypothesis that the mean of ``a - b`` is zero.

    If both are equally good, either sign of a cluster's sum of differences is equally likely. So p is
    the share of sign patterns whose mean is at least as far from 0: of all 2^k patterns if these are
    few, otherwise of random ones plus the observed one, so p is never 0. Clusters without a difference
    do not matter.
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
    """As :func:`paired_test` for ``function(gold, a) - function(gold, b)``, by swapping clusters of predictions."""
    truth, first, second = as_columns((gold, a, b))

    def difference(truth: NDArray[Any], first: NDArray[Any], second: NDArray[Any]) -> float:
        return function(truth, first) - function(truth, second)

    observed = difference(truth, first, second)
    members = cluster_ids_of(clusters, len(truth))
    random = np.random.default_rng(seed)
    reached = 1
    for _ in range(draws):
        swap = (random.random(int(members.max()) + 1) < 0.5)[members]
        swapped = difference(truth, np.where(swap, second, first), np.where(swap, first, second))
        reached += abs(swapped) >= abs(observed) - ROUNDING
    interval = bootstrap_metric(
        difference, truth, first, second, clusters=clusters, level=level, draws=draws, seed=seed
    )
    return Comparison(float(observed), interval, reached / (draws + 1))
