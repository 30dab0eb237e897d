"""The closed-form linear head: against scikit-learn, and on few texts, unseen labels and constant features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from bertvision.core.records import Kind, Shape
from bertvision.heads.base import build_head
from bertvision.heads.closed_form import Linear

UNSHRUNK = 9
"""An epoch with almost no shrinkage."""


def texts(count: int = 400, labels: int = 3) -> tuple[Tensor, Tensor]:
    """States (count, 2, 4), far from zero and of several scales, whose mean depends on the label."""
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(labels, (count,), generator=generator)
    means = torch.randn(labels, 2, 4, generator=generator)
    noise = torch.randn(count, 2, 4, generator=generator)
    return (means[label] + noise) * torch.tensor([1.0, 0.1, 10.0, 3.0]) + 50, label


def fit_closed_form(
    kind: Kind, x: Tensor, y: Tensor, outputs: int, epoch: int = UNSHRUNK, weights: Tensor | None = None
) -> Linear:
    module = build_head("linear", Shape(2, 4, 5, outputs, kind)).module
    assert isinstance(module, Linear)
    solver = module.solver(weights)
    for start in range(0, len(x), 64):
        solver.observe(x[start : start + 64], y[start : start + 64])
    solver.solve(epoch)
    return module


def test_label_probabilities_match_scikit_learn_lda() -> None:
    x, y = texts()
    module = fit_closed_form("classify", x, y, 3)
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(x.flatten(1).numpy(), y.numpy())
    probabilities = module(x).softmax(1).detach().numpy()
    np.testing.assert_allclose(probabilities, reference.predict_proba(x.flatten(1).numpy()), atol=0.01)
    assert (probabilities.argmax(1) == y.numpy()).mean() > 0.7


def test_class_weights_shift_logits_by_their_logarithm() -> None:
    x, y = texts()
    plain = fit_closed_form("classify", x, y, 3)
    weighted = fit_closed_form("classify", x, y, 3, weights=torch.tensor([1.0, 5.0, 1.0]))
    shift = (weighted(x) - plain(x)).detach()
    expected = torch.tensor([0.0, 5.0, 0.0]).clamp_min(1).log().expand_as(shift)
    torch.testing.assert_close(shift, expected, atol=1e-3, rtol=0)


def test_multilabel_log_odds_match_two_class_logits() -> None:
    x, y = texts(labels=2)
    both = torch.stack([y, 1 - y], 1).float()
    odds = fit_closed_form("multilabel", x, both, 2)(x).detach()
    logits = fit_closed_form("classify", x, y, 2)(x).detach()
    torch.testing.assert_close(odds[:, 0], logits[:, 1] - logits[:, 0], atol=0.05, rtol=0.01)
    torch.testing.assert_close(odds[:, 1], -odds[:, 0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["classify", "multilabel"])
@pytest.mark.parametrize("count", [1, 3])
def test_few_texts_and_unseen_labels_give_finite_outputs(kind: Kind, count: int) -> None:
    x, _ = texts(count)
    y = torch.zeros(count) if kind == "classify" else torch.ones(count, 3)
    for epoch in (1, 5):
        outputs = fit_closed_form(kind, x, y, 3, epoch)(x)
        assert outputs.isfinite().all()
        if kind == "classify":
            assert (outputs.argmax(1) == 0).all()


def test_constant_feature_gets_weight_zero() -> None:
    x, y = texts()
    x[:, 0, 1] = 50.0
    module = fit_closed_form("classify", x, y, 3, epoch=1)
    assert (module.dense.weight[:, 1] == 0).all()
    assert (module.dense.weight[:, [0, 2, 3]] != 0).all()


def test_observations_after_the_first_pass_are_ignored() -> None:
    x, y = texts()
    module = build_head("linear", Shape(2, 4, 5, 3, "classify")).module
    solver = module.solver(None)
    assert solver is not None
    solver.observe(x, y)
    solver.solve(1)
    weight_after_first_pass = module.dense.weight.detach().clone()
    solver.observe(x + 1, y)
    solver.solve(1)
    assert torch.equal(module.dense.weight, weight_after_first_pass)
