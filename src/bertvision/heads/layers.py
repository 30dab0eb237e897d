"""Building blocks that several heads share: self-attention, linear maps of all layers, convolutions over tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput


class SelfAttention(nn.Module):
    """Multi-head self-attention with masked padding on (batch, tokens, size); 4 (d^2 + d) parameters."""

    saved_names: ClassVar[Mapping[str, str]] = {"qkv": "inward", "proj": "outward"}

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        if size < 1 or heads < 1 or size % heads:
            raise BadInput(f"self-attention of size={size} with heads={heads}: expected a multiple of heads")
        self.heads = heads
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (batch, tokens, 3, heads, size / heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, size / heads)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        return cast(Tensor, self.proj(attended.transpose(1, 2).flatten(-2)))  # (batch, tokens, size)


@dataclass(frozen=True)
class LayerRows:
    """The linear map sum_l mix_l (W h_l) + b, whose rows can be stacked with those of other heads.

    Reading the states dominates the time of the product: sixteen rows take about as long as two. Therefore the rows
    of several heads are computed at once.
    """

    weight: Tensor  # (rows, width)
    mix: Tensor  # (layers, rows)
    bias: Tensor  # (rows,)

    def __len__(self) -> int:
        return len(self.weight)

    def of(self, states: Tensor) -> Tensor:
        """(..., layers, width) -> (..., rows)."""
        scores = states @ self.weight.T  # (..., layers, rows)
        return (scores * self.mix).sum(-2) + self.bias


def stack_rows(parts: Sequence[LayerRows], rows: int) -> LayerRows:
    """Concatenate rows and pad with zeros to a fixed number, so that a head's result does not depend on the others."""
    first, missing = parts[0], rows - sum(len(part) for part in parts)
    weight = torch.cat([*(part.weight for part in parts), first.weight.new_zeros(missing, first.weight.shape[1])])
    mix = torch.cat([*(part.mix for part in parts), first.mix.new_zeros(len(first.mix), missing)], dim=1)
    return LayerRows(weight, mix, torch.cat([*(part.bias for part in parts), first.bias.new_zeros(missing)]))


class TokenConv(nn.Module):
    """Convolution over tokens, (batch, tokens, channels) to (batch, tokens, out), with kernels of ``taps`` tokens.

    Padding is set to zero first, so that its amount does not change the result. Leave out the bias if a norm
    follows; ``groups=channels`` is the depthwise part of a separable convolution.
    """

    def __init__(self, channels: int, out: int, taps: int, groups: int = 1, bias: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, out, taps, groups=groups, bias=bias)
        self.padding = ((taps - 1) // 2, taps // 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        masked = (x * mask[..., None]).transpose(1, 2)  # (batch, channels, tokens)
        out: Tensor = self.conv(F.pad(masked, self.padding))  # (batch, out, tokens)
        return out.transpose(1, 2)


class NormReLU(nn.Module):
    """Layer norm over the channels of a token, then ReLU.

    Replaces the batch norm of image networks and has as many parameters. It depends on one token only, so neither
    padding nor the other texts of a batch change the result.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x))
