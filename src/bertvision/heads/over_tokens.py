"""Convolution over the tokens of a text: what lies beyond the text counts as zero, the length is kept."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class OverTokens(nn.Module):
    """(batch, tokens, channels) -> (batch, tokens, out) with a kernel of ``taps`` tokens.

    Padding is set to zero first, so that a padded text and one that ends there are the same. No bias
    where a norm follows; ``groups=channels`` is the depthwise half of a separable convolution.
    """

    def __init__(self, channels: int, out: int, taps: int, groups: int = 1, bias: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, out, taps, groups=groups, bias=bias)
        self.around = ((taps - 1) // 2, taps // 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        inside = (x * mask[..., None]).transpose(1, 2)  # (batch, channels, tokens)
        out: Tensor = self.conv(F.pad(inside, self.around))  # (batch, out, tokens)
        return out.transpose(1, 2)


class Normed(nn.Module):
    """Layer norm over a token's channels, then ReLU.

    In the place of the batch norm of image networks, with as many parameters: it looks at one token
    alone, so neither padding nor the other texts of a batch can change a result.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x))
