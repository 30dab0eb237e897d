"""Context-aware convolution: the filters are generated from each text and applied to it."""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.layer_pool import LayerPool
from bertvision.heads.layers import TokenConv

KERNELS = (1, 3, 5)


class ContextFilters(nn.Module):
    """Filters from one vector: c = max_t relu(C_n * x)_t for n = 1, 3, 5; r kernels of three run along c.

    The outputs of the r kernels are concatenated and truncated to the size of the filters, so that few weights
    generate many: (1 + 3 + 5) H f + 3 f + 4 r parameters with r = ceil(needed / 3 f).
    """

    def __init__(self, width: int, size: int, needed: int) -> None:
        super().__init__()
        self.kernels = nn.ModuleList(TokenConv(width, size, taps, bias=True) for taps in KERNELS)
        self.grow = nn.Conv1d(1, -(-needed // (size * len(KERNELS))), 3, padding=1)
        self.needed = needed

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        maps = torch.cat([kernel(x, mask) for kernel in self.kernels], dim=-1)  # (batch, tokens, 3 size)
        context = (F.relu(maps) * mask[..., None]).amax(1)  # (batch, 3 size)
        return cast(Tensor, self.grow(context[:, None]).flatten(1)[:, : self.needed])  # (batch, needed)


class FeatureMapFilters(nn.Module):
    """Filters straight from feature maps: tanh(C * x), averaged over equal stretches of the text.

    A map must be as wide as a state to be a filter, hence taps H^2 + H parameters.
    """

    def __init__(self, width: int, taps: int, needed: int) -> None:
        super().__init__()
        self.kernel = TokenConv(width, width, taps, bias=True)
        self.pieces = needed // width

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        maps = self.kernel(x, mask).tanh()  # (batch, tokens, width)
        return torch.bmm(self._stretches(mask).to(x.dtype), maps).flatten(1)  # (batch, pieces * width)

    def _stretches(self, mask: Tensor) -> Tensor:
        """(batch, pieces, tokens): the weight of each token in each of the equal pieces, which overlap if need be."""
        length = mask.sum(1)[:, None, None]  # (batch, 1, 1)
        piece = torch.arange(self.pieces, device=mask.device)[:, None]
        token = torch.arange(mask.shape[1], device=mask.device)
        start, end = piece * length // self.pieces, -(-(piece + 1) * length // self.pieces)  # (batch, pieces, 1)
        return ((token >= start) & (token < end)) / (end - start)


@HEADS.register("context-conv")
class ContextConv(HeadModule):
    """W relu(F(x) * x + c) + b: F(x) are filters of ``taps`` tokens that the text x itself makes.

    With ``context`` the filters come from one vector for the whole text, without it from feature maps of
    parts of the text. Over several layers x is their learned pool (L + 1 parameters); ``layers=last1`` is
    the encoder's output, as published. Filters are divided by sqrt(taps * H), so that what they give
    keeps the scale of states. Published sizes are lost, these are our own. Beside the filters' own:
    m + o (m + 1) parameters with m = maps.
    """

    pointwise = False
    shared_options = MEAN_SEQUENCE_OPTIONS
    variants = ("layers=last1", "context=false,layers=last1", "")
    choices: ClassVar[Choices] = {
        "size": (16, 32, 64),
        "maps": (4, 8, 16),
        "taps": (3, 5),
        "context": (True, False),
    }
    source = "Hulburd: BERT on SQuAD 2.0, context-aware CNN, after Shen et al. 2017"

    def __init__(self, shape: Shape, size: int = 64, maps: int = 16, taps: int = 3, context: bool = True) -> None:
        super().__init__()
        if min(size, maps, taps) < 1:
            raise BadInput(f"head context-conv: size={size}, maps={maps}, taps={taps}, expected at least 1 each")
        self.maps, self.taps = maps, taps
        self.pool = LayerPool(shape.layers) if shape.layers > 1 else None  # one layer needs no weights
        needed = maps * taps * shape.width
        self.make = (
            ContextFilters(shape.width, size, needed) if context else FeatureMapFilters(shape.width, taps, needed)
        )
        self.bias = nn.Parameter(torch.zeros(maps))
        self.dense = glorot(nn.Linear(maps, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = hidden[:, :, 0] if self.pool is None else self.pool(hidden)  # (batch, tokens, width)
        x = x * mask[..., None]
        filters = self.make(x, mask) / math.sqrt(self.taps * x.shape[-1])  # (batch, maps * taps * width)
        return cast(Tensor, self.dense(F.relu(self._convolve(x, filters) + self.bias)))

    def _convolve(self, x: Tensor, filters: Tensor) -> Tensor:
        """Apply each text's own filters: one product for all taps, whose results are shifted and added."""
        kernels = filters.unflatten(1, (self.maps * self.taps, -1))  # (batch, maps * taps, width)
        by_tap = torch.bmm(x, kernels.transpose(1, 2)).unflatten(-1, (self.maps, self.taps))  # (..., maps, taps)
        padded = F.pad(by_tap, (0, 0, 0, 0, (self.taps - 1) // 2, self.taps // 2))  # beyond the text is zero
        tokens = x.shape[1]
        shifted = [padded[:, tap : tap + tokens, :, tap] for tap in range(self.taps)]
        return torch.stack(shifted).sum(0)  # (batch, tokens, maps)

    def layer_weights(self) -> Tensor | None:
        return None if self.pool is None else self.pool.shares()
