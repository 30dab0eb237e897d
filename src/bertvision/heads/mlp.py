"""Two linear layers with a tanh between them: the larger classifier of Mohebbi and Rajaei."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, HeadModule, glorot


@HEADS.register("tanh")
class Tanh(HeadModule):
    """W tanh(V [h_l1; h_l2; ...] + v) + b; (L H + 1) H + o (H + 1) parameters.

    Like BERT's pooler and classifier, but trained on stored states: shows what a nonlinear layer adds to a probe.
    The hidden layer is as wide as a state, so V and v on one layer of BERT-base have 590,592 parameters. Larger
    classifier of Mohebbi and Rajaei.
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
