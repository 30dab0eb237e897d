"""What a search tries: a domain for every setting, declared by the heads or typed by the user; data, no code a head.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic from a factor of ten on).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from bertvision.config import FitConfig, TuneConfig
from bertvision.errors import BadInput, shorten
from bertvision.heads.base import COMMON_CHOICES, HEADS, build_head, head_options
from bertvision.records import Shape
from bertvision.registry import Spec, Value, parse_spec, read_value, unknown


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Value, ...]

    def holds(self, value: object) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """A number between two, both included."""

    low: float
    high: float
    whole: bool = False

    @property
    def log(self) -> bool:
        return self.low > 0 and self.high >= 10 * self.low

    def holds(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Domain = Choice | Range
FIT: Mapping[str, Domain] = {
    "lr": Range(3e-4, 3e-2),
    "weight_decay": Choice((0.0, 0.01, 0.1)),
    "warmup": Choice((0.0, 0.1, 0.3)),
}
"""What is tried of how heads are fitted, unless the user says otherwise."""

SECTIONS = {"fit": FitConfig, "tune": TuneConfig}
FIXED = ("device", "rates", "order_seed", "seed", "save_minutes", "head", "bf16", "checkpointing", "accumulate")
"""Settings that change how something is computed, not what."""


@dataclass(frozen=True)
class Space:
    """By head the domains of its options, and the domains of fitting."""

    heads: Mapping[str, Mapping[str, Domain]]  # spec as typed -> option -> domain
    fit: Mapping[str, Domain]


def space_of(heads: Sequence[str], shape: Shape, pooled: bool, typed: Sequence[str] = ()) -> Space:
    """What the heads declare and fitting has, overlaid with what the user typed: ``fit.lr=...``, ``compress.size=...``.

    An option that a head's spec names is fixed; of the rest only values that can be built are tried.
    """
    given = [_typed(text) for text in typed]
    sections: dict[str, dict[str, Domain]] = {"fit": dict(FIT), "tune": {}}
    names = {parse_spec(head).name for head in heads}
    for section, key, domain in given:
        if section in sections:
            _check_setting(section, key)
            sections[section][key] = domain
        elif section not in names:
            raise BadInput(f"--space {section}.{key}: {unknown('section', section, [*sections, *sorted(names)])}")
    found = {head: _head_space(head, shape, pooled, given) for head in heads}
    return Space(found, sections["fit"])


def tune_space(typed: Sequence[str]) -> dict[str, Domain]:
    """What the user wants tried of tuning the encoder; nothing unless it is typed, because each try is a tuning."""
    found = {key: domain for section, key, domain in map(_typed, typed) if section == "tune"}
    for key in found:
        _check_setting("tune", key)
    return found


def _typed(text: str) -> tuple[str, str, Domain]:
    path, equals, values = text.partition("=")
    section, dot, key = path.partition(".")
    if not (equals and dot and key and values):
        raise BadInput(f"--space {shorten(text)}: expected fit.lr=1e-4..1e-2 or compress.size=16|64")
    low, dots, high = values.partition("..")
    if not dots:
        return section, key, Choice(tuple(read_value(value) for value in values.split("|")))
    ends = [read_value(end) for end in (low, high)]
    if any(isinstance(end, str | bool) for end in ends) or not float(ends[0]) < float(ends[1]) < math.inf:
        raise BadInput(f"--space {shorten(text)}: expected two numbers, the smaller first, e.g. 1e-4..1e-2")
    return section, key, Range(float(ends[0]), float(ends[1]), all(isinstance(end, int) for end in ends))


def _check_setting(section: str, key: str) -> None:
    known = [item.name for item in fields(SECTIONS[section]) if item.name not in FIXED]
    if key not in known:
        raise BadInput(f"--space {section}.{key}: {unknown('setting', key, known)}")


def _head_space(head: str, shape: Shape, pooled: bool, given: Sequence[tuple[str, str, Domain]]) -> dict[str, Domain]:
    spec = parse_spec(head)
    body, options = HEADS[spec.name], head_options(head)
    common = {key: COMMON_CHOICES[key] for key in body.common if key == "layers" or shape.kind != "span"}
    if not pooled:
        common.pop("pooled", None)
    declared: dict[str, Domain] = {key: Choice(values) for key, values in {**body.choices, **common}.items()}
    declared |= {key: domain for section, key, domain in given if section == spec.name}
    for key in declared:
        if key not in options:
            raise BadInput(f"--space {spec.name}.{key}: {unknown('option', key, list(options))}")
    free = {key: domain for key, domain in declared.items() if key not in spec.options}
    return {key: _buildable(spec, key, domain, options[key], shape) for key, domain in free.items()}


def _buildable(spec: Spec, key: str, domain: Domain, default: Value, shape: Shape) -> Domain:
    """The choices with which the head can be built for these states, the default among them."""
    if isinstance(domain, Range):
        return domain
    values = domain.values if default in domain.values else (default, *domain.values)
    fitting = tuple(value for value in values if _builds(Spec(spec.name, {**spec.options, key: value}), shape))
    if not fitting:
        raise BadInput(f"head {spec}: none of {key}={'|'.join(map(str, values))} can be built for these states")
    return Choice(fitting)


def _builds(spec: Spec, shape: Shape) -> bool:
    import torch

    try:
        with torch.device("meta"):
            build_head(spec, shape)
    except BadInput:
        return False
    return True
