"""Convolutions within a token: 1xN kernels along the width of its states, not along the text."""

from __future__ import annotations

from typing import ClassVar, cast

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot
from bertvision.heads.compress import CompressedPool
from bertvision.heads.layer_pool import LayerPool

STEM, TAPS = 16, 4


@HEADS.register("token-cnn")
class TokenCnn(HeadModule):
    """Three 1xN convolutions with layers as channels, each followed by GELU, then a linear layer; per token.

    Treats the states of a token like an image, so that all layers are combined before the width is reduced. The
    strides of the kernels of 16, 4 and 4 equal their lengths, so each convolution is one matrix product; dilated
    kernels read features that are a 16th or a 4th of the width apart instead of adjacent ones. Channels are size,
    2 size and 3 size. ``pool`` reduces the layers to one channel, and ``compress`` then shortens it.

    With c = size, C input layers (1 after a pool) and P = ceil(width / 256) remaining positions:
    32 c^2 + (16 C + 6) c + 3 c P o + o parameters; a learned pool adds L + 1, compress = a adds H a + a. The layer
    lists of the papers are lost; sizes are chosen to meet their budgets (1xN 332k, dilated 406k, pooled 312k, pooled
    and compressed 694k). Own design after Jiang, Benge and King.
    """

    variants = (
        "size=96",
        "size=96,dropout=0.1",
        "size=106,dilated=true",
        "size=98,pool=learned",
        "size=98,pool=mean",
        "size=96,pool=learned,compress=386",
    )
    choices: ClassVar[Choices] = {
        "size": (24, 48, 96),
        "pool": ("none", "learned", "mean"),
        "dilated": (False, True),
        "dropout": (0.0, 0.1, 0.3),
    }
    always_in_spec = ("size",)
    source = "own design after Jiang, Benge, King: 1xN CNN"

    def __init__(
        self,
        shape: Shape,
        size: int = 96,
        pool: str = "none",
        compress: int = 0,
        dilated: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if size < 1:
            raise BadInput(f"head token-cnn: size={size}, expected at least 1")
        if pool not in ("none", "learned", "mean"):
            raise BadInput(f"head token-cnn: pool={pool}, expected none, learned or mean")
        if compress < 0 or (compress and pool == "none"):
            raise BadInput(f"head token-cnn: compress={compress} needs a pool; add pool=learned or pool=mean")
        if not 0 <= dropout < 1:
            raise BadInput(f"head token-cnn: dropout={dropout}, expected 0 to below 1")
        self.front: LayerPool | CompressedPool | None = None
        if pool != "none":
            self.front = CompressedPool(shape, compress, pool) if compress else LayerPool(shape.layers, pool)
        self.dilated, self.dropout, self.uses_rng = dilated, dropout, dropout > 0
        channels = shape.layers if self.front is None else 1
        self.first = nn.Linear(STEM * channels, size)
        self.second = nn.Linear(TAPS * size, 2 * size)
        self.third = nn.Linear(TAPS * 2 * size, 3 * size)
        positions = -(-(compress or shape.width) // (STEM * TAPS * TAPS))
        self.dense = glorot(nn.Linear(3 * size * positions, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        if self.front is not None:
            states = self.front(states)[..., None, :]  # (..., 1, width or compress)
        x = F.gelu(self.first(self._stem(states)))  # (..., positions, size)
        x = F.gelu(self.second(self._patches(x)))  # (..., positions / 4, 2 size)
        x = F.gelu(self.third(self._patches(x)))  # (..., positions / 16, 3 size)
        flat = F.dropout(x.flatten(-2), self.dropout, self.training)  # (..., features)
        return cast(Tensor, self.dense(flat))

    def _stem(self, states: Tensor) -> Tensor:
        """(..., channels, width) -> (..., positions, channels * 16)."""
        patches: Tensor = _pad_to_multiple(states, -1, STEM).unflatten(-1, (STEM, -1) if self.dilated else (-1, STEM))
        patches = patches.transpose(-2, -1) if self.dilated else patches  # (..., channels, positions, 16)
        return patches.transpose(-3, -2).flatten(-2)

    def _patches(self, x: Tensor) -> Tensor:
        """(..., positions, channels) -> (..., positions / 4, 4 * channels)."""
        patches: Tensor = _pad_to_multiple(x, -2, TAPS).unflatten(-2, (TAPS, -1) if self.dilated else (-1, TAPS))
        patches = patches.transpose(-3, -2) if self.dilated else patches  # (..., positions / 4, 4, channels)
        return patches.flatten(-2)

    def layer_weights(self) -> Tensor | None:
        pool = self.front.pool if isinstance(self.front, CompressedPool) else self.front
        return None if pool is None else pool.normalized_weights()


def _pad_to_multiple(x: Tensor, dim: int, multiple: int) -> Tensor:
    """Pad the end of a dimension with zeros to a multiple; no copy if its length is one already."""
    missing = -x.shape[dim] % multiple
    return F.pad(x, [0, 0] * (-dim - 1) + [0, missing]) if missing else x
