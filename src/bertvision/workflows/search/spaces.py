"""What a search tries: a domain for every setting, declared by the heads or typed by the user; data, no code a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertvision.core.config import QUICK_HEADS
from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.core.registry import Spec, Value, parse_spec, unknown
from bertvision.heads.base import COMMON_CHOICES, HEADS, build_head, head_options
from bertvision.heads.served import check_served
from bertvision.heads.summary import fits
from bertvision.workflows.search.space import Asked, Choice, Domain, Range, read_asked, setting_domain

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
