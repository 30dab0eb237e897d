"""Methods to tune an encoder, as specs: the modules to inject and the weights to train.

``full`` | ``freeze:k=6,norms=false`` | ``adapters:size=64,share=none,norms=true,unfreeze=0,head=linear`` |
``bitfit`` | ``lora:r=8,alpha=16,dropout=0.0``
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

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

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}

EXAMPLE_METHOD = "adapters:size=64"

DELTA_METHODS = ("adapters", "bitfit", "lora")
"""Methods that train few weights, which are saved as delta weights."""

INJECTING = {"adapters": ("size", "share"), "lora": ("r", "alpha", "dropout")}
"""Methods that inject modules, and the options that define them."""

_INJECTED = "bertvision_inside"
"""Attribute of a model with the spec of its injected modules."""

HEAD_WIDTH = 64
"""Width of an attention head in BERT models."""


@dataclass(frozen=True)
class MethodOption:
    """An option of a method: its default and its allowed values."""

    default: Value | None  # None: required
    kind: type
    words: tuple[str, ...] = ()  # allowed instead of a value of this type
    minimum: float | None = None
    maximum: float = math.inf

    def check(self, name: str, value: Value) -> None:
        """Reject a value that is not allowed; ``name`` is the method and the option in the error."""
        if self._allows(value):
            return
        expected = list(self.words)
        if self.kind is not str:
            at_least = "" if self.minimum is None else f" of at least {self.minimum:g}"
            at_most = f" and at most {self.maximum:g}" if self.maximum < math.inf else ""
            expected.insert(0, f"{TYPE_NAMES[self.kind]}{at_least}{at_most}")
        raise BadInput(f"tuning method {name}: got {shorten(value)}, expected {' or '.join(expected)}")

    def _allows(self, value: Value) -> bool:
        if isinstance(value, str):
            return value in self.words
        types = (float, int) if self.kind is float else (self.kind,)
        return type(value) in types and (self.minimum is None or self.minimum <= value <= self.maximum)


METHODS: dict[str, dict[str, MethodOption]] = {
    "full": {},
    "freeze": {"k": MethodOption(None, int, minimum=0), "norms": MethodOption(False, bool)},
    "adapters": {
        "size": MethodOption(64, int, minimum=1),
        "share": MethodOption("none", object),  # allowed values depend on the number of layers
        "norms": MethodOption(True, bool, ("layers",)),
        "unfreeze": MethodOption(0, int, ("all",), minimum=0),
        "head": MethodOption("linear", str, ("linear", "tanh")),
    },
    "bitfit": {},
    "lora": {
        "r": MethodOption(8, int, minimum=1),
        "alpha": MethodOption(16, int, minimum=1),
        "dropout": MethodOption(0.0, float, minimum=0, maximum=0.9),
    },
}
"""Methods and their options."""


def parse_method(method: str) -> Spec:
    """Parse a method and fill in the defaults of its options."""
    spec = parse_spec(method, EXAMPLE_METHOD)
    if spec.name not in METHODS:
        raise BadInput(unknown_name("tune method", spec.name, list(METHODS)))
    declared = METHODS[spec.name]
    for key, value in spec.options.items():
        if not declared:
            raise BadInput(f"tune method {spec}: {spec.name} takes no options; remove {key}")
        if key not in declared:
            raise BadInput(f"tune method {spec}: {unknown_name('option', key, dict(declared))}")
        if declared[key].kind is not object:
            declared[key].check(f"{spec}: {key}", value)
    options: dict[str, Value] = {}
    for key, option in declared.items():
        value_or_none = spec.options.get(key, option.default)
        if value_or_none is None:
            raise BadInput(f"tune method {spec} needs {key}, e.g. {spec.name}:{key}=6")
        options[key] = float(value_or_none) if option.kind is float else value_or_none
    return Spec(spec.name, options)


def prepare(model: Any, method: str, needs_pooler: bool) -> None:
    """Inject the modules of a method, unless they are present, and set ``requires_grad`` of all weights.

    ``needs_pooler``: whether the head that is tuned with the encoder reads the pooled CLS.
    """
    spec = parse_method(method)
    inject(model, injection_spec(method))
    _mark_trained(model, spec)
    pooler = getattr(model, "pooler", None)
    if pooler is None:
        return
    # With adapters and LoRA the pooler is trained only if layers below it are.
    reaches_pooler = spec.name not in ("adapters", "lora") or spec.options.get("unfreeze", 0) != 0
    if not (needs_pooler and reaches_pooler):
        pooler.requires_grad_(False)
    elif spec.name != "bitfit":
        pooler.requires_grad_(True)


def _mark_trained(model: Any, spec: Spec) -> None:
    """Set ``requires_grad`` of all weights; :func:`prepare` then decides on the pooler."""
    options = spec.options
    if spec.name == "full":
        model.requires_grad_(True)
    elif spec.name == "freeze":
        _train_above(model, int(options["k"]), f"freeze:k={options['k']}")
        if options["norms"]:
            _train_norms(model, lambda _: True)
    elif spec.name == "adapters":
        _mark_adapters(model, options)
    elif spec.name == "bitfit":  # Ben Zaken et al. 2022: all biases, including those of norms
        biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
        if not biases:
            raise BadInput(f"bitfit: encoders of type {model.config.model_type} have no biases; use another --method")
        model.requires_grad_(False)
        for bias in biases:
            bias.requires_grad_(True)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(LORA_MARKER in name)


def _mark_adapters(model: Any, options: Mapping[str, Value]) -> None:
    """Train adapters, norms and, with ``unfreeze``, the upper layers or all of them."""
    unfreeze = options["unfreeze"]
    if unfreeze in (0, "all"):
        model.requires_grad_(unfreeze == "all")
    else:
        _train_above(model, len(layer_list(model)) - int(unfreeze), f"adapters:unfreeze={unfreeze}")
    adapters = adapters_of(model)
    assert adapters is not None, "inject was called before"
    adapters.requires_grad_(True)
    layers = FAMILIES[model.config.model_type].layers + "."
    if options["norms"]:
        _train_norms(model, lambda name: options["norms"] is True or name.startswith(layers))


def _train_above(model: Any, k: int, option: str) -> None:
    """Freeze the embeddings and the lowest ``k`` layers; ``option`` is named in error messages."""
    if shares_layers(model):
        raise BadInput(
            f"{option}: ALBERT uses one layer repeatedly, so single layers cannot be frozen; "
            "use full, bitfit, lora or adapters:share=all"
        )
    layers = layer_list(model)
    if not 0 <= k <= len(layers):
        raise BadInput(f"{option}: this encoder has {len(layers)} layers; expected 0 to {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[k:]:
        layer.requires_grad_(True)
    _train_norms(model, lambda name: name == "final_norm")  # of ModernBERT, after the last layer


def _train_norms(model: Any, accepts: Callable[[str], bool]) -> None:
    """Also train the norms whose names ``accepts`` accepts."""
    for name, module in model.named_modules():
        if is_norm(module) and accepts(name):
            module.requires_grad_(True)


def saves_delta(method: str) -> bool:
    """Whether an encoder tuned by a method is saved as delta weights."""
    return parse_method(method).name in DELTA_METHODS


def head_of(method: str, head: str | None, default: str) -> str:
    """The head to tune with: the given one, the one of the method, or ``default``, a linear one."""
    if parse_method(method).options.get("head") != "tanh":
        return head or default
    if head is not None:
        raise BadInput(f"tune method {method} sets the head, too; remove head=tanh or --tune-head {head}")
    return default.replace("probe", "tanh", 1)


def injection_spec(method: str) -> str | None:
    """The part of a method that defines the injected modules: ``adapters:size=64,share=none``."""
    spec = parse_method(method)
    if spec.name not in INJECTING:
        return None
    options = {key: spec.options[key] for key in INJECTING[spec.name]}
    if options.get("share") == 1 and type(options["share"]) is int:
        options["share"] = "layer"  # a synonym
    return str(Spec(spec.name, options))


def injected(model: Any) -> str | None:
    """The :func:`injection_spec` of a model's injected modules."""
    spec: str | None = getattr(model, _INJECTED, None)
    return spec


def inject(model: Any, spec: str | None) -> None:
    """Inject adapters or LoRA; modules that are already present continue to be trained. Seed torch first."""
    present = injected(model)
    if spec is None or present == spec:
        return
    if present is not None:
        raise BadInput(
            f"this encoder contains {present}, so {spec} cannot be added; start from its base, or use {present}"
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
    present = injected(model)
    if present is None:
        return
    truncate_adapters(model, depth)
    spec = parse_spec(present)
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
    """Number of hidden states, from state 0, that tuning does not change: those below the lowest trained weight."""
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
    """Number of trained parameters without the last linear layer, but with the hidden layer of ``head=tanh``."""
    import transformers  # here, because most commands that import this module do not need it

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
    return int(trained) + (width**2 + width if tanh else 0)
