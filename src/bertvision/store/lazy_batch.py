"""Batches whose states are decoded on demand, and only as many as a head reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from bertvision.core.records import LayerBatch

Read = Callable[[Tensor], Tensor]
"""Maps token indices of a shard to their states as f32 (tokens, layers, width)."""


class RaggedBatch(LayerBatch):
    """A :class:`LayerBatch` of the tokens ``rows`` of a shard.

    For heads that read CLS, only that token is decoded; heads that treat tokens independently get them without
    padding, which would be about a sixth of the computation; only other heads get padded states.
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
        summaries: tuple[str, ...] = (),
        apart: Tensor | None = None,
    ) -> None:
        # Bypass the parent's initialiser, which requires the padded states.
        given: dict[str, object] = {
            "mask": mask,
            "targets": targets,
            "windows": windows,
            "pooled": pooled,
            "logits": logits,
            "apart": apart,
        }
        self.__dict__.update(given, summaries=summaries, _read=read, _rows=rows, _device=mask.device)

    @cached_property
    def states(self) -> Tensor:
        return self._read(self._rows).to(self._device)

    @cached_property
    def first(self) -> Tensor:
        return self._token(0)

    def summary(self, name: str) -> Tensor:
        return self._token(self.summaries.index(name))

    def _token(self, position: int) -> Tensor:
        """States of one position of every text: (batch, layers, width)."""
        sizes = self.mask.sum(1).cpu()
        return self._read(self._rows[sizes.cumsum(0) - sizes + position]).to(self._device)

    @cached_property
    def hidden(self) -> Tensor:
        """(batch, tokens, layers, width), padded with zeros."""
        return pad_tokens(self.states, self.mask)

    def select(self, rows: Tensor) -> RaggedBatch:
        tokens = rows.repeat_interleave(self.mask.sum(1)).cpu()  # of the selected windows
        pooled = None if self.pooled is None else self.pooled[rows]
        logits = None if self.logits is None else self.logits[rows]
        apart = None if self.apart is None else self.apart[rows]
        return RaggedBatch(
            self._read,
            self._rows[tokens],
            self.mask[rows],
            self.targets[rows],
            self.windows[rows],
            pooled,
            logits,
            self.summaries,
            apart,
        )

    def to(self, device: torch.device) -> RaggedBatch:
        if self._device == device:
            return self
        pooled = None if self.pooled is None else self.pooled.to(device)
        apart = None if self.apart is None else self.apart.to(device)
        mask, targets = self.mask.to(device), self.targets.to(device)
        return RaggedBatch(
            self._read, self._rows, mask, targets, self.windows, pooled, self.logits, self.summaries, apart
        )


def pad_tokens(flat: Tensor, mask: Tensor) -> Tensor:
    """(tokens, ...) -> (batch, longest, ...), padded with zeros."""
    padded = flat.new_empty((*mask.shape, *flat.shape[1:]))
    start = 0
    for row, size in zip(padded, mask.sum(1).tolist(), strict=True):
        row[:size].copy_(flat[start : start + size])
        row[size:].zero_()
        start += size
    return padded
