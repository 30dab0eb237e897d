"""Fast dropout masks: the right rate, seeded by torch, and no effect on other random numbers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from bertvision.encoders.fast_dropout import FastDropoutMasks, fast_dropout

CPU = torch.device("cpu")


def dropped(seed: int, quick: bool = True) -> torch.Tensor:
    torch.manual_seed(seed)
    with fast_dropout(CPU, checkpointing=not quick):
        return F.dropout(torch.ones(400, 501), 0.1)


def test_dropout_zeroes_its_rate_and_scales_the_rest() -> None:
    output = dropped(0)
    assert output.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert (output == 0).float().mean().item() == pytest.approx(0.1, abs=0.003)


def test_masks_depend_on_the_seed_of_torch_and_differ_from_each_other() -> None:
    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))
    torch.manual_seed(3)
    with FastDropoutMasks():
        first, second = (F.dropout(torch.ones(1000), 0.5) for _ in range(2))
    assert not torch.equal(first, second)


def test_neighbouring_mask_values_are_independent() -> None:
    zero = (dropped(4).flatten() == 0).float()
    for distance in (1, 2, 3, 4):
        both = (zero[:-distance] * zero[distance:]).mean().item()
        assert both == pytest.approx(0.01, abs=0.001)


def test_gradients_use_the_mask_of_the_forward_pass() -> None:
    torch.manual_seed(5)
    x = torch.ones(1000, requires_grad=True)
    with FastDropoutMasks():
        y = F.dropout(x, 0.3)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_checkpointing_keeps_the_dropout_of_torch() -> None:
    output = dropped(6, quick=False)
    torch.manual_seed(6)
    assert torch.equal(output, F.dropout(torch.ones(400, 501), 0.1))


def test_other_bernoulli_draws_are_left_to_torch() -> None:
    torch.manual_seed(7)
    expected = torch.zeros(50, dtype=torch.int64).bernoulli_(0.5)
    torch.manual_seed(7)
    with FastDropoutMasks():
        assert torch.equal(torch.zeros(50, dtype=torch.int64).bernoulli_(0.5), expected)
        generator = torch.Generator().manual_seed(1)
        own = torch.empty(50).bernoulli_(0.5, generator=generator)
    assert torch.equal(own, torch.empty(50).bernoulli_(0.5, generator=torch.Generator().manual_seed(1)))
