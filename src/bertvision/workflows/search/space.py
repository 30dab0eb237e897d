"""What a search may try: which values of which settings, as heads declare them or as typed in ``--space``.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic from a factor of ten on). Values that cannot be
tried are an error before the search starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bertvision.core.config import QUICK_HEADS, FitConfig, TuneConfig, from_mapping
from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import hashed_as, hashed_fields
from bertvision.core.records import Shape
from bertvision.core.registry import Spec, Value, parse_spec, read_value, unknown_name, write_value
from bertvision.heads.base import COMMON_CHOICES, HEADS, build_head, check_head_tokens, head_options
from bertvision.heads.summary import fits

SECTIONS: dict[str, type[Any]] = {"fit": FitConfig, "tune": TuneConfig}

FIXED = ("device", "rates", "order_seed", "seed", "save_minutes", "bf16", "checkpointing", "accumulate")
"""Settings that change how something is computed, not what."""


@hashed_as("values")
@dataclass(frozen=True)
class Choice:
    """One of some values: Optuna's categorical distribution, before Optuna is imported."""

    values: tuple[Value, ...]

    @property
    def endpoints(self) -> tuple[Value, ...]:
        """If these values are valid, all are."""
        return self.values

    def contains(self, value: object) -> bool:
        return value in self.values

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, list(self.values))


