"""Ladder side network: a narrow transformer whose every block mixes in the states of one more layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import CLS_SEQUENCE_OPTIONS, HEADS, Choices, HeadModule, glorot
from bertvision.heads.layers import SelfAttention


class LadderBlock(nn.Module):
    """Pre-norm transformer block with a feed-forward layer of twice the width; 8 d^2 + 11 d parameters."""

    saved_names: ClassVar[Mapping[str, str]] = {
        "norm1": "before_look",
        "attn": "look",
        "norm2": "before_think",
        "fc1": "widen",
        "fc2": "narrow",
    }

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(size), SelfAttention(size, heads)
        self.norm2 = nn.LayerNorm(size)
        self.fc1, self.fc2 = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), mask)  # (batch, tokens, size)
        return x + cast(Tensor, self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh")))


@HEADS.register("ladder")
class Ladder(HeadModule):
    """s_k = block_k((1 - g_k) s_(k-1) + g_k (D_k h_k + d_k)), g = sigmoid(a); then W norm(s_L) + b.

    Processes the text again, from the lowest layer to the highest, at a fraction of the encoder's width and without
    backpropagation through the encoder: for tasks where no single state contains the answer.
    With d = size: L (H d + d) + L - 1 + L (8 d^2 + 11 d) + 2 d + o (d + 1) parameters. Ladder side-tuning, Sung, Cho
    and Bansal 2022.
    """

    pointwise = False
    shared_options = CLS_SEQUENCE_OPTIONS
    variants = ("size=64", "size=96")
    choices: ClassVar[Choices] = {"size": (32, 64, 96), "heads": (2, 4)}
    always_in_spec = ("size",)
    source = "ladder side networks, Sung, Cho, Bansal 2022"

    def __init__(self, shape: Shape, size: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.rungs = nn.ModuleList(LadderBlock(size, heads) for _ in range(shape.layers))
        self.down = nn.ModuleList(nn.Linear(shape.width, size) for _ in range(shape.layers))
        self.gates = nn.Parameter(torch.zeros(shape.layers - 1))
        self.norm = nn.LayerNorm(size)
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = self.rungs[0](self.down[0](hidden[:, :, 0]), mask)  # (batch, tokens, size)
        for layer, gate in enumerate(self.gates.sigmoid(), start=1):
            x = torch.lerp(x, self.down[layer](hidden[:, :, layer]), gate)
            x = self.rungs[layer](x, mask)
        return cast(Tensor, self.dense(self.norm(x)))
