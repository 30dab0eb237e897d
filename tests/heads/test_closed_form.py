"""The head that is computed: against another implementation, and on data that is short of something."""

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
"""An epoch that shrinks by almost nothing."""


def texts(count: int = 400, labels: int = 3) -> tuple[Tensor, Tensor]:
    """States (count, 2, 4), far from zero and of several scales, whose mean depends on the label."""
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(labels, (count,), generator=generator)
    means = torch.randn(labels, 2, 4, generator=generator)
    noise = torch.randn(count, 2, 4, generator=generator)
    return (means[label] + noise) * torch.tensor([1.0, 0.1, 10.0, 3.0]) + 50, label


def solved(
    kind: Kind, x: Tensor, y: Tensor, outputs: int, epoch: int = UNSHRUNK, weights: Tensor | None = None
) -> Linear:
    body = build_head("linear", Shape(2, 4, 5, outputs, kind)).module
    assert isinstance(body, Linear)
    solver = body.solver(weights)
    for some in range(0, len(x), 64):
        solver.observe(x[some : some + 64], y[some : some + 64])
    solver.solve(epoch)
    return body


def test_labels_are_told_as_another_implementation_tells_them() -> None:
    x, y = texts()
    body = solved("classify", x, y, 3)
    known = LinearDiscriminantAnalysis(solver="lsqr").fit(x.flatten(1).numpy(), y.numpy())
    got = body(x).softmax(1).detach().numpy()
    np.testing.assert_allclose(got, known.predict_proba(x.flatten(1).numpy()), atol=0.01)
    assert (got.argmax(1) == y.numpy()).mean() > 0.7


def test_weights_of_labels_shift_what_is_likely() -> None:
    x, y = texts()
    plain, weighed = solved("classify", x, y, 3), solved("classify", x, y, 3, weights=torch.tensor([1.0, 5.0, 1.0]))
    shift = (weighed(x) - plain(x)).detach()
    expected = torch.tensor([0.0, 5.0, 0.0]).clamp_min(1).log().expand_as(shift)
    torch.testing.assert_close(shift, expected, atol=1e-3, rtol=0)


def test_several_labels_are_told_one_by_one() -> None:
    x, y = texts(labels=2)
    both = torch.stack([y, 1 - y], 1).float()
    odds = solved("multilabel", x, both, 2)(x).detach()
    logits = solved("classify", x, y, 2)(x).detach()
    torch.testing.assert_close(odds[:, 0], logits[:, 1] - logits[:, 0], atol=0.05, rtol=0.01)
    torch.testing.assert_close(odds[:, 1], -odds[:, 0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["classify", "multilabel"])
@pytest.mark.parametrize("count", [1, 3])
def test_too_few_texts_and_labels_never_seen_still_give_numbers(kind: Kind, count: int) -> None:
    x, _ = texts(count)
    y = torch.zeros(count) if kind == "classify" else torch.ones(count, 3)
    for epoch in (1, 5):
        outputs = solved(kind, x, y, 3, epoch)(x)
        assert outputs.isfinite().all()
        if kind == "classify":
            assert (outputs.argmax(1) == 0).all()


def test_a_number_that_never_changes_gets_no_weight() -> None:
    x, y = texts()
    x[:, 0, 1] = 50.0
    body = solved("classify", x, y, 3, epoch=1)
    assert (body.dense.weight[:, 1] == 0).all()
    assert (body.dense.weight[:, [0, 2, 3]] != 0).all()


def test_a_second_pass_over_the_same_texts_changes_nothing() -> None:
    x, y = texts()
    body = build_head("linear", Shape(2, 4, 5, 3, "classify")).module
    solver = body.solver(None)
    assert solver is not None
    solver.observe(x, y)
    solver.solve(1)
    first = body.dense.weight.detach().clone()
    solver.observe(x + 1, y)
    solver.solve(1)
    assert torch.equal(body.dense.weight, first)
