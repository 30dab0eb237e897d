"""Self-attention over the real tokens of a text, for heads that need it."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput


class SelfAttention(nn.Module):
    """Multi-head attention (batch, tokens, size) -> the same; nobody looks at padding. 4 (d^2 + d) parameters."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        if size < 1 or heads < 1 or size % heads:
            raise BadInput(f"self-attention of size={size} with heads={heads}: expected a multiple of the heads")
        self.heads = heads
        self.inward, self.outward = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = self.inward(x).unflatten(-1, (3, self.heads, -1))  # (batch, tokens, 3, heads, size / heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, size / heads)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        return cast(Tensor, self.outward(seen.transpose(1, 2).flatten(-2)))  # (batch, tokens, size)
