"""A batch whose states lie side by side as they do in a shard, without padding."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from bertvision.records import LayerBatch


class RaggedBatch(LayerBatch):
    """A :class:`LayerBatch` made of unpadded states; they are padded once a head wants whole texts.

    Texts of a batch differ in length, so a head that looks at one token at a time would spend a sixth of
    its time on padding.
    """

    def __init__(
        self,
        states: Tensor,
        mask: Tensor,
        targets: Tensor,
        windows: Tensor,
        pooled: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        # Set past the parent, which would want the padded states.
        self.__dict__.update(states=states, mask=mask, targets=targets, windows=windows, pooled=pooled, logits=logits)

    @cached_property
    def hidden(self) -> Tensor:  # type: ignore[override]
        """(batch, tokens, layers, width), zeros behind the last token."""
        return padded(self.states, self.mask)

    def to(self, device: torch.device) -> RaggedBatch:
        if self.states.device == device:
            return self
        pooled = None if self.pooled is None else self.pooled.to(device)
        states, mask, targets = (one.to(device) for one in (self.states, self.mask, self.targets))
        return RaggedBatch(states, mask, targets, self.windows, pooled, self.logits)


def padded(flat: Tensor, mask: Tensor) -> Tensor:
    """Rows of real tokens (tokens, ...) to (batch, longest, ...), zeros behind."""
    found = flat.new_empty((*mask.shape, *flat.shape[1:]))
    at = 0
    for row, size in zip(found, mask.sum(1).tolist(), strict=True):
        row[:size].copy_(flat[at : at + size])
        row[size:].zero_()
        at += size
    return found
