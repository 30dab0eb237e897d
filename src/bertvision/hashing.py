"""Weights and plain data as one number that changes when any of them does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def hash_json(content: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return hashlib.sha256(_text(content)).hexdigest()


def hash_lines(lines: Iterable[Any]) -> str:
    """sha256 over many records without holding their text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_text(line) + b"\n")
    return digest.hexdigest()


def _text(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, ensure_ascii=True).encode()


def hash_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over names, types, shapes and values, in name order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
