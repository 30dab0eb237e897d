"""Context-aware convolution: filters are generated from each text and applied to it."""

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
    """Generate filters from one vector per text: c = max_t relu(C_n * x)_t for n = 1, 3, 5.

    r kernels of length 3 are applied along c, and their outputs concatenated and truncated to the size of the
    filters, so that few weights generate many: (1 + 3 + 5) H f + 3 f + 4 r parameters with r = ceil(needed / 3 f).
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
    """Generate filters from feature maps: tanh(C * x), averaged over equal segments of the text.

    A feature map is as wide as a state, because it is used as a filter on states: taps H^2 + H parameters.
    """

    def __init__(self, width: int, taps: int, needed: int) -> None:
        super().__init__()
        self.kernel = TokenConv(width, width, taps, bias=True)
        self.segments = needed // width

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        maps = self.kernel(x, mask).tanh()  # (batch, tokens, width)
        return torch.bmm(self._segment_weights(mask).to(x.dtype), maps).flatten(1)  # (batch, segments * width)

    def _segment_weights(self, mask: Tensor) -> Tensor:
        """Weight of each token in each segment, (batch, segments, tokens); segments overlap in short texts."""
        length = mask.sum(1)[:, None, None]  # (batch, 1, 1)
        segment = torch.arange(self.segments, device=mask.device)[:, None]
        token = torch.arange(mask.shape[1], device=mask.device)
        start, end = (
            segment * length // self.segments,
            -(-(segment + 1) * length // self.segments),
        )  # (batch, segments, 1)
        return ((token >= start) & (token < end)) / (end - start)


@HEADS.register("context-conv")
class ContextConv(HeadModule):
    """W relu(F(x) * x + c) + b, where F(x) are filters of ``taps`` tokens generated from the text x.

    Filters that depend on the text can respond to its question, unlike the fixed ones of a CNN. With ``context`` they
    are generated from one vector per text, otherwise from feature maps of segments of the text. x is the learned
    pool of several layers (L + 1 parameters) or, as published, the last layer with ``layers=last1``. Filters are
    divided by sqrt(taps * H), so that their outputs have the scale of states. With m = maps: m + o (m + 1)
    parameters besides those that generate the filters. The published sizes are lost, these are our own. Hulburd,
    after Shen et al. 2017.
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
        """Apply each text's filters: one product for all taps, whose results are shifted and summed."""
        kernels = filters.unflatten(1, (self.maps * self.taps, -1))  # (batch, maps * taps, width)
        by_tap = torch.bmm(x, kernels.transpose(1, 2)).unflatten(-1, (self.maps, self.taps))  # (..., maps, taps)
        padded = F.pad(by_tap, (0, 0, 0, 0, (self.taps - 1) // 2, self.taps // 2))  # zero beyond the text
        tokens = x.shape[1]
        shifted = [padded[:, tap : tap + tokens, :, tap] for tap in range(self.taps)]
        return torch.stack(shifted).sum(0)  # (batch, tokens, maps)

    def layer_weights(self) -> Tensor | None:
        return None if self.pool is None else self.pool.normalized_weights()
