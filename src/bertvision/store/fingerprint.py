"""What a store depends on, hashed, so that a different encoder or data is never mixed into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FORMAT = 1


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
    """What two fingerprints disagree on, one phrase each; a setting inside a section is named, not the section."""
    old, new = ({"tokens": "all"} | dict(_flat(one)) for one in (stored, wanted))
    return [
        f"{key} is {_short(old.get(key))} there and {_short(new.get(key))} here"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _short(value: Any) -> str:
    text = str(value)
    return text[:10] + "..." if len(text) > 24 else text
