"""Ways to tune an encoder, by one spec: what is put into it, and which of its weights are trained.

``full`` | ``freeze:k=6,norms=false`` | ``adapters:size=64,share=none,norms=true,unfreeze=0,head=linear`` |
``bitfit`` | ``lora:r=8,alpha=16,dropout=0.0``
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import Spec, Value, parse_spec, unknown
from bertvision.encoders.adapters import HOME, adapters_of, cut_adapters, cut_share, insert_adapters
from bertvision.encoders.architectures import FAMILIES, layer_list
from bertvision.encoders.freezing import frozen_modules, train_above, train_biases, train_norms
from bertvision.encoders.lora import MARK, insert_lora

KINDS = {int: "a whole number", float: "a number", bool: "true or false"}

EXAMPLE = "adapters:size=64"

DELTA_METHODS = ("adapters", "bitfit", "lora")
"""Methods that train so little that only what they train is saved."""

INJECTING = {"adapters": ("size", "share"), "lora": ("r", "alpha", "dropout")}
"""Methods that put something into the model, and the options that say what."""

_NOTE = "bertvision_inside"
"""Attribute of a model that something was put into: what it was."""

HEAD_WIDTH = 64
"""Of an attention head in every BERT."""


@dataclass(frozen=True)
class Choice:
    """An option of a method: its default, and what it may be."""

    default: Value | None  # none: it must be given
    kind: type
    words: tuple[str, ...] = ()  # in place of a value of that kind
    least: float | None = None
    most: float = math.inf

    def check(self, what: str, value: Value) -> None:
        if not self._fits(value):
            least = "" if self.least is None else f" of at least {self.least:g}"
            most = f" and at most {self.most:g}" if self.most < math.inf else ""
            number = [f"{KINDS[self.kind]}{least}{most}"] if self.kind is not str else []
            raise BadInput(f"tune method {what}={shorten(value)}, expected {' or '.join([*number, *self.words])}")

    def _fits(self, value: Value) -> bool:
        if isinstance(value, str):
            return value in self.words
        kinds = (float, int) if self.kind is float else (self.kind,)
        return type(value) in kinds and (self.least is None or self.least <= value <= self.most)


METHODS: dict[str, dict[str, Choice]] = {
    "full": {},
    "freeze": {"k": Choice(None, int, least=0), "norms": Choice(False, bool)},
    "adapters": {
        "size": Choice(64, int, least=1),
        "share": Choice("none", object),  # what it may be depends on the layers
        "norms": Choice(True, bool, ("layers",)),
        "unfreeze": Choice(0, int, ("all",), least=0),
        "head": Choice("linear", str, ("linear", "tanh")),
    },
    "bitfit": {},
    "lora": {
        "r": Choice(8, int, least=1),
        "alpha": Choice(16, int, least=1),
        "dropout": Choice(0.0, float, least=0, most=0.9),
    },
}
"""Ways to tune, and their options."""


def read_method(method: str) -> Spec:
    """The method with all its options, defaults filled in."""
    spec = parse_spec(method, EXAMPLE)
    if spec.name not in METHODS:
        raise BadInput(unknown("tune method", spec.name, list(METHODS)))
    known = METHODS[spec.name]
    for key, value in spec.options.items():
        if not known:
            raise BadInput(f"tune method {spec}: {spec.name} takes no options; leave {key} out")
        if key not in known:
            raise BadInput(f"tune method {spec}: {unknown('option', key, dict(known))}")
        if known[key].kind is not object:
            known[key].check(f"{spec}: {key}", value)
    return Spec(spec.name, {key: _value(spec, key, choice) for key, choice in known.items()})


def _value(spec: Spec, key: str, choice: Choice) -> Value:
    """What was given, or the default."""
    value = spec.options.get(key, choice.default)
    if value is None:
        raise BadInput(f"tune method {spec} needs {key}, e.g. {spec.name}:{key}=6")
    return float(value) if choice.kind is float else value


def prepare(model: Any, method: str, needs_pooler: bool) -> None:
    """Put in what is not there yet, and mark what is trained.

    ``needs_pooler`` says whether the head that is tuned with looks at the pooled CLS.
    """
    spec = read_method(method)
    if spec.name in INJECTING:
        inject(model, injection_spec(method))
    _MARKS[spec.name](model, spec.options)
    pooler = getattr(model, "pooler", None)
    if pooler is not None and not (needs_pooler and _reaches_pooler(spec)):
        pooler.requires_grad_(False)
    elif pooler is not None and spec.name != "bitfit":
        pooler.requires_grad_(True)


def _reaches_pooler(spec: Spec) -> bool:
    """Small methods leave the pooler as it is, unless layers below it are trained."""
    return spec.name not in ("adapters", "lora") or spec.options.get("unfreeze", 0) != 0


def _mark_full(model: Any, _options: Mapping[str, Value]) -> None:
    model.requires_grad_(True)


def _mark_freeze(model: Any, options: Mapping[str, Value]) -> None:
    train_above(model, int(options["k"]), f"freeze:k={options['k']}")
    if options["norms"]:
        train_norms(model, lambda _: True)


def _mark_adapters(model: Any, options: Mapping[str, Value]) -> None:
    """Adapters and norms; and the upper layers, or all there is, if asked for."""
    unfreeze = options["unfreeze"]
    if unfreeze in (0, "all"):
        model.requires_grad_(unfreeze == "all")
    else:
        train_above(model, len(layer_list(model)) - int(unfreeze), f"adapters:unfreeze={unfreeze}")
    home = adapters_of(model)
    assert home is not None, "they were put in"
    home.requires_grad_(True)
    within = FAMILIES[model.config.model_type].layers + "."
    if options["norms"]:
        train_norms(model, lambda name: options["norms"] is True or name.startswith(within))


def _mark_bitfit(model: Any, _options: Mapping[str, Value]) -> None:
    train_biases(model)


def _mark_lora(model: Any, _options: Mapping[str, Value]) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(MARK in name)


_MARKS: dict[str, Callable[[Any, Mapping[str, Value]], None]] = {
    "full": _mark_full,
    "freeze": _mark_freeze,
    "adapters": _mark_adapters,
    "bitfit": _mark_bitfit,
    "lora": _mark_lora,
}


def saves_delta(method: str) -> bool:
    return read_method(method).name in DELTA_METHODS


def head_of(method: str, asked: str | None, plain: str) -> str:
    """The head to tune with: the one asked for, or the method's own; ``plain`` is a linear one."""
    if read_method(method).options.get("head") != "tanh":
        return asked or plain
    if asked is not None:
        raise BadInput(f"tune method {method} brings its own head; leave head=tanh or --tune-head {asked} out")
    return plain.replace("probe", "tanh", 1)


