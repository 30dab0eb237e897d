"""Pooling over layers, then one down-projection: compress for the price of a single layer."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot
from bertvision.heads.compress import down_projection
from bertvision.heads.layer_pool import LayerPool


class CompressedPool(nn.Module):
    """gelu(D pool(h_1 .. h_L) + d): (..., layers, width) -> (..., size). The first part of several heads."""

    def __init__(self, shape: Shape, size: int, pool: str = "learned") -> None:
        super().__init__()
        self.pool = LayerPool(shape.layers, pool)
        self.down = down_projection(shape.width, size)

    def forward(self, states: Tensor) -> Tensor:
        return F.gelu(self.down(self.pool(states)), approximate="tanh")


@HEADS.register("pool-compress")
class PoolCompress(HeadModule):
    """W gelu(D p + d) (+ skip: V h_L) + b with p the learned pool or the mean of all layers.

    Skip puts the last layer's state beside the compressed one. H*a + a + o*a + o parameters, a learned
    pool + L + 1, skip + o*H: one projection a token instead of one a layer, so L times cheaper than
    ``compress``.
    """

    variants = (
        "size=386",
        "size=386,skip=true",
        "size=386,pool=mean,skip=true",
        "size=386,skip=true,pooled=true",
        "size=386,pool=mean,skip=true,pooled=true",
    )
    choices: ClassVar[Choices] = {
        "size": (16, 64, 128, 386),
        "pool": ("learned", "mean"),
        "skip": (False, True),
    }
    always_in_spec = ("size",)
    source = "Jiang, Benge, King: BERTVision, pooling then adapter"

    def __init__(self, shape: Shape, size: int = 386, pool: str = "learned", skip: bool = False) -> None:
        super().__init__()
        self.front = CompressedPool(shape, size, pool)
        self.dense = glorot(nn.Linear(size + shape.width * skip, shape.outputs))
        self.skip = skip

    def forward(self, states: Tensor) -> Tensor:
        compressed = self.front(states)  # (..., size)
        if not self.skip:
            return F.linear(compressed, self.dense.weight, self.dense.bias)
        # W [compressed; last] as two products, to avoid the wide concatenation.
        on_compressed, on_last = self.dense.weight.split([compressed.shape[-1], states.shape[-1]], dim=1)
        return F.linear(compressed, on_compressed, self.dense.bias) + F.linear(states[..., -1, :], on_last)

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.shares()
