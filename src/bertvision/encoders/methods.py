"""Methods to tune an encoder, as specs: which modules are injected, and which weights are trained.

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
from bertvision.core.registry import Spec, Value, parse_spec, unknown_name
from bertvision.encoders.adapters import (
    ADAPTERS_ATTRIBUTE,
    adapters_of,
    insert_adapters,
    truncate_adapters,
    truncate_share,
)
from bertvision.encoders.architectures import FAMILIES, is_norm, layer_list, shares_layers
from bertvision.encoders.lora import LORA_MARKER, insert_lora

KINDS = {int: "a whole number", float: "a number", bool: "true or false"}

EXAMPLE = "adapters:size=64"

DELTA_METHODS = ("adapters", "bitfit", "lora")
"""Methods that train few weights; only those are saved."""

INJECTING = {"adapters": ("size", "share"), "lora": ("r", "alpha", "dropout")}
"""Methods that inject modules, and the options that define them."""

_INJECTED = "bertvision_inside"
"""Attribute of a model that holds the spec of its injected modules."""

HEAD_WIDTH = 64
"""Width of an attention head in every BERT."""


@dataclass(frozen=True)
class Choice:
    """An option of a method: its default and its allowed values."""

    default: Value | None  # None: required
    kind: type
    words: tuple[str, ...] = ()  # allowed instead of a value of that kind
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
        "share": Choice("none", object),  # allowed values depend on the number of layers
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
"""Methods and their options."""


def parse_method(method: str) -> Spec:
    """The method with all its options, defaults filled in."""
    spec = parse_spec(method, EXAMPLE)
    if spec.name not in METHODS:
        raise BadInput(unknown_name("tune method", spec.name, list(METHODS)))
    known = METHODS[spec.name]
    for key, value in spec.options.items():
        if not known:
            raise BadInput(f"tune method {spec}: {spec.name} takes no options; leave {key} out")
        if key not in known:
            raise BadInput(f"tune method {spec}: {unknown_name('option', key, dict(known))}")
        if known[key].kind is not object:
            known[key].check(f"{spec}: {key}", value)
    options: dict[str, Value] = {}
    for key, choice in known.items():
        given = spec.options.get(key, choice.default)
        if given is None:
            raise BadInput(f"tune method {spec} needs {key}, e.g. {spec.name}:{key}=6")
        options[key] = float(given) if choice.kind is float else given
    return Spec(spec.name, options)


def prepare(model: Any, method: str, needs_pooler: bool) -> None:
    """Inject what is not there yet, and set ``requires_grad`` of all weights.

    ``needs_pooler`` says whether the head that is tuned with reads the pooled CLS.
    """
    spec = parse_method(method)
    inject(model, injection_spec(method))
    _mark_trained(model, spec)
    pooler = getattr(model, "pooler", None)
    if pooler is None:
        return
    # Adapters and LoRA leave the pooler as it is, unless layers below it are trained.
    reaches_pooler = spec.name not in ("adapters", "lora") or spec.options.get("unfreeze", 0) != 0
    if not (needs_pooler and reaches_pooler):
        pooler.requires_grad_(False)
    elif spec.name != "bitfit":
        pooler.requires_grad_(True)


def _mark_trained(model: Any, spec: Spec) -> None:
    options = spec.options
    if spec.name == "full":
        model.requires_grad_(True)
    elif spec.name == "freeze":
        _train_above(model, int(options["k"]), f"freeze:k={options['k']}")
        if options["norms"]:
            _train_norms(model, lambda _: True)
    elif spec.name == "adapters":
        _mark_adapters(model, options)
    elif spec.name == "bitfit":
        _train_biases(model)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(LORA_MARKER in name)


def _mark_adapters(model: Any, options: Mapping[str, Value]) -> None:
    """Adapters and norms; and the upper layers, or all of them, if asked for."""
    unfreeze = options["unfreeze"]
    if unfreeze in (0, "all"):
        model.requires_grad_(unfreeze == "all")
    else:
        _train_above(model, len(layer_list(model)) - int(unfreeze), f"adapters:unfreeze={unfreeze}")
    adapters = adapters_of(model)
    assert adapters is not None, "they were injected"
    adapters.requires_grad_(True)
    layers = FAMILIES[model.config.model_type].layers + "."
    if options["norms"]:
        _train_norms(model, lambda name: options["norms"] is True or name.startswith(layers))


def _train_above(model: Any, k: int, option: str) -> None:
    """Freeze the embeddings and the lowest ``k`` layers; ``option`` is named in error messages."""
    if shares_layers(model):
        raise BadInput(
            f"{option}: ALBERT has one layer that is used again and again, so that some cannot be frozen; "
            "give full, bitfit, lora or adapters:share=all"
        )
    layers = layer_list(model)
    if not 0 <= k <= len(layers):
        raise BadInput(f"{option}: this encoder has {len(layers)} layers; expected 0 to {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[k:]:
        layer.requires_grad_(True)
    _train_norms(model, lambda name: name == "final_norm")  # ModernBERT's, after the last layer


def _train_norms(model: Any, chosen: Callable[[str], bool]) -> None:
    """Train the norms whose names ``chosen`` accepts, too."""
    for name, module in model.named_modules():
        if is_norm(module) and chosen(name):
            module.requires_grad_(True)


def _train_biases(model: Any) -> None:
    """BitFit (Ben Zaken et al. 2022): every bias, those of norms included, and nothing else."""
    model.requires_grad_(False)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    if not biases:
        raise BadInput(f"bitfit: encoders of type {model.config.model_type} have no biases; give another --method")
    for bias in biases:
        bias.requires_grad_(True)


def saves_delta(method: str) -> bool:
    return parse_method(method).name in DELTA_METHODS


def head_of(method: str, asked: str | None, plain: str) -> str:
    """The head to tune with: the one given or the method's own; ``plain`` is a linear one."""
    if parse_method(method).options.get("head") != "tanh":
        return asked or plain
    if asked is not None:
        raise BadInput(f"tune method {method} brings its own head; leave head=tanh or --tune-head {asked} out")
    return plain.replace("probe", "tanh", 1)


