"""Registries of heads and tasks, and the grammars of specs and of layer choices.

The first look-up in a registry imports all modules of its package, so a head or task is added by adding a file.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bertvision.core.errors import BadInput, shorten

Value = int | float | bool | str
T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_KEY = re.compile(r"[a-z][a-z0-9_]*\Z")
_WORD = re.compile(r"[A-Za-z0-9_.+-]+\Z")


class Registry(Generic[T]):
    """Objects by name, registered with a decorator and discovered by importing all modules of a package."""

    def __init__(self, what: str, package: str) -> None:
        self.what = what
        self.package = package
        self._entries: dict[str, T] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a head or task under an unused name."""
        assert _NAME.match(name), name

        def add(entry: T) -> T:
            assert name not in self._entries, f"{self.what} {name!r} is registered twice"
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        self._discover()
        if name not in self._entries:
            raise BadInput(unknown_name(self.what, name, self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")


def unknown_name(what: str, name: str, names: Mapping[str, object] | list[str]) -> str:
    """The message for an unknown name, with the closest match and all known names."""
    close = difflib.get_close_matches(name, list(names), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"no {what} named {shorten(name)}.{hint} Known: {', '.join(sorted(names))}"


@dataclass(frozen=True)
class Spec:
    """A name with options, written as ``name[:key=value[,key=value]...]``."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ",".join(f"{key}={write_value(value)}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


def parse_spec(text: str, example: str = "compress:size=64,skip=true") -> Spec:
    """Parse a spec; errors name the wrong part and give an example."""
    name, colon, rest = text.strip().partition(":")
    if not _NAME.match(name) or (colon and not rest):
        raise BadInput(f"spec {shorten(text)}: expected name[:key=value[,key=value]...], e.g. {example}")
    options: dict[str, Value] = {}
    for part in rest.split(",") if rest else []:
        key, _, value = part.partition("=")
        if not _KEY.match(key) or not _WORD.match(value):
            raise BadInput(f"spec {shorten(text)}: {shorten(part)} is not key=value, e.g. {example}")
        if key in options:
            raise BadInput(f"spec {shorten(text)}: {key} is given twice")
        options[key] = read_value(value)
    return Spec(name, options)


def read_value(text: str) -> Value:
    """Parse an int, a float or true/false; other text is returned unchanged."""
    if text in ("true", "false"):
        return text == "true"
    if "_" in text:  # Python would parse 1_0 as 10
        return text
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def write_value(value: Value) -> str:
    """The inverse of :func:`read_value`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def choose_layers(text: str, count: int) -> tuple[int, ...]:
    """Parse ``all``, ``last4``, ``first6``, ``every2`` (counted back from the last layer) or ``0+3+6``."""
    named = re.fullmatch(r"(last|first|every)([1-9]\d*)", text)
    if text == "all":
        return tuple(range(count))
    if named:
        number = int(named[2])
        if named[1] == "every":
            return tuple(sorted(range(count - 1, -1, -number)))
        if number <= count:
            return tuple(range(count - number, count) if named[1] == "last" else range(number))
    elif re.fullmatch(r"\d+(\+\d+)*", text):
        chosen = tuple(int(part) for part in text.split("+"))
        if len(set(chosen)) == len(chosen) and max(chosen) < count:
            return tuple(sorted(chosen))
    raise BadInput(
        f"layers={text}: there are {count} states, 0 to {count - 1}; expected all, last4, first6, every2 or 0+3+6"
    )
