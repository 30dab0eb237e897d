"""Inception over tokens: blocks of parallel kernels of several sizes, which keep the length."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.layers import NormReLU, TokenConv
from bertvision.heads.pool_compress import CompressedPool

PARTS = 16


class Block(nn.Module):
    """[1; 1 -> 3; 1 -> 5; max of 3 -> 1] in parallel, norm and ReLU after each; 4 + 8 + 2 + 2 sixteenths.

    The three narrowing products are computed as one. With in = c and u = out / 16 the block has
    13 c u + 3*6*8 u^2 + 5*2 u^2 weights and 2 * 23 u of norms.
    """

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        u = out // PARTS
        self.sizes = [4 * u, 6 * u, u]
        self.narrow, self.narrowed = nn.Linear(channels, 11 * u, bias=False), NormReLU(11 * u)
        self.three, self.threed = TokenConv(6 * u, 8 * u, 3), NormReLU(8 * u)
        self.five, self.fived = TokenConv(u, 2 * u, 5), NormReLU(2 * u)
        self.pooled, self.pool_normed = nn.Linear(channels, 2 * u, bias=False), NormReLU(2 * u)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        single, for_three, for_five = self.narrowed(self.narrow(x)).split(self.sizes, dim=-1)
        three = self.threed(self.three(for_three, mask))  # (batch, tokens, 8 u)
        five = self.fived(self.five(for_five, mask))  # (batch, tokens, 2 u)
        padded = F.pad((x * mask[..., None]).transpose(1, 2), (1, 1))  # zero beyond the text, padded or not
        highest = F.max_pool1d(padded, 3, stride=1).transpose(1, 2)  # (batch, tokens, channels)
        return torch.cat([single, three, five, self.pool_normed(self.pooled(highest))], dim=-1)  # (batch, tokens, out)


@HEADS.register("inception")
class Inception(HeadModule):
    """Inception blocks over tokens on a learned pool compressed to 386, then a linear layer per token.

    The length of the text never shrinks; the paper saw a shrinking one fail to fit even its training
    data. Its layer list is lost, sizes meet its budget of 6.68 M. Layer norm takes the place of batch
    norm (see Normed). ``size`` is what a block gives, a multiple of 16; blocks as counted at Block.
    """

    pointwise = False
    shared_options = MEAN_SEQUENCE_OPTIONS
    variants = ("size=896",)
    choices: ClassVar[Choices] = {
        "size": (112, 224, 448, 896),
        "compress": (64, 128, 386),
        "blocks": (2, 4, 6),
    }
    always_in_spec = ("size",)
    source = "own design after Jiang, Benge, King: LP, adapter 386, Inception (Szegedy et al. 2014)"

    def __init__(self, shape: Shape, size: int = 896, compress: int = 386, blocks: int = 6) -> None:
        super().__init__()
        if size < PARTS or size % PARTS or blocks < 1:
            raise BadInput(f"head inception: size={size}, blocks={blocks}; expected a multiple of 16, and at least 1")
        self.front = CompressedPool(shape, compress)
        self.blocks = nn.ModuleList(Block(size if index else compress, size) for index in range(blocks))
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = self.front(hidden)  # (batch, tokens, compress)
        for block in self.blocks:
            x = block(x, mask)  # (batch, tokens, size)
        return cast(Tensor, self.dense(x))

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.shares()
