"""What is stored of a text: its tokens, or vectors that summarise them; and of a pair of texts: one input or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SUMMARIES = ("cls", "last", "mean", "max")
"""The CLS token, the last token, the mean and the maximum over tokens."""

NO_TOKENS = "none"
"""In place of a choice of tokens: nothing is stored of a window, because only its texts are encoded, each by itself."""

TOGETHER, APART, BOTH = "together", "apart", "both"
PAIRS = (TOGETHER, APART, BOTH)
"""How pairs of texts are encoded: as one input, each text by itself, or in both ways."""


def summary_names(tokens: str) -> tuple[str, ...]:
    """The summaries that a choice of tokens consists of; empty if tokens are stored."""
    return () if tokens in ("all", "context", NO_TOKENS) else tuple(tokens.split("+"))


def summarise_tokens(states: Tensor, mask: Tensor, names: Sequence[str]) -> Tensor:
    """Summaries of the real tokens of each text: (batch, tokens, ...) to (batch, summaries, ...)."""
    import torch

    return torch.stack([summarise(states, mask, name) for name in names], dim=1)


def summarise(states: Tensor, mask: Tensor, name: str) -> Tensor:
    """One summary of the real tokens of each text: (batch, tokens, ...) to (batch, ...)."""
    import torch

    if name == "cls":
        return states[:, 0]
    if name == "last":
        return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
    if name == "mean":
        weights = mask.to(states.dtype) / mask.sum(1, keepdim=True)  # (batch, tokens)
        return torch.einsum("bt,bt...->b...", weights, states)
    if mask.is_meta or not bool(mask.all()):  # filling copies the states
        padding = ~mask.reshape(*mask.shape, *[1] * (states.ndim - 2))
        states = states.masked_fill(padding, float("-inf"))
    return states.amax(1)
