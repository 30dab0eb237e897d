"""The search space: values of head options and settings, declared by the heads or given with ``--space``.

``size=16|64|256`` is a choice, ``lr=1e-4..1e-2`` a range (logarithmic if it spans a factor of ten or more). Invalid
values are an error before the search starts. A domain is one of Optuna's distributions; Optuna is imported
only when one is made, so that ``--space`` is parsed without it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from bertvision.core.config import FitConfig, TuneConfig, from_mapping
from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.core.records import Shape
from bertvision.core.registry import Spec, Value, parse_spec, read_value, unknown_name, write_value
from bertvision.core.summaries import BOTH, TOGETHER
from bertvision.heads.base import COMMON_CHOICES, HEADS, build_head, head_options, is_solved
from bertvision.heads.info import NO_VARIANT, fits
from bertvision.heads.quick import quick_heads
from bertvision.heads.readings import PAIR_CHOICES, check_head_tokens

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SECTIONS: dict[str, type[Any]] = {"fit": FitConfig, "tune": TuneConfig}

NOT_SEARCHED = ("device", "rates", "order_seed", "seed", "save_minutes", "bf16", "checkpointing", "accumulate")
"""Settings that are not searched: they change how results are computed, not the results."""


FIT_SPACE = ("fit.lr=3e-4..3e-2", "fit.weight_decay=0.0|0.01|0.1", "fit.warmup=0.0|0.1|0.3")
"""Default search space of the ``fit`` settings, written as arguments of ``--space``."""


@contextmanager
def quiet_optuna() -> Iterator[Any]:
    """Import Optuna and silence its warnings; a one-line error if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import optuna
    except ImportError as error:
        raise missing_extra("optuna", "search") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield optuna


def make_choice(values: Sequence[Value]) -> BaseDistribution:
    with quiet_optuna() as optuna:
        return optuna.distributions.CategoricalDistribution(values)


def make_range(low: Any, high: Any) -> BaseDistribution:
    """All whole numbers if both ends are whole, else all numbers; both ends are included."""
    whole = isinstance(low, int) and isinstance(high, int)
    with quiet_optuna() as optuna:
        distribution = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
        return distribution(low, high, log=low > 0 and high >= 10 * low)


