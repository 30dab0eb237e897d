"""Inception over tokens: blocks of parallel kernels of several sizes that keep the length of the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.compress import CompressedPool
from bertvision.heads.layers import NormReLU, TokenConv

PARTS = 16


class Block(nn.Module):
    """Four parallel branches, each followed by norm and ReLU: kernels of 1, 3 and 5 tokens, and max pooling over 3.

    They give 4, 8, 2 and 2 sixteenths of the outputs. The three projections in front of the kernels are computed as
    one product. With c input channels and u = out / 16: 13 c u + 3*6*8 u^2 + 5*2 u^2 weights, 2 * 23 u in norms.
    """

    saved_names: ClassVar[Mapping[str, str]] = {
        "project": "narrow",
        "norm1": "narrowed",
        "conv3": "three",
        "norm3": "threed",
        "conv5": "five",
        "norm5": "fived",
        "project_pooled": "pooled",
        "norm_pooled": "pool_normed",
    }

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        u = out // PARTS
        self.sizes = [4 * u, 6 * u, u]  # the branch of one token, and the inputs of the kernels of 3 and 5
        self.project, self.norm1 = nn.Linear(channels, 11 * u, bias=False), NormReLU(11 * u)
        self.conv3, self.norm3 = TokenConv(6 * u, 8 * u, 3), NormReLU(8 * u)
        self.conv5, self.norm5 = TokenConv(u, 2 * u, 5), NormReLU(2 * u)
        self.project_pooled, self.norm_pooled = nn.Linear(channels, 2 * u, bias=False), NormReLU(2 * u)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        narrow, for_three, for_five = self.norm1(self.project(x)).split(self.sizes, dim=-1)
        three = self.norm3(self.conv3(for_three, mask))  # (batch, tokens, 8 u)
        five = self.norm5(self.conv5(for_five, mask))  # (batch, tokens, 2 u)
        padded = F.pad((x * mask[..., None]).transpose(1, 2), (1, 1))  # zero beyond the text, with or without padding
        highest = F.max_pool1d(padded, 3, stride=1).transpose(1, 2)  # (batch, tokens, channels)
        pooled = self.norm_pooled(self.project_pooled(highest))  # (batch, tokens, 2 u)
        return torch.cat([narrow, three, five, pooled], dim=-1)  # (batch, tokens, out)


@HEADS.register("inception")
class Inception(HeadModule):
    """Inception blocks over tokens on a learned pool compressed to 386, then a linear layer per token.

    The blocks do not shorten the text: in the paper, a network that did failed to fit even its training data. The
    paper's layer list is lost; sizes are chosen to meet its budget of 6.68 M parameters. Layer norm replaces batch
    norm (see :class:`NormReLU`). ``size`` is the number of outputs of a block, a multiple of 16. With a = compress:
    L + 1 + H a + a, the blocks (see :class:`Block`) and o (size + 1) parameters. Own design after Jiang, Benge and
    King; Szegedy et al. 2014.
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
            raise BadInput(
                f"head inception: size={size}, blocks={blocks}; expected size a multiple of 16 and blocks at least 1"
            )
        self.front = CompressedPool(shape, compress)
        self.blocks = nn.ModuleList(Block(size if index else compress, size) for index in range(blocks))
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = self.front(hidden)  # (batch, tokens, compress)
        for block in self.blocks:
            x = block(x, mask)  # (batch, tokens, size)
        return cast(Tensor, self.dense(x))

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.normalized_weights()
