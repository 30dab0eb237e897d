"""The search space: values of head options and settings, declared by the heads or given with ``--space``.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic if it spans a factor of ten or more). Invalid
values are an error before the search starts.
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

NOT_SEARCHED = ("device", "rates", "order_seed", "seed", "save_minutes", "bf16", "checkpointing", "accumulate")
"""Settings that are not searched: they change how results are computed, not the results."""


@hashed_as("values")
@dataclass(frozen=True)
class Choice:
    """Optuna's categorical distribution, without importing Optuna."""

    values: tuple[Value, ...]

    @property
    def endpoints(self) -> tuple[Value, ...]:
        """The values to validate."""
        return self.values

    def contains(self, value: object) -> bool:
        return value in self.values

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, list(self.values))


@hashed_as("low", "high", "whole")
@dataclass(frozen=True)
class Range:
    """Optuna's float or int distribution, both ends included, without importing Optuna."""

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

FIT_DOMAINS: Mapping[str, Domain] = {
    "lr": Range(3e-4, 3e-2),
    "weight_decay": Choice((0.0, 0.01, 0.1)),
    "warmup": Choice((0.0, 0.1, 0.3)),
}
"""Default search space of the ``fit`` settings."""


@dataclass(frozen=True)
class SpaceItem:
    """One argument of ``--space``."""

    text: str
    section: str
    key: str
    domain: Domain

    def error(self, why: str) -> BadInput:
        return BadInput(f"--space {self.text}: {why}")

    def value_error(self, value: Value, why: object) -> BadInput:
        return self.error(f"{write_value(value)} is not valid: {why}; leave it out or choose another value")


def parse_space(words: Sequence[str]) -> list[SpaceItem]:
    """Parse the arguments of ``--space``; each key may occur once."""
    items: dict[tuple[str, str], SpaceItem] = {}
    for text in words:
        item = _read_item(text)
        first = items.setdefault((item.section, item.key), item)
        if first is not item:
            key = f"{item.section}.{item.key}"
            raise item.error(f"{key} is given twice, first as {first.text}; leave one of them out")
    return list(items.values())


def _read_item(text: str) -> SpaceItem:
    path, equals, values = text.partition("=")
    section, dot, key = path.partition(".")
    if not (equals and dot and key and values):
        raise BadInput(f"--space {shorten(text)}: expected fit.lr=1e-4..1e-2 or compress.size=16|64")
    low, dots, high = values.partition("..")
    if not dots:
        # Without duplicates: a repeated value would be drawn twice as often.
        return SpaceItem(text, section, key, Choice(tuple(dict.fromkeys(map(read_value, values.split("|"))))))
    ends = [read_value(low), read_value(high)]
    if any(isinstance(end, str | bool) for end in ends) or not -math.inf < float(ends[0]) < float(ends[1]) < math.inf:
        raise BadInput(f"--space {shorten(text)}: expected two numbers, the smaller first, e.g. 1e-4..1e-2")
    whole = all(isinstance(end, int) for end in ends)
    return SpaceItem(text, section, key, Range(float(ends[0]), float(ends[1]), whole))


def _setting_domain(item: SpaceItem) -> Domain:
    """The domain of a ``fit`` or ``tune`` setting, with every value converted and checked."""
    config = SECTIONS[item.section]
    names = [field.name for field in fields(config) if field.name not in NOT_SEARCHED]
    if item.key not in names:
        raise BadInput(f"--space {item.section}.{item.key}: {unknown_name('setting', item.key, names)}")
    values: list[Value] = []
    for value in item.domain.endpoints:
        try:
            values.append(getattr(from_mapping(config, {item.key: value}, item.section), item.key))
        except BadInput as error:
            raise item.value_error(value, error) from error
    return Choice(tuple(dict.fromkeys(values))) if isinstance(item.domain, Choice) else item.domain


