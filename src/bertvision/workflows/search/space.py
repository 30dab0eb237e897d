"""The values of one setting that a search may try, and how a user types them; what cannot be tried is refused at once.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic from a factor of ten on).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from bertvision.core.config import FitConfig, TuneConfig
from bertvision.core.convert import from_mapping
from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import hashed_as
from bertvision.core.registry import Value, read_value, unknown, write_value


@hashed_as("values")
@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Value, ...]

    @property
    def tested(self) -> tuple[Value, ...]:
        """If these can be tried, all can."""
        return self.values

    def holds(self, value: object) -> bool:
        return value in self.values


@hashed_as("low", "high", "whole")
@dataclass(frozen=True)
class Range:
    """A number between two, both included."""

    low: float
    high: float
    whole: bool = False

    @property
    def log(self) -> bool:
        return self.low > 0 and self.high >= 10 * self.low

    @property
    def tested(self) -> tuple[Value, ...]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def holds(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Domain = Choice | Range
SECTIONS: dict[str, type[Any]] = {"fit": FitConfig, "tune": TuneConfig}
FIXED = ("device", "rates", "order_seed", "seed", "save_minutes", "bf16", "checkpointing", "accumulate")
"""Settings that change how something is computed, not what."""


@dataclass(frozen=True)
class Asked:
    """One word of ``--space``."""

    text: str
    section: str
    key: str
    domain: Domain

    def refused(self, why: str) -> BadInput:
        return BadInput(f"--space {self.text}: {why}")

    def refused_value(self, value: Value, why: object) -> BadInput:
        return self.refused(f"{write_value(value)} cannot be tried, {why}; leave it out or give another")


def read_asked(typed: Sequence[str]) -> list[Asked]:
    """What was typed, every key once."""
    found: dict[tuple[str, str], Asked] = {}
    for one in map(_read, typed):
        before = found.setdefault((one.section, one.key), one)
        if before is not one:
            raise one.refused(f"{one.section}.{one.key} is given twice, before as {before.text}; leave one of them out")
    return list(found.values())


def _read(text: str) -> Asked:
    path, equals, values = text.partition("=")
    section, dot, key = path.partition(".")
    if not (equals and dot and key and values):
        raise BadInput(f"--space {shorten(text)}: expected fit.lr=1e-4..1e-2 or compress.size=16|64")
    low, dots, high = values.partition("..")
    if not dots:
        # A value that stands twice would be drawn twice as often.
        return Asked(text, section, key, Choice(tuple(dict.fromkeys(map(read_value, values.split("|"))))))
    ends = [read_value(end) for end in (low, high)]
    if any(isinstance(end, str | bool) for end in ends) or not -math.inf < float(ends[0]) < float(ends[1]) < math.inf:
        raise BadInput(f"--space {shorten(text)}: expected two numbers, the smaller first, e.g. 1e-4..1e-2")
    whole = all(isinstance(end, int) for end in ends)
    return Asked(text, section, key, Range(float(ends[0]), float(ends[1]), whole))


def setting_domain(one: Asked) -> Domain:
    """The domain of a setting of fitting or tuning, every value of its type and within its bounds."""
    kind = SECTIONS[one.section]
    known = [item.name for item in fields(kind) if item.name not in FIXED]
    if one.key not in known:
        raise BadInput(f"--space {one.section}.{one.key}: {unknown('setting', one.key, known)}")
    values = tuple(_value(one, kind, value) for value in one.domain.tested)
    return Choice(tuple(dict.fromkeys(values))) if isinstance(one.domain, Choice) else one.domain


def _value(one: Asked, kind: type[Any], value: Value) -> Value:
    try:
        read: Value = getattr(from_mapping(kind, {one.key: value}, one.section), one.key)
    except BadInput as error:
        raise one.refused_value(value, error) from error
    return read
