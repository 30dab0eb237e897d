"""Ensembles: the three formulas on small numbers, and weights fitted on inner alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Predictions, WindowTable
from bertvision.evaluation.ensemble import (
    TEMPER,
    combine_rows,
    combine_validated,
    ensemble,
    softmax_rows,
    weighted_ensemble,
)

Rows = Sequence[Any]


def table(targets: Rows) -> WindowTable:
    gold = np.array(targets, np.float64)
    return WindowTable(
        np.arange(len(gold)), np.zeros(len(gold), np.int64), [np.zeros((1, 2), np.int32)] * len(gold), gold
    )


def member(name: str, rows: Rows, targets: Rows, inner: Predictions | None = None, **facts: Any) -> Predictions:
    logits = [np.array(row, np.float32) for row in rows]
    return Predictions(
        name, name, "head", "inner" if inner is None else "dev", logits, table(targets), inner=inner, **facts
    )


def label_member(name: str, inner: Rows, gold: Rows, dev: Rows, dev_gold: Rows, **facts: Any) -> Predictions:
    """Rows are probabilities."""
    on_inner = member(name, np.log(inner), [[g] for g in gold], **facts)
    return member(name, np.log(dev), [[g] for g in dev_gold], on_inner, **facts)


A = label_member("a", [[0.7, 0.2, 0.1]], [0], [[0.7, 0.2, 0.1]], [0], seed=3, parameters=10, seconds=1.5)
B = label_member("b", [[0.1, 0.6, 0.3]], [0], [[0.1, 0.6, 0.3]], [0], parameters=5, seconds=0.5)


def probabilities(predictions: Predictions, window: int = 0) -> list[Any]:
    return np.exp(np.asarray(predictions.logits[window], np.float64)).tolist()  # type: ignore[no-any-return]


def test_max_takes_the_largest_probability_and_renormalises() -> None:
    expected = [0.7 / 1.6, 0.6 / 1.6, 0.3 / 1.6]
    assert probabilities(ensemble([A, B], "max")) == pytest.approx(expected)
    assert ensemble([A, B]).spec == "max"


def test_mean_is_the_mean_probability() -> None:
    assert probabilities(ensemble([A, B], "mean")) == pytest.approx([0.4, 0.4, 0.2])


def test_inner_predictions_are_combined_in_the_same_way() -> None:
    combined = ensemble([A, B], "max")
    assert combined.inner is not None
    assert (combined.split, combined.inner.split) == ("dev", "inner")
    assert probabilities(combined.inner) == pytest.approx([0.7 / 1.6, 0.6 / 1.6, 0.3 / 1.6])


def test_ensemble_records_its_members_weights_and_cost() -> None:
    combined = ensemble([A, B], "mean")
    assert combined.name == "mean(a@3 + b)"
    assert combined.members == ("a@3", "b")
    assert combined.weights == (0.5, 0.5)
    assert (combined.kind, combined.spec, combined.seed) == ("ensemble", "mean", None)
    assert (combined.parameters, combined.seconds) == (15, 2.0)
    assert ensemble([A, B], "mean", name="both").name == "both"


def span_rows(start: Sequence[float], end: Sequence[float]) -> Any:
    return np.stack([np.log(start), np.log(end)], axis=1)


def test_span_start_and_end_are_combined_separately_over_tokens() -> None:
    a = member("a", [span_rows([0.8, 0.1, 0.1], [0.2, 0.2, 0.6])], [[0, 2]])
    b = member("b", [span_rows([0.2, 0.5, 0.3], [0.1, 0.1, 0.8])], [[0, 2]])
    start, end = np.transpose(probabilities(ensemble([a, b], "max")))
    assert start == pytest.approx(np.array([0.8, 0.5, 0.3]) / 1.6)
    assert end == pytest.approx(np.array([0.2, 0.2, 0.8]) / 1.2)
    start, end = np.transpose(probabilities(ensemble([a, b], "mean")))
    assert start == pytest.approx([0.5, 0.3, 0.2])
    assert end == pytest.approx([0.15, 0.15, 0.7])


def test_windows_of_different_lengths_are_combined_separately() -> None:
    rows = [span_rows([0.5, 0.5], [0.9, 0.1]), span_rows([0.2, 0.2, 0.6], [0.1, 0.8, 0.1])]
    single = member("a", rows, [[0, 0], [2, 1]])
    combined = ensemble([single, single], "mean")
    assert [row.shape for row in combined.logits] == [(2, 2), (3, 2)]
    for window, row in enumerate(rows):
        np.testing.assert_allclose(combined.logits[window], row, atol=1e-6)


def test_extreme_logits_stay_finite() -> None:
    first, second = member("a", [[1e4, -1e4]], [[0]]), member("b", [[3e4, -3e4]], [[0]])
    for how in ("max", "mean"):
        row = ensemble([first, second], how).logits[0]  # type: ignore[arg-type]
        assert np.isfinite(row).all()
        assert row.dtype == np.float32
        assert row[0] > row[1]


GOOD = [[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.2, 0.8]]
POOR = [[0.5, 0.5], [0.6, 0.4], [0.5, 0.5], [0.5, 0.5]]
GOLD = [0, 1, 0, 1]


def test_fitted_weights_go_to_the_member_that_is_better_on_inner() -> None:
    # On dev the other member is better, which must not matter.
    good = label_member("good", GOOD, GOLD, POOR, GOLD)
    poor = label_member("poor", POOR, GOLD, GOOD, GOLD)
    for members, best in (([good, poor], 0), ([poor, good], 1)):
        combined = ensemble(members, "fitted")
        assert combined.weights[best] > 0.999
        assert sum(combined.weights) == pytest.approx(1.0)
        np.testing.assert_allclose(np.exp(np.stack(combined.logits)), POOR, atol=1e-3)


def test_fitted_weights_do_not_depend_on_dev() -> None:
    weights = [
        ensemble(
            [label_member("g", GOOD, GOLD, dev, gold), label_member("p", POOR, GOLD, other, gold)], "fitted"
        ).weights
        for dev, other, gold in ((GOOD, POOR, GOLD), (POOR, GOOD, GOLD), (GOOD, GOOD, [1, 0, 1, 0]))
    ]
    assert weights[0] == weights[1] == weights[2]


def test_complementary_members_get_equal_weights() -> None:
    first, second = [[0.9, 0.1], [0.9, 0.1]], [[0.1, 0.9], [0.1, 0.9]]
    gold = [0, 1]
    combined = ensemble(
        [label_member("a", first, gold, first, gold), label_member("b", second, gold, first, gold)], "fitted"
    )
    assert combined.weights == pytest.approx((0.5, 0.5))


def test_fitted_spans_weigh_start_and_end_tokens_by_their_probability() -> None:
    right, wrong = span_rows([0.8, 0.1, 0.1], [0.1, 0.1, 0.8]), span_rows([0.1, 0.1, 0.8], [0.8, 0.1, 0.1])
    members = [
        member(name, [row], [[0, 2]], member(name, [row], [[0, 2]])) for name, row in (("r", right), ("w", wrong))
    ]
    assert ensemble(members, "fitted").weights[0] > 0.999
    # Start right and end wrong against the reverse: neither is better.
    half = span_rows([0.8, 0.1, 0.1], [0.8, 0.1, 0.1]), span_rows([0.1, 0.1, 0.8], [0.1, 0.1, 0.8])
    members = [member(str(i), [row], [[0, 2]], member(str(i), [row], [[0, 2]])) for i, row in enumerate(half)]
    assert ensemble(members, "fitted").weights == pytest.approx((0.5, 0.5))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_fitted_weights_maximise_the_likelihood(seed: int, members: int) -> None:
    random = np.random.default_rng(seed)
    logits, gold = random.normal(size=(members, 12, 3)), random.integers(0, 3, 12)
    made = [member(str(i), rows, gold[:, None], member(str(i), rows, gold[:, None])) for i, rows in enumerate(logits)]
    weights = np.array(ensemble(made, "fitted").weights)
    given_gold = np.stack([[softmax_rows(row)[g] for row, g in zip(rows, gold, strict=True)] for rows in logits])

    def likelihood(share: Any) -> float:
        return float(np.log(share @ given_gold).mean())

    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0)
    assert likelihood(weights) >= max(likelihood(random.dirichlet(np.ones(members))) for _ in range(50)) - 1e-3
    assert likelihood(weights) >= max(likelihood(np.eye(members)[i]) for i in range(members)) - 1e-3


def value_member(name: str, inner: Rows, gold: Rows, dev: Rows) -> Predictions:
    on_inner = member(name, [[v] for v in inner], [[g] for g in gold])
    return member(name, [[v] for v in dev], [[0.0]] * len(dev), on_inner)


def test_values_are_averaged() -> None:
    a, b = value_member("a", [1.0, 2.0], [0, 0], [4.0, -2.0]), value_member("b", [3.0, 0.0], [0, 0], [2.0, 1.0])
    combined = ensemble([a, b], "mean")
    assert np.stack(combined.logits)[:, 0].tolist() == pytest.approx([3.0, -0.5])
    assert combined.inner is not None
    assert np.stack(combined.inner.logits)[:, 0].tolist() == pytest.approx([2.0, 1.0])


def test_fitted_values_are_the_best_non_negative_sum_on_inner() -> None:
    first, second = np.array([1.0, -2.0, 0.5, 3.0]), np.array([0.5, 1.0, -1.0, 0.0])
    gold = 0.5 * first + 0.25 * second
    combined = ensemble([value_member("a", first, gold, [8.0]), value_member("b", second, gold, [4.0])], "fitted")
    assert combined.weights == pytest.approx((0.5, 0.25))
    assert combined.logits[0][0] == pytest.approx(5.0)
    against = ensemble([value_member("a", first, gold, [8.0]), value_member("c", -first, gold, [1.0])], "fitted")
    assert min(against.weights) >= 0.0


def test_values_are_averaged_if_no_positive_weight_helps() -> None:
    gold, against = np.array([1.0, -1.0]), np.array([-1.0, 1.0])
    combined = ensemble([value_member(name, against, gold, [2.0]) for name in "ab"], "fitted")
    assert combined.weights == (0.5, 0.5)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_weighted_ensembles_weigh_by_a_power_of_the_likelihood_on_inner(seed: int, members: int) -> None:
    random = np.random.default_rng(seed)
    logits, gold = random.normal(size=(members, 12, 3)), random.integers(0, 3, 12)
    made = [member(str(i), rows, gold[:, None], member(str(i), rows, gold[:, None])) for i, rows in enumerate(logits)]
    combined = weighted_ensemble(made, "all")
    given_gold = np.stack([[softmax_rows(row)[g] for row, g in zip(rows, gold, strict=True)] for rows in logits])
    expected = given_gold.prod(1) ** TEMPER
    assert combined.weights == pytest.approx(expected / expected.sum())
    assert (combined.name, combined.spec, combined.kind) == ("all", "fitted", "ensemble")
    mixed = np.tensordot(combined.weights, np.stack([[softmax_rows(row) for row in rows] for rows in logits]), 1)
    np.testing.assert_allclose(np.exp(np.stack(combined.logits)), mixed, atol=1e-6)
    assert combined.inner is not None
    np.testing.assert_allclose(np.exp(np.stack(combined.inner.logits)), mixed, atol=1e-6)
    alone = combine_validated([made[0].inner, made[1].inner])  # type: ignore[list-item]
    both = weighted_ensemble(made[:2], "both").inner
    assert both is not None
    assert alone.weights == both.weights
    assert np.array_equal(np.stack(alone.logits), np.stack(both.logits))


def test_seeds_share_the_weight_of_a_predictor_in_a_weighted_ensemble() -> None:
    equal = [replace(A, seed=seed) for seed in (0, 1, 2)] + [
        label_member("c", [[0.7, 0.2, 0.1]], [0], [[0.7, 0.2, 0.1]], [0])
    ]
    assert weighted_ensemble(equal, "all").weights == pytest.approx((1 / 6, 1 / 6, 1 / 6, 1 / 2))
    weights = weighted_ensemble([*equal[:3], B], "all").weights
    ratio = (0.7 / 0.1) ** TEMPER  # of the likelihoods of the one row of inner
    assert sum(weights[:3]) / weights[3] == pytest.approx(ratio)


def test_many_poor_members_do_little_harm_in_a_weighted_ensemble() -> None:
    rows, gold = 500, GOLD * 125
    good = label_member("good", GOOD * 125, gold, GOOD, GOLD)
    poor = [label_member(f"poor {i}", POOR * 125, gold, POOR, GOLD) for i in range(20)]
    assert len(gold) == rows
    assert weighted_ensemble([*poor, good], "all").weights[-1] > 0.999
    few = [label_member(f"poor {i}", POOR, GOLD, POOR, GOLD) for i in range(20)]
    weights = weighted_ensemble([*few, label_member("good", GOOD, GOLD, GOOD, GOLD)], "all").weights
    assert weights[0] < weights[-1] < 3 * weights[0], "four rows say little"


def test_weighted_ensembles_of_values_weigh_by_the_squared_error() -> None:
    gold = np.array([1.0, -1.0, 0.5, 0.0])
    near, far = value_member("near", gold + 0.1, gold, [8.0]), value_member("far", gold + 0.2, gold, [4.0])
    weights = weighted_ensemble([near, far], "both").weights
    assert weights[0] / weights[1] == pytest.approx((0.04 / 0.01) ** (TEMPER * len(gold) / 2), rel=1e-4)
    assert weighted_ensemble([near, far], "both").logits[0][0] == pytest.approx(8 * weights[0] + 4 * weights[1])


def test_an_ensemble_of_one_validated_member_is_that_member() -> None:
    assert A.inner is not None
    assert combine_validated([A.inner]) is A.inner


def test_members_without_outputs_on_inner_cannot_be_weighted() -> None:
    assert A.inner is not None
    with pytest.raises(BadInput, match="needs the outputs of every member on the validation split"):
        weighted_ensemble([A, A.inner], "both")


def test_invalid_ensembles_are_refused() -> None:
    value = value_member("v", [1.0], [1.0], [1.0])
    assert A.inner is not None
    with pytest.raises(BadInput, match="at least 2 members, got 1"):
        ensemble([A])
    with pytest.raises(BadInput, match=r"'a@3' predicts 1 windows of dev, 'a@3' 1 of inner; expected the same split"):
        ensemble([A, A.inner])
    with pytest.raises(BadInput, match=r"'a@3' predicts 1 windows of dev, 'c.*' 2 of dev; .* from one store and split"):
        ensemble([A, label_member("c", [[0.5, 0.5]], [0], [[0.5, 0.5]] * 2, [0, 1])])
    with pytest.raises(BadInput, match="'max' is for labels and spans; values are combined by 'mean' or 'fitted'"):
        ensemble([value, value], "max")
    with pytest.raises(BadInput, match=r"no way to combine named 'maximum'\. Did you mean 'max'"):
        ensemble([A, B], "maximum")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="needs the outputs of every member on inner"):
        ensemble([A.inner, A.inner], "fitted")


def test_ensemble_of_predictions_without_inner_has_no_inner() -> None:
    assert A.inner is not None
    assert ensemble([A.inner, A.inner], "mean").inner is None


@given(st.integers(0, 10_000), st.sampled_from(["max", "mean"]))
def test_equal_members_keep_their_probabilities(seed: int, how: Any) -> None:
    row = np.random.default_rng(seed).normal(size=(7, 2)).astype(np.float32)
    mixed = combine_rows([row, row, row], how, np.full(3, 1 / 3), "span")
    np.testing.assert_allclose(softmax_rows(mixed), softmax_rows(row), atol=1e-6)
    np.testing.assert_allclose(softmax_rows(mixed).sum(0), 1.0)
