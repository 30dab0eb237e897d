"""Every layer compressed, and also their learned pool."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot
from bertvision.heads.compress import down_projection
from bertvision.heads.pool_compress import CompressedPool


@HEADS.register("compress-twice")
class CompressTwice(HeadModule):
    """W [gelu(D h_1 + d); ...; gelu(D h_L + d); gelu(E p + e)] + b with p the learned pool of all layers.

    The paper's compress 386 "with skip and Tenney pooling". Its layer list is lost; the published
    0.242 % of BERT-large leaves room for two projections of 386, one of them of the pool, which is what
    this is. 2 (H*a + a) + L + 1 + o*a*(L + 1) + o parameters.
    """

    variants = ("size=386",)
    choices: ClassVar[Choices] = {"size": (16, 64, 128, 386)}
    always_in_spec = ("size",)
    source = "own design after Jiang, Benge, King: adapter 386 + skip + Tenney pooling"

    def __init__(self, shape: Shape, size: int = 386) -> None:
        super().__init__()
        self.down = down_projection(shape.width, size)
        self.pooled = CompressedPool(shape, size)
        self.dense = glorot(nn.Linear(size * (shape.layers + 1), shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        flat = F.gelu(self.down(states), approximate="tanh").flatten(-2)  # (..., layers * size)
        pooled = self.pooled(states)  # (..., size)
        # W [flat; pooled] as two products, to avoid the wide concatenation.
        on_flat, on_pooled = self.dense.weight.split([flat.shape[-1], pooled.shape[-1]], dim=1)
        return F.linear(flat, on_flat, self.dense.bias) + F.linear(pooled, on_pooled)

    def layer_weights(self) -> Tensor | None:
        return self.pooled.pool.shares()
