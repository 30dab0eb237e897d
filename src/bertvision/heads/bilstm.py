"""The learned pool of all layers, read from both ends by an LSTM."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import BY_MEAN, HEADS, Body, Choices, glorot
from bertvision.heads.layer_pool import LayerPool


@HEADS.register("bilstm")
class BiLstm(Body):
    """W [forward LSTM(p)_t; backward LSTM(p)_t] + b with p the learned pool of all layers.

    Each text is turned round within its own length, so the backward half starts at a text's last token
    and padding comes last for both; that takes half the time of packed sequences on a CPU.
    L + 1 + 8 s (H + s + 2) + o (2 s + 1) parameters with s = size in each direction.
    """

    pointwise = False
    common = BY_MEAN
    variants = ("size=64",)
    choices: ClassVar[Choices] = {"size": (16, 32, 64, 128)}
    shown = ("size",)
    source = "Hochreiter, Schmidhuber 1997; Graves, Schmidhuber 2005"

    def __init__(self, shape: Shape, size: int = 64) -> None:
        super().__init__()
        if size < 1:
            raise BadInput(f"head bilstm: size={size}, expected at least 1")
        self.pool = LayerPool(shape.layers)
        self.forth = nn.LSTM(shape.width, size, batch_first=True)
        self.back = nn.LSTM(shape.width, size, batch_first=True)
        self.dense = glorot(nn.Linear(2 * size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        pooled = self.pool(hidden)  # (batch, tokens, width)
        place = torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place)[..., None]  # (batch, tokens, 1)
        forth, _ = self.forth(pooled)  # (batch, tokens, size)
        back, _ = self.back(pooled.gather(1, turned.expand_as(pooled)))
        both = torch.cat([forth, back.gather(1, turned.expand_as(back))], dim=-1)  # (batch, tokens, 2 size)
        return cast(Tensor, self.dense(both))

    def layer_weights(self) -> Tensor | None:
        return self.pool.shares()
