"""Pooling over layers, then one linear layer: the papers' smallest heads."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from bertvision.heads.base import HEADS, Body, glorot
from bertvision.records import Shape


@HEADS.register("learned-pool")
class LearnedPool(Body):
    """gamma * sum_l softmax(w)_l h_l, then a linear layer; L + 1 + outputs * (H + 1) parameters.

    Pool and linear layer commute, so the linear layer goes first: pooling two numbers a layer
    instead of H makes the head almost free. gamma lets the pooled state leave the states' scale.
    """

    source = "Jiang, Benge, King: BERTVision, learned pooling after Tenney et al. 2019"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(shape.layers).normal_(std=0.05))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        scores = states @ self.dense.weight.T  # (..., layers, outputs)
        mix = self.gamma * self.weights.softmax(0)  # (layers,)
        return torch.einsum("l,...lo->...o", mix, scores) + self.dense.bias

    def layer_weights(self) -> Tensor:
        return self.weights.detach().softmax(0)


@HEADS.register("mean-pool")
class MeanPool(Body):
    """Mean over layers, then a linear layer; outputs * (H + 1) parameters."""

    source = "Jiang, Benge, King: BERTVision, average pooling"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.mean(-2)))