@hashed_as("low", "high", "whole")
@dataclass(frozen=True)
class Range:
    """A number between two, both included: Optuna's float or int distribution, before Optuna is imported."""

    low: float
    high: float
    whole: bool = False

    @property
    def log(self) -> bool:
        return self.low > 0 and self.high >= 10 * self.low

    @property
    def endpoints(self) -> tuple[Value, ...]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def contains(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def suggest(self, trial: Any, name: str) -> Any:
        suggest = trial.suggest_int if self.whole else trial.suggest_float
        return suggest(name, *self.endpoints, log=self.log)


Domain = Choice | Range

FIT: Mapping[str, Domain] = {
    "lr": Range(3e-4, 3e-2),
    "weight_decay": Choice((0.0, 0.01, 0.1)),
    "warmup": Choice((0.0, 0.1, 0.3)),
}
"""What is tried of how heads are fitted, unless the user says otherwise."""


@dataclass(frozen=True)
class SpaceItem:
    """One word of ``--space``."""

    text: str
    section: str
    key: str
    domain: Domain

    def error(self, why: str) -> BadInput:
        return BadInput(f"--space {self.text}: {why}")

    def value_error(self, value: Value, why: object) -> BadInput:
        return self.error(f"{write_value(value)} cannot be tried, {why}; leave it out or give another")


def parse_space(typed: Sequence[str]) -> list[SpaceItem]:
    """The words of ``--space``, every key once."""
    items: dict[tuple[str, str], SpaceItem] = {}
    for text in typed:
        item = _read_item(text)
        first = items.setdefault((item.section, item.key), item)
        if first is not item:
            key = f"{item.section}.{item.key}"
            raise item.error(f"{key} is given twice, before as {first.text}; leave one of them out")
    return list(items.values())


def _read_item(text: str) -> SpaceItem:
    path, equals, values = text.partition("=")
    section, dot, key = path.partition(".")
    if not (equals and dot and key and values):
        raise BadInput(f"--space {shorten(text)}: expected fit.lr=1e-4..1e-2 or compress.size=16|64")
    low, dots, high = values.partition("..")
    if not dots:
        # A repeated value would be drawn twice as often.
        return SpaceItem(text, section, key, Choice(tuple(dict.fromkeys(map(read_value, values.split("|"))))))
    ends = [read_value(low), read_value(high)]
    if any(isinstance(end, str | bool) for end in ends) or not -math.inf < float(ends[0]) < float(ends[1]) < math.inf:
        raise BadInput(f"--space {shorten(text)}: expected two numbers, the smaller first, e.g. 1e-4..1e-2")
    whole = all(isinstance(end, int) for end in ends)
    return SpaceItem(text, section, key, Range(float(ends[0]), float(ends[1]), whole))


def _setting_domain(item: SpaceItem) -> Domain:
    """The domain of a setting of fitting or tuning, every value converted to its type and within its bounds."""
    config = SECTIONS[item.section]
    known = [field.name for field in fields(config) if field.name not in FIXED]
    if item.key not in known:
        raise BadInput(f"--space {item.section}.{item.key}: {unknown_name('setting', item.key, known)}")
    values: list[Value] = []
    for value in item.domain.endpoints:
        try:
            values.append(getattr(from_mapping(config, {item.key: value}, item.section), item.key))
        except BadInput as error:
            raise item.value_error(value, error) from error
    return Choice(tuple(dict.fromkeys(values))) if isinstance(item.domain, Choice) else item.domain


@dataclass(frozen=True)
class FeatureInfo:
    """What is known of the states that heads are fitted on, before there are any."""

    shape: Shape
    pooled: bool = True
    tokens: str = "all"

    def offers(self, key: str) -> bool:
        """Whether a common option makes a difference: spans read every token."""
        return key == "layers" or (self.shape.kind != "span" and (key != "pooled" or self.pooled))

    def problem(self, spec: Spec, **options: Value) -> str:
        """Why a head, with these options, cannot be fitted on the states; empty if it can."""
        import torch

        try:
            with torch.device("meta"):
                head = build_head(Spec(spec.name, {**spec.options, **options}), self.shape)
            check_head_tokens(head, self.tokens)
        except (BadInput, RuntimeError) as error:  # torch raises RuntimeError for a size below 0
            return str(error)
        return "" if self.pooled or not head.needs_pooled else f"head {head.spec} needs the pooled CLS, there is none"


@dataclass(frozen=True)
class Space:
    """By head the domains of its options, and the domains of fitting."""

    heads: Mapping[str, Mapping[str, Domain]]  # spec as typed -> option -> domain
    fit: Mapping[str, Domain]


def expand_head_names(words: Sequence[str], features: FeatureInfo) -> tuple[str, ...]:
    """Specs as typed; ``quick`` and ``all`` become bare names of heads, so that none of their options is fixed."""
    heads: list[str] = []
    for word in words:
        if word == "quick":
            heads += [parse_spec(spec).name for spec in QUICK_HEADS]
        elif word == "all":
            heads += [name for name in HEADS if fits(name, features.shape, features.pooled, features.tokens)]
        else:
            heads.append(word)
    return tuple(dict.fromkeys(heads))


def build_space(heads: Sequence[str], features: FeatureInfo, typed: Sequence[str] = ()) -> Space:
    """What the heads declare and fitting has, overridden by what the user typed: ``fit.lr=...``, ``compress.size=...``.

    An option that a head's spec names is fixed. Declared values that cannot be built are left out; a typed one that
    cannot is an error.
    """
    items = parse_space(typed)
    specs = {head: parse_spec(head) for head in heads}
    sections = ["fit", "tune", *sorted({spec.name for spec in specs.values()})]
    for item in items:
        if item.section not in sections:
            raise BadInput(f"--space {item.section}.{item.key}: {unknown_name('section', item.section, sections)}")
        same = [spec for spec in specs.values() if spec.name == item.section]
        if same and all(item.key in spec.options for spec in same):
            raise item.error(f"{same[0]} fixes {item.key}; leave it out of the spec, or out of --space")
    fit = {**FIT, **{item.key: _setting_domain(item) for item in items if item.section == "fit"}}
    return Space({head: _head_space(spec, features, items) for head, spec in specs.items()}, fit)


def tune_space(typed: Sequence[str]) -> dict[str, Domain]:
    """The settings of tuning to try; none unless typed, because each trial tunes the encoder."""
    return {item.key: _setting_domain(item) for item in parse_space(typed) if item.section == "tune"}


def _head_space(spec: Spec, features: FeatureInfo, items: Sequence[SpaceItem]) -> dict[str, Domain]:
    problem = features.problem(spec)
    if problem:  # the defaults are always fitted, to compare the winner with
        raise BadInput(problem)
    head = HEADS[spec.name]
    declared = {**head.choices, **{key: COMMON_CHOICES[key] for key in head.shared_options if features.offers(key)}}
    domains: dict[str, Domain] = {}
    for key, values in declared.items():
        if key not in spec.options:  # the default is one of the values that fit
            domains[key] = Choice(tuple(value for value in values if not features.problem(spec, **{key: value})))
    options = head_options(str(spec))
    for item in items:
        if item.section != spec.name:
            continue
        if item.key not in options:
            raise BadInput(f"--space {spec.name}.{item.key}: {unknown_name('option', item.key, list(options))}")
        if item.key not in spec.options:
            for value in item.domain.endpoints:
                if problem := features.problem(spec, **{item.key: value}):
                    raise item.value_error(value, problem)
            domains[item.key] = item.domain
    return domains


def default_trials(space: Space, config: FitConfig) -> list[dict[str, Any]]:
    """Every head with its default settings; what lies outside the space is left to the sampler."""
    trials = []
    for head, domains in space.heads.items():
        options = default_values(parse_spec(head).name, domains, head_options(head))
        trials.append({"head": head, **options, **default_values("fit", space.fit, asdict(config))})
    return trials


def default_values(section: str, domains: Mapping[str, Domain], values: Mapping[str, Any]) -> dict[str, Any]:
    """The present values of a section's settings, where their domains contain them."""
    return {f"{section}.{key}": values[key] for key, domain in domains.items() if domain.contains(values[key])}


def space_to_dict(space: Space) -> dict[str, Any]:
    """A space as plain data, which the name of a study is hashed from."""
    return {
        "heads": {head: domains_to_dict(domains) for head, domains in space.heads.items()},
        "fit": domains_to_dict(space.fit),
    }


def domains_to_dict(domains: Mapping[str, Domain]) -> dict[str, Any]:
    return {key: hashed_fields(domain) for key, domain in domains.items()}
