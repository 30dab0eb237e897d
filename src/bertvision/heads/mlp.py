"""Two linear layers with a tanh between them: the larger classifier of Mohebbi & Rajaei."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, HeadModule, glorot


@HEADS.register("tanh")
class Tanh(HeadModule):
    """W tanh(V [h_l1; h_l2; ...] + v) + b; (layers * H + 1) * H + (H + 1) * outputs parameters.

    The hidden layer is as wide as a state: on the pooled CLS of BERT-base V has 590,592 parameters.
    """

    variants = ("layers=last1",)
    source = "Mohebbi & Rajaei"
    saved_names: ClassVar[Mapping[str, str]] = {"hidden": "inside"}

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.hidden = glorot(nn.Linear(shape.layers * shape.width, shape.width))
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        hidden = torch.tanh(self.hidden(states.flatten(-2)))  # (..., layers, width) -> (..., width)
        return cast(Tensor, self.dense(hidden))  # (..., outputs)
