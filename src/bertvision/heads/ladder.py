"""A narrow transformer beside the encoder that takes in one more layer's states at each of its rungs."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import BY_CLS, HEADS, Body, Choices, glorot
from bertvision.heads.layers import SelfAttention


class Rung(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x) of twice the width; 8 d^2 + 11 d parameters."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.before_look, self.look = nn.LayerNorm(size), SelfAttention(size, heads)
        self.before_think = nn.LayerNorm(size)
        self.widen, self.narrow = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.look(self.before_look(x), mask)
        return x + cast(Tensor, self.narrow(F.gelu(self.widen(self.before_think(x)), approximate="tanh")))


@HEADS.register("ladder")
class Ladder(Body):
    """s_k = rung_k((1 - g_k) s_(k-1) + g_k (D_k h_k + d_k)), g = sigmoid(a); then W norm(s_L) + b.

    The text is read anew, from the lowest layer to the highest, at a small part of the encoder's width
    and without ever touching it: for tasks where no single vector of the encoder holds the answer yet.
    With d = size: L (H d + d) + L - 1 + L (8 d^2 + 11 d) + 2 d + o (d + 1) parameters.
    """

    pointwise = False
    common = BY_CLS
    variants = ("size=64", "size=96")
    choices: ClassVar[Choices] = {"size": (32, 64, 96), "heads": (2, 4)}
    shown = ("size",)
    source = "ladder side networks, Sung, Cho, Bansal 2022"

    def __init__(self, shape: Shape, size: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.rungs = nn.ModuleList(Rung(size, heads) for _ in range(shape.layers))
        self.down = nn.ModuleList(nn.Linear(shape.width, size) for _ in range(shape.layers))
        self.gates = nn.Parameter(torch.zeros(shape.layers - 1))
        self.norm = nn.LayerNorm(size)
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = self.rungs[0](self.down[0](hidden[:, :, 0]), mask)  # (batch, tokens, size)
        for number, gate in enumerate(self.gates.sigmoid(), start=1):
            x = torch.lerp(x, self.down[number](hidden[:, :, number]), gate)
            x = self.rungs[number](x, mask)
        return cast(Tensor, self.dense(self.norm(x)))
