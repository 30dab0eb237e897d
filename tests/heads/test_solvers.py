"""Solvers of linear heads: against scikit-learn, in every form, for rows left out, and on awkward features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import linear_model
from torch import Tensor

from bertvision.heads import solvers
from bertvision.heads.solvers import STRENGTHS, Design, Solution, best_ridge, logistic_path, minimise, ridge_path

Floats = NDArray[np.float64]

STRONG, MIDDLE, WEAK = 1.0, 1e-2, 1e-3


class Table:
    """Features in memory."""

    def __init__(self, values: Floats) -> None:
        self.values = torch.tensor(values, dtype=torch.float32)
        self.rows, self.columns = self.values.shape

    def read(self, start: int, stop: int) -> Tensor:
        return self.values[start:stop]


def features(rows: int, columns: int, seed: int = 0) -> Floats:
    """Correlated features of several scales, not centred."""
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(rows, columns)) @ random.normal(size=(columns, columns)) / columns**0.5
    scale = 10 ** random.uniform(-1, 1, columns)
    return np.asarray((mixed + random.normal(size=columns)) * scale, np.float32).astype(np.float64)


def standardised(x: Floats) -> Floats:
    """Features as the penalty sees them: of variance 1, divided by the root of their number."""
    return np.asarray((x - x.mean(0)) / x.std(0) / x.shape[1] ** 0.5)


def outputs_of(x: Floats, solution: Solution) -> Floats:
    return np.asarray(x @ solution.weight.double().numpy() + solution.bias.double().numpy())


def make_labels(x: Floats, count: int, seed: int = 1) -> NDArray[np.int64]:
    random = np.random.default_rng(seed)
    scores = 10 * standardised(x) @ random.normal(size=(x.shape[1], count)) / x.shape[1] ** 0.5
    return np.asarray((scores + random.gumbel(size=scores.shape)).argmax(1))


def indicators(labels: NDArray[np.int64], count: int) -> Tensor:
    return torch.tensor(np.eye(count)[labels], dtype=torch.float32)


def logistic(x: Floats, y: NDArray[np.int64], strength: float, weights: Floats | None = None) -> Any:
    """scikit-learn's fit to standardised features; ``strength`` is that of one vector of weights."""
    model = linear_model.LogisticRegression(C=1 / (len(x) * strength), tol=1e-8, max_iter=5000)
    return model.fit(standardised(x), y, sample_weight=weights)


