"""A batch of a shard whose states are decoded when a head asks for them, and no more of them than it asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from bertvision.core.records import LayerBatch

Read = Callable[[Tensor], Tensor]
"""Numbers of a shard's tokens to their states as f32 (tokens, layers, width)."""


class RaggedBatch(LayerBatch):
    """A :class:`LayerBatch` of a shard's tokens, ``rows``, window after window.

    Heads that read CLS have one token of each window decoded; heads that look at one token at a time get
    all of them side by side; they are padded only for heads that want whole texts. Texts of a batch differ
    in length, so that padding would be a sixth of what is computed.
    """

    _read: Read
    _rows: Tensor
    _device: torch.device

    def __init__(
        self,
        read: Read,
        rows: Tensor,
        mask: Tensor,
        targets: Tensor,
        windows: Tensor,
        pooled: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        # Set past the parent, which would want the padded states.
        given = {"mask": mask, "targets": targets, "windows": windows, "pooled": pooled, "logits": logits}
        self.__dict__.update(given, _read=read, _rows=rows, _device=mask.device)

    @cached_property
    def states(self) -> Tensor:
        return self._read(self._rows).to(self._device)

    @cached_property
    def first(self) -> Tensor:
        sizes = self.mask.sum(1).cpu()
        return self._read(self._rows[sizes.cumsum(0) - sizes]).to(self._device)

    @cached_property
    def hidden(self) -> Tensor:
        """(batch, tokens, layers, width), zeros behind the last token."""
        return padded(self.states, self.mask)

    def to(self, device: torch.device) -> RaggedBatch:
        if self._device == device:
            return self
        pooled = None if self.pooled is None else self.pooled.to(device)
        mask, targets = self.mask.to(device), self.targets.to(device)
        return RaggedBatch(self._read, self._rows, mask, targets, self.windows, pooled, self.logits)


def padded(flat: Tensor, mask: Tensor) -> Tensor:
    """Rows of real tokens (tokens, ...) to (batch, longest, ...), zeros behind."""
    found = flat.new_empty((*mask.shape, *flat.shape[1:]))
    at = 0
    for row, size in zip(found, mask.sum(1).tolist(), strict=True):
        row[:size].copy_(flat[at : at + size])
        row[size:].zero_()
        at += size
    return found
