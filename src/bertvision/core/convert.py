"""Dataclasses out of plain data and back: every key is known, every value has its type, or it is refused."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import unknown

T = TypeVar("T")


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a config from plain data; ``where`` names the file or flag for the message."""
    known = typing.get_type_hints(cls)
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise BadInput(f"{where}: {unknown('setting', key, known)}")
        read[key] = _convert(known[key], value, f"{where}: {key}")
    missing = [item.name for item in fields(cls) if item.name not in read and _is_required(item)]  # type: ignore[arg-type]
    if missing:
        raise BadInput(f"{where}: setting {missing[0]!r} is missing")
    return cls(**read)


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of :func:`from_mapping`; settings that are None are left out, as TOML has no null."""
    plain: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            plain[item.name] = to_mapping(value)
        elif value is not None:
            plain[item.name] = list(value) if isinstance(value, tuple) else value
    return plain


def _convert(wanted: Any, value: Any, where: str) -> Any:
    """Check one value against its annotation; whole numbers pass as floats, lists as tuples."""
    if isinstance(value, Typed):
        value = _read_typed(wanted, value)
    if is_dataclass(wanted) and isinstance(wanted, type):
        if isinstance(value, Mapping):
            return from_mapping(wanted, value, where)
        raise BadInput(f"{where}: got {shorten(value)}, expected a table")
    if isinstance(wanted, types.UnionType):
        inner = [kind for kind in typing.get_args(wanted) if kind is not type(None)]
        return None if value is None else _convert(inner[0], value, where)
    if typing.get_origin(wanted) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(typing.get_args(wanted)[0], item, where) for item in items)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise BadInput(f"{where}: got {shorten(value)}, expected {wanted.__name__}")
    return value


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings laid over others, section by section."""
    plain = dict(under)
    for key, value in over.items():
        below = plain.get(key)
        plain[key] = {**below, **value} if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return plain


class Typed(str):
    """A value as a user typed it; what it means depends on the setting."""


def _read_typed(wanted: Any, text: str) -> Any:
    """Text as the setting's type; what cannot be read stays text, and is refused as such.

    Specs hold commas themselves, so a list of words is separated by blanks, one of numbers by commas.
    Nothing at all takes an optional setting back.
    """
    if isinstance(wanted, types.UnionType):
        return _read_typed(typing.get_args(wanted)[0], text) if text else None
    if typing.get_origin(wanted) is tuple:
        kind = typing.get_args(wanted)[0]
        return [_read_typed(kind, part) for part in (text.split() if kind is str else text.split(","))]
    if wanted is bool:
        return {"true": True, "false": False}.get(text, str(text))
    try:
        return wanted(text) if wanted in (int, float) else str(text)
    except ValueError:
        return str(text)


def distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose keys all differ: of two values under one key readers would keep the last in silence."""
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {shorten(twice)} is given twice, expected it once")
    return row
