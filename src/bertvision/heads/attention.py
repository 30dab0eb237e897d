"""Attention over the layers of each token, then over the tokens of the text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import CLS_SEQUENCE_OPTIONS, HEADS, Choices, HeadModule, glorot
from bertvision.heads.compress import down_projection
from bertvision.heads.layers import SelfAttention


@HEADS.register("attention")
class Attention(HeadModule):
    """v_t = sum_l softmax_l(u z_tl / sqrt(d) + c_l) z_tl, z = gelu(D h + e); W norm(v + attn(norm v)) + b.

    A learned pool gives each layer the same weight for all tokens; here every token weights its layers by their
    content and then attends to the other tokens. With d = size: H d + d + d + L + 4 (d^2 + d) + 4 d + o (d + 1)
    parameters. Own design.
    """

    pointwise = False
    shared_options = CLS_SEQUENCE_OPTIONS
    variants = ("size=64",)
    choices: ClassVar[Choices] = {"size": (16, 32, 64, 128), "heads": (1, 2, 4, 8)}
    always_in_spec = ("size",)
    source = "own design: attention over layers and tokens"
    saved_names: ClassVar[Mapping[str, str]] = {
        "query": "asked",
        "layer_bias": "liked",
        "norm1": "before",
        "attn": "look",
        "norm2": "after",
    }

    def __init__(self, shape: Shape, size: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.down = down_projection(shape.width, size)
        self.query = nn.Parameter(torch.empty(size).normal_())
        self.layer_bias = nn.Parameter(torch.zeros(shape.layers))
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(size), SelfAttention(size, heads), nn.LayerNorm(size)
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        z = F.gelu(self.down(hidden), approximate="tanh")  # (batch, tokens, layers, size)
        scores = z @ self.query / math.sqrt(len(self.query)) + self.layer_bias  # (batch, tokens, layers)
        v = (scores.softmax(-1)[..., None, :] @ z).squeeze(-2)  # (batch, tokens, size)
        v = v + self.attn(self.norm1(v), mask)
        return cast(Tensor, self.dense(self.norm2(v)))  # (batch, tokens, outputs)
