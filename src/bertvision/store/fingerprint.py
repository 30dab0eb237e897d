"""Comparison of store fingerprints, so that different encoders or data are never mixed in a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertvision.core.summaries import TOGETHER

FORMAT = 1

LEFT_OUT = {"tokens": "all", "pairs": TOGETHER}
"""Settings that fingerprints hold only if they have other values."""


def differences(stored: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """One phrase per setting in which two fingerprints differ."""
    old, new = LEFT_OUT | dict(_flat(stored)), LEFT_OUT | dict(_flat(expected))
    return [
        f"{key} is {_short(old.get(key))} there and {_short(new.get(key))} here"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def same_but_data(stored: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether two fingerprints differ in nothing but the data, so that equal windows have equal states."""
    return not differences({**stored, "data": None}, {**expected, "data": None})


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _short(value: Any) -> str:
    text = str(value)
    return text[:10] + "..." if len(text) > 24 else text
