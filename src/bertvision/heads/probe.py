"""A linear layer on the concatenated states of the chosen layers: the control head."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, HeadModule, glorot


@HEADS.register("probe")
class Probe(HeadModule):
    """W [h_l1; h_l2; ...] + b; o (L H + 1) parameters.

    The control experiment: ``probe:layers=last1`` is the kind of head that the encoder was tuned with, refitted on
    its last layer, so its gain comes from refitting and not from the other layers.
    """

    variants = ("layers=last1", "layers=last4", "")
    source = "control"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = glorot(nn.Linear(shape.layers * shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.flatten(-2)))  # (..., layers * width) -> (..., outputs)
