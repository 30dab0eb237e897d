"""Attention over the layers of each token, then over the tokens of the text."""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import BY_CLS, HEADS, Body, Choices, glorot
from bertvision.heads.compress import down_projection
from bertvision.heads.layers import SelfAttention


@HEADS.register("attention")
class Attention(Body):
    """v_t = sum_l softmax_l(u z_tl / sqrt(d) + c_l) z_tl, z = gelu(D h + e); W norm(v + look(norm v)) + b.

    A learned pool gives a layer one weight for all tokens; here each token chooses its layers by what is
    in them, and then looks at the other tokens. H d + d + d + L + 4 (d^2 + d) + 4 d + o (d + 1)
    parameters with d = size.
    """

    pointwise = False
    common = BY_CLS
    variants = ("size=64",)
    choices: ClassVar[Choices] = {"size": (16, 32, 64, 128), "heads": (1, 2, 4, 8)}
    shown = ("size",)
    source = "own design: attention over layers and tokens"

    def __init__(self, shape: Shape, size: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.down = down_projection(shape.width, size)
        self.asked = nn.Parameter(torch.empty(size).normal_())
        self.liked = nn.Parameter(torch.zeros(shape.layers))
        self.before, self.look, self.after = nn.LayerNorm(size), SelfAttention(size, heads), nn.LayerNorm(size)
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        small = F.gelu(self.down(hidden), approximate="tanh")  # (batch, tokens, layers, size)
        scores = small @ self.asked / math.sqrt(len(self.asked)) + self.liked  # (batch, tokens, layers)
        one = (scores.softmax(-1)[..., None, :] @ small).squeeze(-2)  # (batch, tokens, size)
        one = one + self.look(self.before(one), mask)
        return cast(Tensor, self.dense(self.after(one)))
