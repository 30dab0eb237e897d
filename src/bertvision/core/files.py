"""Weights and plain data as one number that changes when any of them does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_KEYS: dict[type[Any], Mapping[str, str]] = {}


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


def hashed_as(*same: str, **keys: str) -> Callable[[type[T]], type[T]]:
    """Decorator of a dataclass: the key of each field in hashes, which stays when the field is renamed.

    ``same`` are fields whose key is their name, ``keys`` are the others: ``@hashed_as("epochs", rate="lr")``. Every
    field must be named, so that a new one is decided on: with it, whatever was hashed before has another hash.
    """
    table = {**{name: name for name in same}, **keys}

    def note(cls: type[T]) -> type[T]:
        there = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        for what, names in (("has no key in hashes", there - {*table}), ("is no field", {*table} - there)):
            if names:
                raise TypeError(f"{cls.__name__}.{min(names)} {what}; see hashed_as above the class")
        if len({*table.values()}) < len(table):
            raise TypeError(f"{cls.__name__}: two fields have one key in hashes; see hashed_as above the class")
        _KEYS[cls] = table
        return cls

    return note


def hashed_keys(cls: type[Any]) -> Mapping[str, str]:
    """By field of a dataclass its key in hashes."""
    if cls not in _KEYS:
        raise TypeError(f"{cls.__name__} is not hashed by its fields; put hashed_as above the class")
    return _KEYS[cls]


def hashed_fields(record: Any) -> dict[str, Any]:
    """A dataclass as plain data for :func:`hash_json`, under the keys that do not change."""
    values = {key: getattr(record, name) for name, key in hashed_keys(type(record)).items()}
    return {key: hashed_fields(value) if is_dataclass(value) else value for key, value in values.items()}
