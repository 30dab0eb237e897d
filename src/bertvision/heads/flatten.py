"""Every token of every layer compressed and concatenated: the head of the GLUE experiments."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, LAYERS_OPTION, Choices, HeadModule


@HEADS.register("flatten")
class Flatten(HeadModule):
    """sum_t sum_l W_tl gelu(D h_tl + d) + b: weights of their own for each place in the text.

    H*a + a + T*a*L*o + o parameters with T the longest window. Starts as torch starts linear layers, and
    GELU is the exact one, as in the original. Unlike there, padding counts as nothing.
    """

    pointwise = False
    supports_spans = False
    shared_options = LAYERS_OPTION
    variants = ("size=16", "size=128")
    choices: ClassVar[Choices] = {"size": (4, 8, 16, 32, 64)}
    always_in_spec = ("size",)
    source = "BERTVision repository, AP_GLUE"

    def __init__(self, shape: Shape, size: int = 16) -> None:
        super().__init__()
        if size < 1:
            raise BadInput(f"head flatten: size={size}, expected at least 1")
        self.tokens = shape.tokens
        self.down = nn.Linear(shape.width, size)
        self.dense = nn.Linear(shape.tokens * shape.layers * size, shape.outputs)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        tokens = min(hidden.shape[1], self.tokens)
        if mask.shape[1] > self.tokens and bool(torch.any(mask[:, self.tokens :])):
            raise BadInput(f"head flatten was made for texts of at most {self.tokens} tokens; these are longer")
        compressed = F.gelu(self.down(hidden[:, :tokens]))  # (batch, tokens, layers, size)
        flat = (compressed * mask[:, :tokens, None, None]).flatten(1)  # (batch, tokens * layers * size)
        return F.linear(flat, self.dense.weight[:, : flat.shape[1]], self.dense.bias)  # (batch, outputs)
