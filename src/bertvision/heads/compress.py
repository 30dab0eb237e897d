"""Down-projection ("compression") of states, then a linear layer: of every layer, of their pool, or of both."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot
from bertvision.heads.layer_pool import LayerPool


def down_projection(width: int, size: int) -> nn.Linear:
    """The projection of a state in the papers, with initial weights near zero."""
    if size < 1:
        raise BadInput(f"compress to {size} features: expected at least 1")
    linear = nn.Linear(width, size)
    nn.init.trunc_normal_(linear.weight, std=1e-3, a=-2e-3, b=2e-3)
    nn.init.zeros_(linear.bias)
    return linear


class CompressedPool(nn.Module):
    """gelu(D pool(h_1 .. h_L) + d), (..., layers, width) to (..., size): the first part of several heads."""

    def __init__(self, shape: Shape, size: int, pool: str = "learned") -> None:
        super().__init__()
        self.pool = LayerPool(shape.layers, pool)
        self.down = down_projection(shape.width, size)

    def forward(self, states: Tensor) -> Tensor:
        return F.gelu(self.down(self.pool(states)), approximate="tanh")


def _dense_with_skip(dense: nn.Linear, features: Tensor, states: Tensor) -> Tensor:
    """W [features; h_L] + b as two products, which avoids a wide concatenation: (..., outputs)."""
    on_features, on_last = dense.weight.split([features.shape[-1], states.shape[-1]], dim=1)
    return F.linear(features, on_features, dense.bias) + F.linear(states[..., -1, :], on_last)


@HEADS.register("compress")
class Compress(HeadModule):
    """W [gelu(D h_1 + d); ...; gelu(D h_L + d)] (+ skip: V h_L) + b.

    Keeps all layers apart, unlike a pool, but at a fraction of the width. D is one projection H -> size for all
    layers, or one per layer with ``shared=false``. ``skip`` adds the uncompressed state of the last layer. With
    a = size: H a + a + o a L + o parameters if shared, L (H a + a) + o a L + o otherwise; skip adds o H. The adapter
    on stored states of Jiang, Benge and King.
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
        if self.skip:
            return _dense_with_skip(self.dense, flat, states)
        return F.linear(flat, self.dense.weight, self.dense.bias)


@HEADS.register("pool-compress")
class PoolCompress(HeadModule):
    """W gelu(D p + d) (+ skip: V h_L) + b with p the learned pool or the mean of all layers.

    One projection per token instead of one per layer makes it L times cheaper than ``compress``. ``skip`` adds the
    uncompressed state of the last layer. With a = size: H a + a + o a + o parameters; a learned pool adds L + 1,
    skip adds o H. Pooling followed by an adapter, Jiang, Benge and King.
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
        if self.skip:
            return _dense_with_skip(self.dense, compressed, states)
        return F.linear(compressed, self.dense.weight, self.dense.bias)

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.normalized_weights()


@HEADS.register("compress-twice")
class CompressTwice(HeadModule):
    """W [gelu(D h_1 + d); ...; gelu(D h_L + d); gelu(E p + e)] + b with p the learned pool of all layers.

    Combines ``compress`` and ``pool-compress``. The paper describes compress 386 "with skip and Tenney pooling"; its
    layer list is lost, but the published size, 0.242 % of BERT-large, leaves room for two projections of 386, one of
    them of the pool. With a = size: 2 (H a + a) + L + 1 + o a (L + 1) + o parameters. Own design after Jiang, Benge
    and King.
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
        # W [flat; pooled] as two products, which avoids a wide concatenation.
        on_flat, on_pooled = self.dense.weight.split([flat.shape[-1], pooled.shape[-1]], dim=1)
        return F.linear(flat, on_flat, self.dense.bias) + F.linear(pooled, on_pooled)

    def layer_weights(self) -> Tensor | None:
        return self.pooled.pool.normalized_weights()
