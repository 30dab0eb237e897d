"""Vectorised resampling matches a naive implementation that draws one sample after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_oracles import (
    accuracy,
    bootstrap_interval,
    bootstrap_metric,
    f1,
    f1_macro,
    f1_micro,
    macro_f1,
    matthews_correlation,
    paired_metric_test,
)

from bertvision.evaluation.metrics.bootstrap import Score, mean_score, percentile_interval, resample_scores, swap_p
from bertvision.evaluation.metrics.labels import label_score
from bertvision.evaluation.metrics.values import SpearmanScore, pearson, pearson_score, spearmanr

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 3, 60)
A = np.where(RANDOM.random(60) < 0.8, GOLD, RANDOM.integers(0, 3, 60))
B = np.where(RANDOM.random(60) < 0.5, GOLD, RANDOM.integers(0, 3, 60))
CONTEXTS = [row // 4 for row in range(60)]
CODES = [RANDOM.integers(0, 16, 60) for _ in range(3)]
"""Sets of four labels, each as the bits of one number, so that rows can be swapped like any other."""


def sets(codes: Any) -> Any:
    return codes[:, None] >> np.arange(4) & 1 == 1  # (rows, labels)


FUNCTIONS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews_correlation,
    "f1_micro": lambda gold, predicted: f1_micro(sets(gold), sets(predicted)),
    "f1_macro": lambda gold, predicted: f1_macro(sets(gold), sets(predicted)),
    "pearson": pearson,
    "spearmanr": spearmanr,
}


def score(name: str, gold: Any, predicted: Any) -> Score:
    if name == "pearson":
        return pearson_score(gold, predicted)
    if name == "spearmanr":
        return SpearmanScore(gold.astype(float), predicted.astype(float))
    return (
        label_score(name, sets(gold), sets(predicted), 4)
        if name in ("f1_micro", "f1_macro")
        else label_score(name, gold, predicted, 4)
    )


def columns(name: str) -> tuple[Any, Any, Any]:
    return (CODES[0], CODES[1], CODES[2]) if name in ("f1_micro", "f1_macro") else (GOLD, A, B)


@pytest.mark.parametrize("clusters", [None, CONTEXTS])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_intervals_match_the_naive_bootstrap(name: str, clusters: list[int] | None) -> None:
    gold, predicted, _ = columns(name)
    wanted = bootstrap_metric(FUNCTIONS[name], gold, predicted, clusters=clusters, draws=200)
    drawn = resample_scores([score(name, gold, predicted)], clusters, 60, draws=200)[0]
    assert wanted is not None
    assert percentile_interval(drawn, wanted.units) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize("clusters", [None, CONTEXTS])
def test_interval_of_a_mean_matches_the_naive_bootstrap(clusters: list[int] | None) -> None:
    values = RANDOM.random(60)
    wanted = bootstrap_interval(values, clusters)
    drawn = resample_scores([mean_score(values)], clusters, 60)[0]
    assert wanted is not None
    assert percentile_interval(drawn, wanted.units) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize("clusters", [None, CONTEXTS])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("pearson", "spearmanr")])
def test_swap_p_matches_the_naive_paired_test(name: str, clusters: list[int] | None) -> None:
    gold, a, b = columns(name)
    wanted = paired_metric_test(FUNCTIONS[name], gold, a, b, clusters=clusters, draws=300)
    assert swap_p(score(name, gold, a), score(name, gold, b), clusters, draws=300) == wanted.p


@pytest.mark.parametrize("make", [pearson_score, SpearmanScore])
def test_swap_p_of_correlations_ignores_the_scale_of_predictions(make: Any) -> None:
    gold = RANDOM.normal(size=200)
    good, bad = gold + 0.3 * RANDOM.normal(size=200), 1000 * RANDOM.normal(size=200)
    assert swap_p(make(gold, good), make(gold, bad), None) < 0.01
    assert swap_p(make(gold, good), make(gold, 50 * good), None) == 1.0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)), min_size=2, max_size=12))
def test_weight_of_a_row_equals_repeating_the_row(rows: list[tuple[int, int, int]]) -> None:
    gold, predicted, times = (np.array(column) for column in zip(*rows, strict=True))
    repeated = np.repeat(np.arange(len(rows)), times)
    members = np.arange(len(rows))
    for name, function in FUNCTIONS.items():
        weighted = score(name, gold, predicted).of(times[None].astype(float), members)[0]
        assert weighted == pytest.approx(function(gold[repeated], predicted[repeated]), abs=1e-9), name