@dataclass(frozen=True)
class FeatureInfo:
    """What is known of the hidden states before they are extracted."""

    shape: Shape
    pooled: bool = True
    tokens: str = "all"

    def offers(self, key: str) -> bool:
        """Whether an option shared by heads has an effect; heads for spans always read every token."""
        return key == "layers" or (self.shape.kind != "span" and (key != "pooled" or self.pooled))

    def problem(self, spec: Spec, **options: Value) -> str:
        """Why a head with these options cannot be trained on the states; empty if it can."""
        import torch

        try:
            with torch.device("meta"):
                head = build_head(Spec(spec.name, {**spec.options, **options}), self.shape)
            check_head_tokens(head, self.tokens)
        except (BadInput, RuntimeError) as error:  # torch raises RuntimeError for a size below 0
            return str(error)
        return (
            ""
            if self.pooled or not head.needs_pooled
            else f"head {head.spec} needs the pooler output, which this encoder lacks"
        )


@dataclass(frozen=True)
class Space:
    """Domains of the options of each head, and of the ``fit`` settings."""

    heads: Mapping[str, Mapping[str, Domain]]  # spec -> option -> domain
    fit: Mapping[str, Domain]


def expand_head_names(words: Sequence[str], features: FeatureInfo) -> tuple[str, ...]:
    """Expand ``quick`` and ``all`` to names of heads without options, so that all their options are searched."""
    heads: list[str] = []
    for word in words:
        if word == "quick":
            heads += [parse_spec(spec).name for spec in QUICK_HEADS]
        elif word == "all":
            heads += [name for name in HEADS if fits(name, features.shape, features.pooled, features.tokens)]
        else:
            heads.append(word)
    return tuple(dict.fromkeys(heads))


def build_space(heads: Sequence[str], features: FeatureInfo, space_words: Sequence[str] = ()) -> Space:
    """The declared domains of heads and ``fit`` settings, overridden by the arguments of ``--space``.

    Options in a head's spec are fixed. Values that a head cannot be built with are dropped if declared, and an error
    if given in ``--space``.
    """
    items = parse_space(space_words)
    specs = {head: parse_spec(head) for head in heads}
    sections = ["fit", "tune", *sorted({spec.name for spec in specs.values()})]
    for item in items:
        if item.section not in sections:
            raise BadInput(f"--space {item.section}.{item.key}: {unknown_name('section', item.section, sections)}")
        same = [spec for spec in specs.values() if spec.name == item.section]
        if same and all(item.key in spec.options for spec in same):
            raise item.error(f"{same[0]} fixes {item.key}; remove it from the spec or from --space")
    fit = {**FIT_DOMAINS, **{item.key: _setting_domain(item) for item in items if item.section == "fit"}}
    return Space({head: _head_space(spec, features, items) for head, spec in specs.items()}, fit)


def tune_space(space_words: Sequence[str]) -> dict[str, Domain]:
    """Domains of ``tune`` settings; there are no defaults, because each trial tunes the encoder."""
    return {item.key: _setting_domain(item) for item in parse_space(space_words) if item.section == "tune"}


def _head_space(spec: Spec, features: FeatureInfo, items: Sequence[SpaceItem]) -> dict[str, Domain]:
    problem = features.problem(spec)
    if problem:  # the default options are always trained, as a reference for the winner
        raise BadInput(problem)
    head = HEADS[spec.name]
    declared = {**head.choices, **{key: COMMON_CHOICES[key] for key in head.shared_options if features.offers(key)}}
    domains: dict[str, Domain] = {}
    for key, values in declared.items():
        if key not in spec.options:  # at least the default is valid
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
    """One trial per head with its default settings; values outside the space are left to the sampler."""
    trials = []
    for head, domains in space.heads.items():
        options = default_values(parse_spec(head).name, domains, head_options(head))
        trials.append({"head": head, **options, **default_values("fit", space.fit, asdict(config))})
    return trials


def default_values(section: str, domains: Mapping[str, Domain], values: Mapping[str, Any]) -> dict[str, Any]:
    """The default values of a section that are within their domains."""
    return {f"{section}.{key}": values[key] for key, domain in domains.items() if domain.contains(values[key])}


def space_to_dict(space: Space) -> dict[str, Any]:
    """A space as plain data, from which the name of a study is hashed."""
    return {
        "heads": {head: domains_to_dict(domains) for head, domains in space.heads.items()},
        "fit": domains_to_dict(space.fit),
    }


def domains_to_dict(domains: Mapping[str, Domain]) -> dict[str, Any]:
    return {key: hashed_fields(domain) for key, domain in domains.items()}