def injection_spec(method: str) -> str | None:
    """The part of a method that says what the model gets: ``adapters:size=64,share=none``."""
    spec = read_method(method)
    if spec.name not in INJECTING:
        return None
    options = {key: spec.options[key] for key in INJECTING[spec.name]}
    if options.get("share") == 1 and type(options["share"]) is int:
        options["share"] = "layer"  # the same by another name
    return str(Spec(spec.name, options))


def injected(model: Any) -> str | None:
    """What was put into a model, as :func:`injection_spec` says it."""
    there: str | None = getattr(model, _NOTE, None)
    return there


def inject(model: Any, what: str | None) -> None:
    """Adapters or LoRA into a model, once; what is there already is trained on. Seed torch first."""
    there = injected(model)
    if what is None or there == what:
        return
    if there is not None:
        raise BadInput(
            f"this encoder has {there} inside and cannot take {what} too; begin with its base, or give {there}"
        )
    spec = parse_spec(what)
    if spec.name == "adapters":
        insert_adapters(model, int(spec.options["size"]), spec.options["share"])
    else:
        insert_lora(model, int(spec.options["r"]), int(spec.options["alpha"]), float(spec.options["dropout"]))
    setattr(model, _NOTE, what)


def cut_inside(model: Any, depth: int) -> None:
    """What was put into layers that are cut off goes with them."""
    there = injected(model)
    if there is None:
        return
    cut_adapters(model, depth)
    spec = parse_spec(there)
    options = {key: cut_share(value, depth) if key == "share" else value for key, value in spec.options.items()}
    setattr(model, _NOTE, str(Spec(spec.name, options)))


def added_names(model: Any) -> list[str]:
    """Names of the weights that were put in."""
    return [name for name, _ in model.named_parameters() if name.startswith(f"{HOME}.") or MARK in name]


def num_frozen_states(method: str) -> int:
    """How many states, counted from 0, no step can change: those below the lowest trained weight."""
    spec = read_method(method)
    return int(spec.options["k"]) + 1 if spec.name == "freeze" and not spec.options["norms"] else 0


def eval_frozen_layers(model: Any, method: str) -> None:
    """No dropout where nothing is trained: what cannot learn from noise only suffers from it."""
    for module in frozen_modules(model, num_frozen_states(method) - 1):
        module.eval()


def count_method(method: str, layers: int, width: int) -> int:
    """What is trained beside the last linear layer; the hidden layer of ``head=tanh`` (H^2 + H) is counted in."""
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // HEAD_WIDTH),
        intermediate_size=4 * width,
    )
    with torch.device("meta"):
        model = transformers.BertModel(config)
        prepare(model, method, needs_pooler=False)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    tanh = read_method(method).options.get("head") == "tanh"
    return int(trained) + (width * width + width if tanh else 0)
