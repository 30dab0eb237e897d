"""Weights as one number that changes when any of them does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def hash_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over names, types, shapes and values, in name order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
