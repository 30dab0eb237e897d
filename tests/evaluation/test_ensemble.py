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
from bertvision.evaluation.ensemble import PRIOR_ROWS, combine_rows, ensemble, softmax_rows

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
    few, many = 1, 400
    for times, least in ((few, 0.52), (many, 0.98)):  # rows of inner; a few change the weights little
        inner = GOOD * times, GOLD * times, POOR * times
        good = label_member("good", inner[0], inner[1], POOR, GOLD)
        poor = label_member("poor", inner[2], inner[1], GOOD, GOLD)
        for members, best in (([good, poor], 0), ([poor, good], 1)):
            combined = ensemble(members, "fitted")
            assert 1 > combined.weights[best] > least
            assert sum(combined.weights) == pytest.approx(1.0)
            expected = combined.weights[best] * np.array(POOR) + combined.weights[1 - best] * np.array(GOOD)
            np.testing.assert_allclose(np.exp(np.stack(combined.logits)), expected, atol=1e-6)


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
    rows = 500
    members = [
        member(name, [row] * rows, [[0, 2]] * rows, member(name, [row] * rows, [[0, 2]] * rows))
        for name, row in (("r", right), ("w", wrong))
    ]
    assert ensemble(members, "fitted").weights[0] > 0.98
    # Start right and end wrong against the reverse: neither is better.
    half = span_rows([0.8, 0.1, 0.1], [0.8, 0.1, 0.1]), span_rows([0.1, 0.1, 0.8], [0.1, 0.1, 0.8])
    members = [member(str(i), [row], [[0, 2]], member(str(i), [row], [[0, 2]])) for i, row in enumerate(half)]
    assert ensemble(members, "fitted").weights == pytest.approx((0.5, 0.5))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_fitted_weights_maximise_the_likelihood_with_a_prior_of_equal_weights(seed: int, members: int) -> None:
    random = np.random.default_rng(seed)
    logits, gold = random.normal(size=(members, 12, 3)), random.integers(0, 3, 12)
    made = [member(str(i), rows, gold[:, None], member(str(i), rows, gold[:, None])) for i, rows in enumerate(logits)]
    weights = np.array(ensemble(made, "fitted").weights)
    given_gold = np.stack([[softmax_rows(row)[g] for row, g in zip(rows, gold, strict=True)] for rows in logits])

    def penalised(share: Any) -> float:
        """Log likelihood of the rows, and of a number of rows that say that the weights are equal."""
        prior = PRIOR_ROWS / members * np.log(share).sum()
        return float(np.log(share @ given_gold).sum() + prior)

    assert weights.min() > 0
    assert weights.sum() == pytest.approx(1.0)
    others = [random.dirichlet(np.full(members, concentration)) for concentration in (1.0, 100.0) for _ in range(50)]
    near = [(1 - step) * weights + step * vertex for vertex in np.eye(members) for step in (1e-3, 1e-2)]
    assert penalised(weights) >= max(map(penalised, [*others, *near, np.full(members, 1 / members)])) - 1e-6


def test_seeds_of_a_predictor_share_its_weight() -> None:
    seeds = [replace(A, seed=seed) for seed in (0, 1, 2)]
    assert ensemble([*seeds, B], "mean").weights == pytest.approx((1 / 6, 1 / 6, 1 / 6, 1 / 2))
    assert probabilities(ensemble([*seeds, B], "mean")) == pytest.approx([0.4, 0.4, 0.2])
    fitted = ensemble([*seeds, B], "fitted").weights
    assert fitted[0] == fitted[1] == fitted[2]
    assert 1 / 2 < sum(fitted[:3]) < 0.55, "one row says that the first predictor is better"


def value_member(name: str, inner: Rows, gold: Rows, dev: Rows) -> Predictions:
    on_inner = member(name, [[v] for v in inner], [[g] for g in gold])
    return member(name, [[v] for v in dev], [[0.0]] * len(dev), on_inner)


def test_values_are_averaged() -> None:
    a, b = value_member("a", [1.0, 2.0], [0, 0], [4.0, -2.0]), value_member("b", [3.0, 0.0], [0, 0], [2.0, 1.0])
    combined = ensemble([a, b], "mean")
    assert np.stack(combined.logits)[:, 0].tolist() == pytest.approx([3.0, -0.5])
    assert combined.inner is not None
    assert np.stack(combined.inner.logits)[:, 0].tolist() == pytest.approx([2.0, 1.0])


def test_fitted_values_are_the_best_non_negative_sum_on_inner_with_a_prior_of_equal_weights() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 30))
    gold = 0.7 * first + 0.1 * second + 0.1 * random.normal(size=30)
    combined = ensemble([value_member("a", first, gold, [8.0]), value_member("b", second, gold, [4.0])], "fitted")
    columns = np.stack([first, second], 1)
    strength = PRIOR_ROWS * columns.var()
    expected = np.linalg.solve(columns.T @ columns + strength * np.eye(2), columns.T @ gold + strength * 0.5)
    assert combined.weights == pytest.approx(expected, rel=1e-5)
    assert combined.logits[0][0] == pytest.approx(8 * expected[0] + 4 * expected[1], rel=1e-5)


def test_weights_of_values_come_near_the_best_sum_with_many_rows() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 5000))
    gold = 0.5 * first + 0.25 * second
    combined = ensemble([value_member("a", first, gold, [8.0]), value_member("b", second, gold, [4.0])], "fitted")
    assert combined.weights == pytest.approx((0.5, 0.25), abs=2e-3)
    against = ensemble([value_member("a", first, first, [8.0]), value_member("c", -first, first, [1.0])], "fitted")
    assert min(against.weights) >= 0.0
    assert against.weights[0] > 0.9 * sum(against.weights)


def test_values_are_averaged_if_no_positive_weight_helps() -> None:
    gold = np.linspace(-1, 1, 400) * 3
    combined = ensemble([value_member(name, -gold, gold, [2.0]) for name in "ab"], "fitted")
    assert combined.weights == (0.5, 0.5)


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
