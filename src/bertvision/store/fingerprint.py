"""What a store depends on, hashed, so that a different encoder or data is never mixed into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

FORMAT = 1


def hash_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over names, types, shapes and values, in name order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_json(content: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def hash_lines(lines: Iterable[Any]) -> str:
    """sha256 over many records without holding their text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(json.dumps(line, sort_keys=True, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What two fingerprints disagree on, one phrase each."""
    keys = sorted(set(stored) | set(wanted))
    return [
        f"{key} is {_short(stored.get(key))} there and {_short(wanted.get(key))} here"
        for key in keys
        if stored.get(key) != wanted.get(key)
    ]


def _short(value: Any) -> str:
    text = str(value)
    return text[:10] + "..." if len(text) > 24 else text