def suggest(trial: Any, name: str, domain: Any) -> Any:
    """Draw a value; ``Study.ask`` takes distributions directly, but its options cannot depend on the head it draws."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(domain, CategoricalDistribution):
        return trial.suggest_categorical(name, domain.choices)
    draw = trial.suggest_int if isinstance(domain, IntDistribution) else trial.suggest_float
    return draw(name, domain.low, domain.high, log=domain.log)


@dataclass(frozen=True)
class SpaceItem:
    """One argument of ``--space``."""

    text: str
    section: str
    key: str
    values: tuple[Value, ...]  # all choices, or both ends of a range
    is_range: bool

    def error(self, why: str) -> BadInput:
        return BadInput(f"--space {self.text}: {why}")

    def value_error(self, value: Value, why: object) -> BadInput:
        return self.error(f"{write_value(value)} is not valid: {why}; leave it out or choose another value")

    def domain(self) -> BaseDistribution:
        return make_range(*self.values) if self.is_range else make_choice(self.values)


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
        return SpaceItem(text, section, key, tuple(dict.fromkeys(map(read_value, values.split("|")))), is_range=False)
    ends = [read_value(low), read_value(high)]
    if any(isinstance(end, str | bool) for end in ends) or not -math.inf < float(ends[0]) < float(ends[1]) < math.inf:
        raise BadInput(f"--space {shorten(text)}: expected two numbers, the smaller first, e.g. 1e-4..1e-2")
    return SpaceItem(text, section, key, tuple(ends), is_range=True)


def _checked_setting(item: SpaceItem) -> SpaceItem:
    """The values of a ``fit`` or ``tune`` setting, every one checked and converted."""
    config = SECTIONS[item.section]
    names = [field.name for field in fields(config) if field.name not in NOT_SEARCHED]
    if item.key not in names:
        raise BadInput(f"--space {item.section}.{item.key}: {unknown_name('setting', item.key, names)}")
    values: list[Value] = []
    for value in item.values:
        try:
            values.append(getattr(from_mapping(config, {item.key: value}, item.section), item.key))
        except BadInput as error:
            raise item.value_error(value, error) from error
    return item if item.is_range else replace(item, values=tuple(dict.fromkeys(values)))


@dataclass(frozen=True)
class FeatureInfo:
    """What is known of the hidden states before they are extracted."""

    shape: Shape
    pooled: bool = True
    tokens: str = "all"
    pairs: str = TOGETHER

    def offers(self, key: str) -> bool:
        """Whether an option shared by heads has an effect; heads for spans always read every token."""
        return key == "layers" or (self.shape.kind != "span" and (key != "pooled" or self.pooled))

    def problem(self, spec: Spec, **options: Value) -> str:
        """Why a head with these options cannot be trained on the states; empty if it can."""
        import torch

        try:
            with torch.device("meta"):
                head = build_head(Spec(spec.name, {**spec.options, **options}), self.shape)
            check_head_tokens(head, self.tokens, self.pairs)
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

    heads: Mapping[str, Mapping[str, BaseDistribution]]  # spec -> option -> domain
    fit: Mapping[str, BaseDistribution]


def expand_head_names(words: Sequence[str], features: FeatureInfo) -> tuple[str, ...]:
    """Expand ``quick`` and ``all`` to names of heads without options, so that all their options are searched.

    Solved heads are left out: they have no settings of training to search.
    """
    heads: list[str] = []
    for word in words:
        if word == "quick":
            names = [parse_spec(spec).name for spec in quick_heads(features.shape.kind, tuned=True)]
            heads += [name for name in names if not is_solved(name)]
        elif word == "all":
            stored = (features.shape, features.pooled, features.tokens, features.pairs)
            heads += [name for name in HEADS if fits(name, *stored) and not is_solved(name)]
        elif is_solved(word):
            raise BadInput(f"head {word} is solved for, there is nothing to search; use run or fit --heads {word}")
        else:
            heads.append(word)
    if not heads:
        raise BadInput(NO_VARIANT)
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
    settings = [_checked_setting(item) for item in items if item.section == "fit"]
    for spec in specs.values():
        _check_head(spec, features, items)
    # Optuna is needed only from here on, where no mistake is left.
    fit = {item.key: item.domain() for item in (*parse_space(FIT_SPACE), *settings)}
    return Space({head: _head_space(spec, features, items) for head, spec in specs.items()}, fit)


def tune_space(space_words: Sequence[str]) -> dict[str, BaseDistribution]:
    """Domains of ``tune`` settings; there are no defaults, because each trial tunes the encoder."""
    settings = [_checked_setting(item) for item in parse_space(space_words) if item.section == "tune"]
    return {item.key: item.domain() for item in settings}


def _check_head(spec: Spec, features: FeatureInfo, items: Sequence[SpaceItem]) -> None:
    problem = features.problem(spec)
    if problem:  # the default options are always trained, as a reference for the winner
        raise BadInput(problem)
    options = head_options(str(spec))
    for item in items:
        if item.section != spec.name:
            continue
        if item.key not in options:
            raise BadInput(f"--space {spec.name}.{item.key}: {unknown_name('option', item.key, list(options))}")
        if item.key not in spec.options:
            for value in item.values:
                if problem := features.problem(spec, **{item.key: value}):
                    raise item.value_error(value, problem)


def _head_space(spec: Spec, features: FeatureInfo, items: Sequence[SpaceItem]) -> dict[str, BaseDistribution]:
    head = HEADS[spec.name]
    declared = {**head.choices, **{key: COMMON_CHOICES[key] for key in head.shared_options if features.offers(key)}}
    if features.pairs == BOTH and "read" in declared:
        declared["read"] = (*declared["read"], *PAIR_CHOICES)
    domains: dict[str, BaseDistribution] = {}
    for key, values in declared.items():
        if key not in spec.options:  # at least the default is valid
            domains[key] = make_choice([value for value in values if not features.problem(spec, **{key: value})])
    return domains | {
        item.key: item.domain() for item in items if item.section == spec.name and item.key not in spec.options
    }


def default_trials(space: Space, config: FitConfig) -> list[dict[str, Any]]:
    """One trial per head with its default settings; values outside the space are left to the sampler."""
    trials = []
    for head, domains in space.heads.items():
        options = default_values(parse_spec(head).name, domains, head_options(head))
        trials.append({"head": head, **options, **default_values("fit", space.fit, asdict(config))})
    return trials


def default_values(section: str, domains: Mapping[str, BaseDistribution], values: Mapping[str, Any]) -> dict[str, Any]:
    """The default values of a section that are within their domains."""
    return {f"{section}.{key}": values[key] for key, domain in domains.items() if _contains(domain, values[key])}


def _contains(domain: Any, value: object) -> bool:
    from optuna.distributions import CategoricalDistribution

    if isinstance(domain, CategoricalDistribution):
        return value in domain.choices
    return isinstance(value, int | float) and bool(domain.low <= value <= domain.high)


def space_to_dict(space: Space) -> dict[str, Any]:
    """A space as plain data, from which the name of a study is hashed."""
    return {
        "heads": {head: domains_to_dict(domains) for head, domains in space.heads.items()},
        "fit": domains_to_dict(space.fit),
    }


def domains_to_dict(domains: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    return {key: _domain_to_dict(domain) for key, domain in domains.items()}


def _domain_to_dict(domain: Any) -> dict[str, Any]:
    """The form that names of studies have always been hashed from: ends are floats, also those of whole numbers."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(domain, CategoricalDistribution):
        return {"values": domain.choices}
    return {"low": float(domain.low), "high": float(domain.high), "whole": isinstance(domain, IntDistribution)}
