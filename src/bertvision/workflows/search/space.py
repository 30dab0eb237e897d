"""The values of one setting that a search may try, and how a user types them; what cannot be tried is refused at once.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic from a factor of ten on).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bertvision.core.config import QUICK_HEADS, FitConfig, TuneConfig, from_mapping
from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import hashed_as
from bertvision.core.records import Shape
from bertvision.core.registry import Spec, Value, parse_spec, read_value, unknown, write_value
from bertvision.heads.base import COMMON_CHOICES, HEADS, build_head, check_served, head_options
from bertvision.heads.summary import fits

SECTIONS: dict[str, type[Any]] = {"fit": FitConfig, "tune": TuneConfig}

FIXED = ("device", "rates", "order_seed", "seed", "save_minutes", "bf16", "checkpointing", "accumulate")
"""Settings that change how something is computed, not what."""


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


FIT: Mapping[str, Domain] = {
    "lr": Range(3e-4, 3e-2),
    "weight_decay": Choice((0.0, 0.01, 0.1)),
    "warmup": Choice((0.0, 0.1, 0.3)),
}
"""What is tried of how heads are fitted, unless the user says otherwise."""


@dataclass(frozen=True)
class Ground:
    """What heads are fitted on, as far as it decides which can be: known before there are any states."""

    shape: Shape
    pooled: bool = True
    tokens: str = "all"

    def asks(self, key: str) -> bool:
        """Whether a common option makes a difference here: spans read every token."""
        return key == "layers" or (self.shape.kind != "span" and (key != "pooled" or self.pooled))

    def problem(self, spec: Spec) -> str:
        """Why a head cannot be fitted here; nothing if it can."""
        import torch

        try:
            with torch.device("meta"):
                head = build_head(spec, self.shape)
            check_served(head, self.tokens)
        except (BadInput, RuntimeError) as error:  # torch's own, for a size below 0
            return str(error)
        return "" if self.pooled or not head.needs_pooled else f"head {head.spec} needs the pooled CLS, there is none"


@dataclass(frozen=True)
class Space:
    """By head the domains of its options, and the domains of fitting."""

    heads: Mapping[str, Mapping[str, Domain]]  # spec as typed -> option -> domain
    fit: Mapping[str, Domain]


def named_heads(words: Sequence[str], ground: Ground) -> tuple[str, ...]:
    """Specs as typed; ``quick`` and ``all`` are the heads by name, so that none of their options is fixed."""
    found: list[str] = []
    for word in words:
        if word == "quick":
            found += [parse_spec(spec).name for spec in QUICK_HEADS]
        elif word == "all":
            found += [name for name in HEADS if fits(name, ground.shape, ground.pooled, ground.tokens)]
        else:
            found.append(word)
    return tuple(dict.fromkeys(found))


def space_of(heads: Sequence[str], ground: Ground, typed: Sequence[str] = ()) -> Space:
    """What the heads declare and fitting has, overlaid with what the user typed: ``fit.lr=...``, ``compress.size=...``.

    An option that a head's spec names is fixed. Of what a head declares only values that can be built are tried; a
    typed one that cannot is refused.
    """
    asked = read_asked(typed)
    specs = {head: parse_spec(head) for head in heads}
    _check_sections(asked, list(specs.values()))
    fit = {**FIT, **{one.key: setting_domain(one) for one in asked if one.section == "fit"}}
    return Space({head: _head_space(spec, ground, asked) for head, spec in specs.items()}, fit)


def tune_space(typed: Sequence[str]) -> dict[str, Domain]:
    """What the user wants tried of tuning the encoder; nothing unless it is typed, because each try is a tuning."""
    return {one.key: setting_domain(one) for one in read_asked(typed) if one.section == "tune"}


def _check_sections(asked: Sequence[Asked], specs: Sequence[Spec]) -> None:
    """Every word of --space is about something that is searched, and that no spec has fixed."""
    sections = ["fit", "tune", *sorted({spec.name for spec in specs})]
    for one in asked:
        if one.section not in sections:
            raise BadInput(f"--space {one.section}.{one.key}: {unknown('section', one.section, sections)}")
        own = [spec for spec in specs if spec.name == one.section]
        if own and all(one.key in spec.options for spec in own):
            raise one.refused(f"{own[0]} fixes {one.key}; leave it out of the spec, or out of --space")


def _head_space(spec: Spec, ground: Ground, asked: Sequence[Asked]) -> dict[str, Domain]:
    problem = ground.problem(spec)
    if problem:  # the defaults are fitted in any case, for the winner to stand beside
        raise BadInput(problem)
    body, options = HEADS[spec.name], head_options(str(spec))
    common = {key: COMMON_CHOICES[key] for key in body.common if ground.asks(key)}
    declared = {key: values for key, values in {**body.choices, **common}.items() if key not in spec.options}
    found: dict[str, Domain] = {key: Choice(_fitting(spec, key, values, ground)) for key, values in declared.items()}
    for one in asked:
        if one.section == spec.name and one.key not in options:
            raise BadInput(f"--space {spec.name}.{one.key}: {unknown('option', one.key, list(options))}")
        if one.section == spec.name and one.key not in spec.options:
            found[one.key] = _checked(spec, one, ground)
    return found


def _fitting(spec: Spec, key: str, values: Sequence[Value], ground: Ground) -> tuple[Value, ...]:
    """The choices with which the head can be fitted here; the default is one of them."""
    return tuple(value for value in values if not ground.problem(_with(spec, key, value)))


def _checked(spec: Spec, one: Asked, ground: Ground) -> Domain:
    for value in one.domain.tested:
        problem = ground.problem(_with(spec, one.key, value))
        if problem:
            raise one.refused_value(value, problem)
    return one.domain


def _with(spec: Spec, key: str, value: Value) -> Spec:
    return Spec(spec.name, {**spec.options, key: value})
