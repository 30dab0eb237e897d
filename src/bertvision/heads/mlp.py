"""Two layers with a tanh between them: the larger classifier that Mohebbi & Rajaei put on their adapters."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Body, glorot


@HEADS.register("tanh")
class Tanh(Body):
    """W tanh(V [h_l1; h_l2; ...] + v) + b; (layers * H + 1) * H + (H + 1) * outputs parameters.

    As wide inside as a state: on the pooled CLS of BERT-base V has 590,592 parameters.
    """

    variants = ("layers=last1",)
    source = "Mohebbi & Rajaei"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inside = glorot(nn.Linear(shape.layers * shape.width, shape.width))
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        inside = torch.tanh(self.inside(states.flatten(-2)))  # (..., layers, width) -> (..., width)
        return cast(Tensor, self.dense(inside))  # (..., outputs)
