"""Down-projection of every layer's state, then one linear layer over all of them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot


@HEADS.register("compress")
class Compress(HeadModule):
    """W [gelu(D h_1 + d); ...; gelu(D h_L + d)] (+ skip: V h_L) + b.

    D is one projection H -> size for all layers, or with ``shared=false`` one per layer. Skip puts
    the last layer's state beside the compressed ones. With size a, outputs o:
    shared H*a + a + o*a*L + o, per layer L*(H*a + a) + o*a*L + o, skip + o*H parameters.
    """

    variants = tuple(
        f"size={size}{shared}{skip}"
        for size in (16, 64, 386)
        for shared in ("", ",shared=false")
        for skip in ("", ",skip=true")
    )
    choices: ClassVar[Choices] = {
        "size": (8, 16, 32, 64, 128, 256, 386),
        "shared": (True, False),
        "skip": (False, True),
    }
    always_in_spec = ("size",)
    source = "Jiang, Benge, King: BERTVision, adapter on stored states"

    def __init__(self, shape: Shape, size: int = 64, shared: bool = True, skip: bool = False) -> None:
        super().__init__()
        if size < 1:
            raise BadInput(f"head compress: size={size}, expected at least 1")
        kernels = 1 if shared else shape.layers
        self.down = nn.Parameter(torch.empty(kernels, shape.width, size))
        self.bias = nn.Parameter(torch.zeros(kernels, 1, size))
        nn.init.trunc_normal_(self.down, std=1e-3, a=-2e-3, b=2e-3)
        self.skip = skip
        features = size * shape.layers + shape.width * skip
        self.dense = glorot(nn.Linear(features, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        if len(self.down) == 1:
            projected = F.linear(states, self.down[0].T, self.bias[0, 0])  # (..., layers, size)
        else:
            projected = torch.einsum("...lw,lws->...ls", states, self.down) + self.bias[:, 0]
        flat = F.gelu(projected, approximate="tanh").flatten(-2)  # (..., layers * size)
        if not self.skip:
            return F.linear(flat, self.dense.weight, self.dense.bias)
        # W [flat; last] as two products, to avoid the wide concatenation.
        on_flat, on_last = self.dense.weight.split([flat.shape[-1], states.shape[-1]], dim=1)
        return F.linear(flat, on_flat, self.dense.bias) + F.linear(states[..., -1, :], on_last)


def down_projection(width: int, size: int) -> nn.Linear:
    """The papers' projection of a state, with initial weights near zero."""
    if size < 1:
        raise BadInput(f"compress to {size} numbers: expected at least 1")
    linear = nn.Linear(width, size)
    nn.init.trunc_normal_(linear.weight, std=1e-3, a=-2e-3, b=2e-3)
    nn.init.zeros_(linear.bias)
    return linear
