"""What a store depends on, hashed, so that a different encoder or data is never mixed into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FORMAT = 1


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
