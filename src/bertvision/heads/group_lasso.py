"""Feature selection over all layers: group lasso by proximal steps, which yield exact zeros."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule


@HEADS.register("select")
class Select(HeadModule):
    """W [h_1; ...; h_L] + b with the penalty strength * sum_(l,i) |W_(:,l,i)|; o (L H + 1) parameters.

    Selects useful features from all layers instead of weighting whole layers. A group holds the weights of feature i
    of layer l for all outputs. After each optimiser step with learning rate r, every group's norm is reduced by
    r * strength, and groups below that become zero. Adam moves a weight by about r times the agreement of its
    gradients, so ``strength`` is the agreement below which a feature is dropped, independent of its scale.
    Head2Toe, Evci et al. 2022; group lasso, Yuan and Lin 2006.
    """

    always_in_spec = ("strength",)
    variants = ("strength=0.5", "strength=1.0")
    choices: ClassVar[Choices] = {"strength": (0.1, 0.25, 0.5, 1.0, 2.0)}
    source = "Head2Toe, Evci et al. 2022; group lasso, Yuan, Lin 2006"

    def __init__(self, shape: Shape, strength: float = 0.5) -> None:
        super().__init__()
        if not strength >= 0:
            raise BadInput(f"head select: strength={strength}, expected at least 0")
        self.strength = strength
        self.weight = nn.Parameter(torch.empty(shape.outputs, shape.layers, shape.width).normal_(std=1e-3))
        self.bias = nn.Parameter(torch.zeros(shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return F.linear(states.flatten(-2), self.weight.flatten(1), self.bias)  # (..., outputs)

    @torch.no_grad()
    def after_step(self, lr: float) -> None:
        norms = self.weight.norm(dim=0).clamp_min(1e-12)  # (layers, width)
        self.weight.mul_((1 - lr * self.strength / norms).clamp_min(0))

    def layer_weights(self) -> Tensor:
        by_layer = self.weight.detach().norm(dim=0).sum(1)  # (layers,)
        return by_layer / by_layer.sum() if by_layer.sum() > 0 else torch.full_like(by_layer, 1 / len(by_layer))
