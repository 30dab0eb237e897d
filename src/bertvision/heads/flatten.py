"""Down-projection of every token and layer, concatenated: the head of the papers' GLUE experiments."""

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
    """sum_t sum_l W_tl gelu(D h_tl + d) + b: separate weights for every position in the text.

    Lets a text's label depend on all of its tokens, not only on CLS. With a = size and T the maximum window length:
    H a + a + T a L o + o parameters. Initialisation (torch's default) and the exact GELU are those of the AP_GLUE
    head in the BERTVision repository; unlike there, padding is masked.
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
            raise BadInput(f"head flatten was made for texts of at most {self.tokens} tokens, got a longer one")
        compressed = F.gelu(self.down(hidden[:, :tokens]))  # (batch, tokens, layers, size)
        flat = (compressed * mask[:, :tokens, None, None]).flatten(1)  # (batch, tokens * layers * size)
        return F.linear(flat, self.dense.weight[:, : flat.shape[1]], self.dense.bias)  # (batch, outputs)
