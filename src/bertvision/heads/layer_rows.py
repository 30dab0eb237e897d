"""A few numbers of every state, mixed over layers: all that a pool with a linear layer is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerRows:
    """sum_l mix_l (W h_l) + b.

    The product with the states is bound by reading them and costs about as much with sixteen rows as
    with two, so those of several heads are laid together and computed at once.
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


def laid_together(parts: Sequence[LayerRows], rows: int) -> LayerRows:
    """One after the other, and zeros up to so many rows: the same product whoever is in it."""
    first, missing = parts[0], rows - sum(len(part) for part in parts)
    weight = torch.cat([*(part.weight for part in parts), first.weight.new_zeros(missing, first.weight.shape[1])])
    mix = torch.cat([*(part.mix for part in parts), first.mix.new_zeros(len(first.mix), missing)], dim=1)
    return LayerRows(weight, mix, torch.cat([*(part.bias for part in parts), first.bias.new_zeros(missing)]))