@pytest.fixture(params=["decomposed", "small chunks", "not cached", "not decomposed", "not decomposed or cached"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How features are kept: in directions or as they are, in memory or read in pieces again and again."""
    name = str(request.param)
    if name != "decomposed":
        monkeypatch.setattr(solvers, "CHUNK", 7)
    if "cached" in name:
        monkeypatch.setattr(solvers, "MAX_CACHED", 0)
    if "not decomposed" in name:
        monkeypatch.setattr(solvers, "MAX_DECOMPOSED", 1)
    return name


@pytest.fixture(params=[(60, 8), (30, 50)], ids=["more rows", "more features"])
def x(request: pytest.FixtureRequest) -> Floats:
    return features(*request.param)


def test_forms_are_chosen_by_size(form: str, x: Floats) -> None:
    design = Design(Table(x))
    decomposed = "not decomposed" not in form
    assert design.dual == (decomposed and len(x) < x.shape[1])
    assert (design.basis is not None) == decomposed
    assert (design.cached is not None) == (design.dual or "cached" not in form)
    product = torch.randn(len(design.variances), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = torch.randn(len(x), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close((design.times(product) * other).sum(), (product * design.transposed_times(other)).sum())


def test_label_probabilities_equal_those_of_scikit_learn(form: str, x: Floats) -> None:
    y, strengths = make_labels(x, 3), (STRONG, MIDDLE, WEAK)
    solutions = list(logistic_path(Design(Table(x)), indicators(y, 3), None, strengths=strengths))
    assert [solution.strength for solution in solutions] == list(strengths)
    for solution in solutions:
        expected = logistic(x, y, solution.strength).predict_proba(standardised(x))
        got = torch.tensor(outputs_of(x, solution)).softmax(1).numpy()
        np.testing.assert_allclose(got, expected, atol=3e-3)


def test_margin_of_two_labels_equals_scikit_learns_single_output(form: str, x: Floats) -> None:
    y = make_labels(x, 2)
    for solution in logistic_path(Design(Table(x)), indicators(y, 2), None, strengths=(STRONG, MIDDLE, WEAK)):
        # Two opposite vectors of half the length have half the penalty of their difference.
        expected = logistic(x, y, solution.strength / 2).decision_function(standardised(x))
        outputs = outputs_of(x, solution)
        np.testing.assert_allclose(outputs[:, 1] - outputs[:, 0], expected, atol=0.02, rtol=0.01)


def test_each_of_several_labels_equals_its_own_logistic_regression(form: str, x: Floats) -> None:
    sets = np.stack([make_labels(x, 2, seed) for seed in (1, 2, 3)], axis=1)
    targets = torch.tensor(sets, dtype=torch.float32)
    for solution in logistic_path(Design(Table(x)), targets, None, exclusive=False, strengths=(STRONG, MIDDLE, WEAK)):
        outputs = outputs_of(x, solution)
        for label in range(3):
            expected = logistic(x, sets[:, label], solution.strength).decision_function(standardised(x))
            np.testing.assert_allclose(outputs[:, label], expected, atol=0.03, rtol=0.01)


def test_class_weights_are_weights_of_rows(x: Floats) -> None:
    y, weights = make_labels(x, 3), np.array([0.5, 1.0, 4.0])
    path = logistic_path(
        Design(Table(x)), indicators(y, 3), None, weights=torch.tensor(weights), strengths=(STRONG, MIDDLE)
    )
    for solution in path:
        expected = logistic(x, y, solution.strength, weights[y]).predict_proba(standardised(x))
        got = torch.tensor(outputs_of(x, solution)).softmax(1).numpy()
        np.testing.assert_allclose(got, expected, atol=3e-3)


def test_class_weights_of_any_number_of_labels_weigh_presence(x: Floats) -> None:
    sets, weights = np.stack([make_labels(x, 2, seed) for seed in (1, 2)], axis=1), np.array([3.0, 0.25])
    targets = torch.tensor(sets, dtype=torch.float32)
    path = logistic_path(
        Design(Table(x)), targets, None, exclusive=False, weights=torch.tensor(weights), strengths=(STRONG, MIDDLE)
    )
    for solution in path:
        for label in range(2):
            of_rows = np.where(sets[:, label] == 1, weights[label], 1.0)
            model = logistic(x, sets[:, label], solution.strength, of_rows)
            expected = model.decision_function(standardised(x))
            np.testing.assert_allclose(outputs_of(x, solution)[:, label], expected, atol=0.03, rtol=0.01)


def make_values(x: Floats, outputs: int = 2) -> Floats:
    random = np.random.default_rng(5)
    return np.asarray(3 * standardised(x) @ random.normal(size=(x.shape[1], outputs)) + random.normal(size=outputs))


def test_values_equal_scikit_learns_ridge_regression(form: str, x: Floats) -> None:
    y = make_values(x)
    for solution in ridge_path(Design(Table(x)), torch.tensor(y, dtype=torch.float32), None, (STRONG, MIDDLE, WEAK)):
        model = linear_model.Ridge(alpha=len(x) * solution.strength).fit(standardised(x), y)
        tolerance = 0.02 if form.startswith("not decomposed") else 1e-4  # got by search, or in closed form
        np.testing.assert_allclose(outputs_of(x, solution), model.predict(standardised(x)), atol=tolerance)


def test_default_path_has_every_strength_from_the_strongest_on(x: Floats) -> None:
    values = torch.tensor(make_values(x), dtype=torch.float32)
    assert [solution.strength for solution in ridge_path(Design(Table(x)), values, None)] == list(STRENGTHS)
    labels = indicators(make_labels(x, 2), 2)
    assert [solution.strength for solution in logistic_path(Design(Table(x)), labels, None)] == list(STRENGTHS)
    assert list(STRENGTHS) == sorted(STRENGTHS, reverse=True)


@pytest.mark.parametrize("count", [5, None], ids=["five folds", "one row per fold"])
def test_values_left_out_equal_refits_without_the_fold(form: str, x: Floats, count: int | None) -> None:
    if form.startswith("not decomposed"):
        pytest.skip("no closed form")
    y, folds = make_values(x), np.arange(len(x)) % (count or len(x))
    path = ridge_path(Design(Table(x)), torch.tensor(y, dtype=torch.float32), torch.tensor(folds), (STRONG, MIDDLE))
    for solution in path:
        assert solution.held_out is not None
        for fold in np.unique(folds):
            out = folds == fold
            model = linear_model.Ridge(alpha=len(x) * solution.strength).fit(standardised(x)[~out], y[~out])
            np.testing.assert_allclose(solution.held_out[out], model.predict(standardised(x)[out]), atol=1e-4)


def test_values_left_out_without_a_closed_form_equal_refits(x: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "MAX_DECOMPOSED", 1)
    y, folds = make_values(x), np.arange(len(x)) % 3
    path = ridge_path(Design(Table(x)), torch.tensor(y, dtype=torch.float32), torch.tensor(folds), (STRONG, MIDDLE))
    for solution in path:
        assert solution.held_out is not None
        for fold in range(3):
            out = folds == fold
            model = linear_model.Ridge(alpha=int((~out).sum()) * solution.strength)
            expected = model.fit(standardised(x)[~out], y[~out]).predict(standardised(x)[out])
            np.testing.assert_allclose(solution.held_out[out], expected, atol=0.03)


def test_labels_left_out_equal_refits_without_the_fold(form: str, x: Floats) -> None:
    y, folds = make_labels(x, 3), np.arange(len(x)) % 3
    for fold in range(3):
        assert set(y[folds != fold]) == {0, 1, 2}
    path = logistic_path(Design(Table(x)), indicators(y, 3), torch.tensor(folds), strengths=(STRONG, MIDDLE))
    for solution in path:
        assert solution.held_out is not None
        for fold in range(3):
            out, strength = folds == fold, solution.strength
            model = linear_model.LogisticRegression(C=1 / ((~out).sum() * strength), tol=1e-8, max_iter=5000)
            expected = model.fit(standardised(x)[~out], y[~out]).predict_proba(standardised(x)[out])
            np.testing.assert_allclose(solution.held_out[out].softmax(1), expected, atol=3e-3)
        whole = logistic(x, y, solution.strength).predict_proba(standardised(x))
        got = torch.tensor(outputs_of(x, solution)).softmax(1).numpy()
        np.testing.assert_allclose(got, whole, atol=3e-3, err_msg="the solution is fitted to every row")


def test_constant_features_get_weight_zero(form: str, x: Floats) -> None:
    x = x.copy()
    x[:, 1], x[:, 3] = 0.0, 123.4
    labels, values = indicators(make_labels(features(*x.shape), 3), 3), torch.tensor(make_values(features(*x.shape)))
    solutions = [*logistic_path(Design(Table(x)), labels, None), *ridge_path(Design(Table(x)), values, None)]
    for solution in solutions:
        assert (solution.weight[[1, 3]] == 0).all()
        assert (solution.weight[[0, 2]] != 0).any(1).all()
        assert solution.weight.isfinite().all()
        assert solution.bias.isfinite().all()


def test_offsets_far_larger_than_the_variation_do_not_matter(form: str, x: Floats) -> None:
    y, values = make_labels(x, 3), make_values(x)
    far = np.asarray(standardised(x) * x.shape[1] ** 0.5 + 1e4, np.float32).astype(np.float64)
    folds = torch.arange(len(x)) % 5
    for solution in logistic_path(Design(Table(far)), indicators(y, 3), folds, strengths=(STRONG, MIDDLE)):
        expected = logistic(far, y, solution.strength).predict_proba(standardised(far))
        got = torch.tensor(outputs_of(far, solution)).softmax(1).numpy()
        np.testing.assert_allclose(got, expected, atol=0.01)
        assert solution.held_out is not None
        assert solution.held_out.isfinite().all()
    for solution in ridge_path(Design(Table(far)), torch.tensor(values, dtype=torch.float32), folds, (STRONG, MIDDLE)):
        model = linear_model.Ridge(alpha=len(far) * solution.strength).fit(standardised(far), values)
        np.testing.assert_allclose(outputs_of(far, solution), model.predict(standardised(far)), atol=0.03)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_very_few_rows_and_labels_that_do_not_occur_give_finite_solutions(form: str, rows: int) -> None:
    x = features(rows, 6)
    labels, folds = indicators(np.zeros(rows, np.int64), 3), torch.arange(rows) if rows > 1 else None
    design = Design(Table(x))
    solutions = list(logistic_path(design, labels, folds))
    solutions += logistic_path(design, torch.ones(rows, 3), folds, exclusive=False)
    solutions += ridge_path(design, torch.arange(rows)[:, None].float(), folds)
    for solution in solutions:
        assert solution.weight.isfinite().all()
        assert solution.bias.isfinite().all()
        assert solution.held_out is None or solution.held_out.isfinite().all()


def quadratic(matrix: Tensor, minimum: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda position: (position - minimum) @ matrix @ (position - minimum) / 2 + 3


def test_several_convex_functions_are_minimised_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    steep = factors[0] @ factors[0].T + torch.diag(torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64))
    minima = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    functions: list[Callable[[Tensor], Tensor]] = [
        quadratic(steep, minima[0]),
        quadratic(torch.eye(4, dtype=torch.float64), minima[1]),
        lambda position: (position - minima[2]).cosh().log().sum() + 0.1,  # almost linear far from the minimum
        lambda position: (position - minima[3]).square().square().sum() + (position - minima[3]).square().sum() + 1,
    ]
    calls = 0

    def loss(positions: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        at = positions.detach().requires_grad_(True)
        values = torch.stack([function(row) for function, row in zip(functions, at, strict=True)])
        (gradient,) = torch.autograd.grad(values.sum(), at)
        return values.detach(), gradient

    got = minimise(loss, torch.full((4, 4), 5.0, dtype=torch.float64))
    torch.testing.assert_close(got, minima, atol=2e-3, rtol=0)
    assert calls < 200
    alone = minimise(lambda position: tuple(part[1:2] for part in loss(position.expand(4, 4))), got[1:2] + 5)  # type: ignore[arg-type,return-value]
    torch.testing.assert_close(alone[0], minima[1], atol=2e-3, rtol=0)


def test_a_minimum_is_left_as_it_is() -> None:
    start = torch.zeros(2, 3, dtype=torch.float64)
    got = minimise(lambda x: (x.square().sum(1) + 1, 2 * x), start)
    assert torch.equal(got, start)


def test_best_ridge_has_the_smallest_leave_one_out_error_and_is_held_out_by_folds() -> None:
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    y = (x[:, :3].sum(1, keepdim=True) + torch.randn(40, 1, generator=torch.Generator().manual_seed(1))).float()
    folds, design = torch.arange(40) % 4, Design(Table(x.double().numpy()))
    (best,) = best_ridge(design, y, folds)
    each = list(ridge_path(design, y, torch.arange(40)))
    errors = [float((solution.held_out - y).square().mean()) for solution in each]  # type: ignore[operator]
    assert best.strength == STRENGTHS[int(np.argmin(errors))]
    (expected,) = ridge_path(design, y, folds, [best.strength])
    assert best.held_out is not None
    assert expected.held_out is not None
    torch.testing.assert_close(best.held_out, expected.held_out)
