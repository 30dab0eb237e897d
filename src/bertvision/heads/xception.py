"""Xception along the width of a text's states, with layers as channels: the largest heads of the papers."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, Choices, HeadModule, glorot

NARROWEST = 9

# Channels of the blocks, in order.
ABBREVIATED = (64, 128, 256, 512)
FULL = (32, 64, 128, 256, 728, 1024, 1536, 2048)


class Norm(nn.BatchNorm1d):
    """Batch norm over texts and positions; a text is one vector here, so there is no padding to exclude.

    A single value per channel has no variance, so such a batch is normalised by the running statistics.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] * x.shape[2] == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


def conv(channels: int, out: int, taps: int = 3, stride: int = 1) -> nn.Module:
    """Convolution without padding, and batch norm: taps * c * d + 2 d parameters."""
    return nn.Sequential(nn.Conv1d(channels, out, taps, stride, bias=False), Norm(out))


def separable(channels: int, out: int) -> nn.Module:
    """Depthwise kernel of three positions, pointwise convolution, batch norm: 3 c + c d + 2 d parameters."""
    depth = nn.Conv1d(channels, channels, 3, padding=1, groups=channels, bias=False)
    return nn.Sequential(depth, nn.Conv1d(channels, out, 1, bias=False), Norm(out))


class DownsamplingBlock(nn.Module):
    """Two separable convolutions and average pooling with stride 2, plus a strided shortcut."""

    def __init__(self, channels: int, between: int, out: int, relu_first: bool = True) -> None:
        super().__init__()
        self.first, self.second = separable(channels, between), separable(between, out)
        self.shortcut = conv(channels, out, taps=1, stride=2)
        self.relu_first = relu_first

    def forward(self, x: Tensor) -> Tensor:
        deep = self.first(F.relu(x) if self.relu_first else x)
        deep = self.second(F.relu(deep))  # (batch, out, positions)
        deep = F.avg_pool1d(deep, 3, stride=2, padding=1, count_include_pad=False)  # (batch, out, positions / 2)
        return deep + cast(Tensor, self.shortcut(x))


class MiddleBlock(nn.Module):
    """Three times (ReLU, separable convolution), with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.deep = nn.Sequential(*(module for _ in range(3) for module in (nn.ReLU(), separable(channels, channels))))

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.deep(x))


@HEADS.register("xception")
class Xception(HeadModule):
    """Convolutions of 1x3 along the width, the mean over positions (; residual: h_L), then a linear layer.

    Treats the states of one text, (layers, width), like an image; the largest of the papers' heads for labels.
    Abbreviated: conv 64 with stride 3, conv 128, one downsampling block 256 -> 512. ``full``: conv 32 and 64,
    downsampling blocks to 128, 256 and 728, eight middle blocks, downsampling to 1024, separable 1536 and 2048.
    ``residual`` adds the state of the last layer, ``scale`` multiplies all channels. With C input layers and o
    outputs the abbreviated network has 192 C + 258,048 + 513 o parameters, the full one 96 C + 20,655,512 + 2,049 o;
    residual adds o H. These are the published counts. Jiang, Benge and King; Chollet 2016.
    """

    supports_spans = False
    variants = ("", "pooled=true", "residual=true,pooled=true", "full=true,pooled=true")
    choices: ClassVar[Choices] = {"residual": (False, True), "scale": (0.25, 0.5, 1.0)}
    source = "Jiang, Benge, King: BERTVision, Xception on CLS states"

    def __init__(self, shape: Shape, full: bool = False, residual: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        if shape.width < NARROWEST:
            raise BadInput(f"head xception: states of width {shape.width}, expected at least {NARROWEST}")
        if not 0 < scale <= 4:
            raise BadInput(f"head xception: scale={scale}, expected above 0, at most 4")
        sizes = [max(1, round(size * scale)) for size in (FULL if full else ABBREVIATED)]
        self.trunk = _build_trunk(shape.layers, sizes)
        self.residual = residual
        self.dense = glorot(nn.Linear(sizes[-1] + shape.width * residual, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        features = self.trunk(states).mean(-1)  # (batch, layers, width) -> (batch, channels)
        if self.residual:
            features = torch.cat([features, states[..., -1, :]], dim=-1)  # (batch, channels + width)
        return cast(Tensor, self.dense(features))


def _build_trunk(layers: int, sizes: list[int]) -> nn.Module:
    """The network for the channels :data:`ABBREVIATED` or :data:`FULL`, possibly scaled."""
    a, b, c, d, *rest = sizes
    stem = (conv(layers, a, stride=3), nn.ReLU(), conv(a, b), nn.ReLU())
    if not rest:
        return nn.Sequential(*stem, DownsamplingBlock(b, c, d, relu_first=False))
    e, f, g, h = rest
    entry = (DownsamplingBlock(b, c, c, relu_first=False), DownsamplingBlock(c, d, d), DownsamplingBlock(d, e, e))
    middle = (MiddleBlock(e) for _ in range(8))
    exit_flow = (DownsamplingBlock(e, e, f), separable(f, g), nn.ReLU(), separable(g, h), nn.ReLU())
    return nn.Sequential(*stem, *entry, *middle, *exit_flow)
