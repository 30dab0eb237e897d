"""Convolutions over tokens with kernels of one to seven tokens (n-gram features)."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.compress import CompressedPool
from bertvision.heads.layers import TokenConv


@HEADS.register("ngrams")
class Ngrams(HeadModule):
    """W [gelu(C_1 * z)_t; ...; gelu(C_N * z)_t] + b, z = gelu(D pool(h) + d), C_n a kernel of n tokens.

    Adds the neighbouring tokens to each token's features, without shortening the text, which would blur where an
    answer begins. It stands for the paper's NxN network on a learned pool compressed to 386; the layer list is lost,
    and the sizes are chosen to meet its budget of 1.11 M parameters. With a = compress and f = size filters per
    kernel: L + 1 + H a + a + f (a N (N + 1) / 2 + N) + o (N f + 1) parameters. Own design after Jiang, Benge and
    King; kernels of several sizes as in Kim 2014.
    """

    pointwise = False
    shared_options = MEAN_SEQUENCE_OPTIONS
    variants = ("size=64",)
    choices: ClassVar[Choices] = {
        "size": (16, 32, 64),
        "compress": (64, 128, 386),
        "longest": (3, 5, 7),
    }
    always_in_spec = ("size",)
    source = "own design after Jiang, Benge, King: LP, adapter 386, NxN CNN"

    def __init__(self, shape: Shape, size: int = 64, compress: int = 386, longest: int = 7) -> None:
        super().__init__()
        if size < 1 or longest < 1:
            raise BadInput(f"head ngrams: size={size}, longest={longest}, expected at least 1 each")
        self.front = CompressedPool(shape, compress)
        kernels = [TokenConv(compress, size, taps, bias=True) for taps in range(1, longest + 1)]
        self.kernels = nn.ModuleList(kernels)
        self.dense = glorot(nn.Linear(size * longest, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        z = self.front(hidden)  # (batch, tokens, compress)
        grams = torch.cat([kernel(z, mask) for kernel in self.kernels], dim=-1)  # (batch, tokens, size * longest)
        return cast(Tensor, self.dense(F.gelu(grams)))

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.normalized_weights()