def injection_spec(method: str) -> str | None:
    """The part of a method that defines the injected modules: ``adapters:size=64,share=none``."""
    spec = parse_method(method)
    if spec.name not in INJECTING:
        return None
    options = {key: spec.options[key] for key in INJECTING[spec.name]}
    if options.get("share") == 1 and type(options["share"]) is int:
        options["share"] = "layer"  # the same by another name
    return str(Spec(spec.name, options))


def injected(model: Any) -> str | None:
    """The :func:`injection_spec` of a model's injected modules."""
    spec: str | None = getattr(model, _INJECTED, None)
    return spec


def inject(model: Any, spec: str | None) -> None:
    """Inject adapters or LoRA, unless the same are there already, which are then trained on. Seed torch first."""
    before = injected(model)
    if spec is None or before == spec:
        return
    if before is not None:
        raise BadInput(
            f"this encoder has {before} inside and cannot take {spec} too; begin with its base, or give {before}"
        )
    parsed = parse_spec(spec)
    options = parsed.options
    if parsed.name == "adapters":
        insert_adapters(model, int(options["size"]), options["share"])
    else:
        insert_lora(model, int(options["r"]), int(options["alpha"]), float(options["dropout"]))
    setattr(model, _INJECTED, spec)


def truncate_injected(model: Any, depth: int) -> None:
    """Remove the modules that were injected into layers above ``depth``."""
    before = injected(model)
    if before is None:
        return
    truncate_adapters(model, depth)
    spec = parse_spec(before)
    options = dict(spec.options)
    if "share" in options:
        options["share"] = truncate_share(options["share"], depth)
    setattr(model, _INJECTED, str(Spec(spec.name, options)))


def injected_names(model: Any) -> list[str]:
    """Names of the injected weights."""
    return [
        name for name, _ in model.named_parameters() if name.startswith(f"{ADAPTERS_ATTRIBUTE}.") or LORA_MARKER in name
    ]


def num_frozen_states(method: str) -> int:
    """Number of states, from state 0 on, that tuning cannot change: those below the lowest trained weight."""
    spec = parse_method(method)
    return int(spec.options["k"]) + 1 if spec.name == "freeze" and not spec.options["norms"] else 0


def eval_frozen_layers(model: Any, method: str) -> None:
    """Put frozen layers in eval mode, so that dropout does not perturb them."""
    k = num_frozen_states(method) - 1
    if k < 0:
        return
    layers = layer_list(model)
    trained = {id(module) for layer in layers[k:] for module in layer.modules()}
    for module in model.modules():
        holds_layers = any(child is layers for child in module.modules())
        if id(module) not in trained and not holds_layers:
            module.eval()


def count_trained_parameters(method: str, layers: int, width: int) -> int:
    """Trained parameters without the last linear layer; the hidden layer of ``head=tanh`` (H^2 + H) is included."""
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
    tanh = parse_method(method).options.get("head") == "tanh"
    return int(trained) + (width * width + width if tanh else 0)
