"""A bidirectional LSTM on the learned pool of all layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, MEAN_SEQUENCE_OPTIONS, Choices, HeadModule, glorot
from bertvision.heads.layer_pool import LayerPool


@HEADS.register("bilstm")
class BiLstm(HeadModule):
    """W [forward LSTM(p)_t; backward LSTM(p)_t] + b with p the learned pool of all layers.

    Reads the text again in both directions, as question answering models did before transformers. Each text is
    reversed within its own length, so that the backward LSTM starts at the last token and padding comes last in both
    directions; on a CPU this takes half the time of packed sequences. With s = size per direction:
    L + 1 + 8 s (H + s + 2) + o (2 s + 1) parameters. Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005.
    """

    pointwise = False
    shared_options = MEAN_SEQUENCE_OPTIONS
    variants = ("size=64",)
    choices: ClassVar[Choices] = {"size": (16, 32, 64, 128)}
    always_in_spec = ("size",)
    source = "Hochreiter, Schmidhuber 1997; Graves, Schmidhuber 2005"
    saved_names: ClassVar[Mapping[str, str]] = {"forward_lstm": "forth", "backward_lstm": "back"}

    def __init__(self, shape: Shape, size: int = 64) -> None:
        super().__init__()
        if size < 1:
            raise BadInput(f"head bilstm: size={size}, expected at least 1")
        self.pool = LayerPool(shape.layers)
        self.forward_lstm = nn.LSTM(shape.width, size, batch_first=True)
        self.backward_lstm = nn.LSTM(shape.width, size, batch_first=True)
        self.dense = glorot(nn.Linear(2 * size, shape.outputs))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        pooled = self.pool(hidden)  # (batch, tokens, width)
        index = torch.arange(mask.shape[1], device=mask.device)
        reverse = torch.where(mask, mask.sum(1, keepdim=True) - 1 - index, index)[..., None]  # (batch, tokens, 1)
        forward, _ = self.forward_lstm(pooled)  # (batch, tokens, size)
        backward, _ = self.backward_lstm(pooled.gather(1, reverse.expand_as(pooled)))  # reversed
        both = torch.cat([forward, backward.gather(1, reverse.expand_as(backward))], dim=-1)  # (batch, tokens, 2 size)
        return cast(Tensor, self.dense(both))

    def layer_weights(self) -> Tensor | None:
        return self.pool.normalized_weights()
