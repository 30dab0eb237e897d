"""Xception over tokens: separable convolutions with shortcuts that keep the length of the text."""

from __future__ import annotations

from typing import ClassVar, cast

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.compress import CompressedPool
from bertvision.heads.layers import TokenConv


class Separable(nn.Module):
    """Depthwise kernel of three tokens, pointwise convolution, layer norm; 3 c + c d + 2 d parameters."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.depth = TokenConv(channels, channels, 3, groups=channels)
        self.mix = nn.Linear(channels, out, bias=False)
        self.norm = nn.LayerNorm(out)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self.mix(self.depth(x, mask))))


class EntryBlock(nn.Module):
    """Two separable convolutions, and a linear shortcut to the new width."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first, self.second = Separable(channels, out), Separable(out, out)
        self.shortcut, self.norm = nn.Linear(channels, out, bias=False), nn.LayerNorm(out)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        deep = self.second(F.relu(self.first(x, mask)), mask)  # (batch, tokens, out)
        return cast(Tensor, deep + self.norm(self.shortcut(x)))


class MiddleBlock(nn.Module):
    """Three times (ReLU, separable convolution), with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Separable(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        deep = x
        for step in self.steps:
            deep = step(F.relu(deep), mask)
        return x + deep


@HEADS.register("text-xception")
class TextXception(HeadModule):
    """Entry and middle blocks of Xception over tokens, on a learned pool compressed to 386; linear per token.

    Xception without strides, so that the text keeps its length and every token gets an output, and with layer norm
    instead of batch norm, so that padding has no effect. The paper's layer list is lost; sizes are chosen to meet its
    budget of 6.60 M parameters. With s = size, a = compress and m blocks:
    L + 1 + H a + a + 2 a s + 3 a + s^2 + 9 s + 3 m (s^2 + 5 s) + o (s + 1) parameters. Own design after Jiang, Benge
    and King; Chollet 2016.
    """

    pointwise = False
    shared_options = MEAN_SEQUENCE_OPTIONS
    variants = ("size=744",)
    choices: ClassVar[Choices] = {
        "size": (186, 372, 744),
        "compress": (64, 128, 386),
        "blocks": (1, 2, 3),
    }
    always_in_spec = ("size",)
    source = "own design after Jiang, Benge, King: LP, adapter 386, Xception (Chollet 2016)"

    def __init__(self, shape: Shape, size: int = 744, compress: int = 386, blocks: int = 3) -> None:
        super().__init__()
        if size < 1 or blocks < 0:
            raise BadInput(
                f"head text-xception: size={size}, blocks={blocks}; expected size at least 1 and blocks at least 0"
            )
        self.front = CompressedPool(shape, compress)
        self.entry = EntryBlock(compress, size)
        self.blocks = nn.ModuleList(MiddleBlock(size) for _ in range(blocks))
        self.dense = glorot(nn.Linear(size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x = self.entry(self.front(hidden), mask)  # (batch, tokens, size)
        for block in self.blocks:
            x = block(x, mask)
        return cast(Tensor, self.dense(F.relu(x)))

    def layer_weights(self) -> Tensor | None:
        return self.front.pool.normalized_weights()
