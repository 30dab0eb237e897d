"""Training a head costs a small share of an encoder pass, counted in floating-point operations."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertvision.core.records import Shape
from bertvision.heads.base import build_head, head_loss

MINILM = Shape(layers=7, width=384, tokens=64, outputs=2, kind="span")


def step_cost(spec: str) -> int:
    """Floating-point operations of one step (forward and backward) on a window of stored states."""
    head, mask = build_head(spec, MINILM), torch.ones(1, MINILM.tokens, dtype=torch.bool)
    hidden = torch.zeros(1, MINILM.tokens, MINILM.layers, MINILM.width)
    with FlopCounterMode(display=False) as counter:
        head_loss("span", head(hidden, mask), torch.tensor([[1, 2]]), mask).backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops()


def encoder_cost() -> int:
    """Floating-point operations of the encoder's forward pass: projections, feed-forward, attention."""
    width, tokens = MINILM.width, MINILM.tokens
    return 2 * (MINILM.layers - 1) * tokens * (12 * width**2 + 2 * tokens * width)


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        ("ladder:size=64", 0.25),
        ("ladder:size=96", 0.4),
        ("attention", 0.05),
        ("compress:size=64", 0.05),
        ("probe", 0.01),
    ],
)
def test_head_step_costs_a_small_share_of_an_encoder_pass(spec: str, share: float) -> None:
    assert 0 < step_cost(spec) < share * encoder_cost()
