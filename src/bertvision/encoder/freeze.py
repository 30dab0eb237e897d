"""Which of an encoder's weights are trained: ``full``, or ``freeze:k=K``, the lowest K layers left as they are.

Nothing below layer K is trained; so no graph is built there, nothing is dropped out, and each step costs
a forward pass only. Hulburd 2020 trained all norms beside the rest: ``norms=true``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from bertvision.encoder.cut import layer_list
from bertvision.errors import BadInput
from bertvision.registry import Spec, parse_spec, unknown

METHODS: dict[str, dict[str, Any]] = {"full": {}, "freeze": {"k": 0, "norms": False}}
"""Ways to tune, and their options with defaults."""


def prepare(model: Any, method: str, needs_pooler: bool) -> None:
    """Mark what is trained; ``needs_pooler`` says whether the head that is tuned with looks at the pooled CLS."""
    spec = parse_spec(method)
    options = _options(spec)
    model.requires_grad_(True)
    if spec.name == "freeze":
        _freeze(model, int(options["k"]), bool(options["norms"]))
    pooler = getattr(model, "pooler", None)
    if pooler is not None:
        pooler.requires_grad_(needs_pooler)


def still_below(method: str) -> int:
    """How many states, counted from 0, no step can change: those below the lowest trained weight."""
    spec = parse_spec(method)
    options = _options(spec)
    return int(options["k"]) + 1 if spec.name == "freeze" and not options["norms"] else 0


def quiet_below(model: Any, method: str) -> None:
    """No dropout where nothing is trained: what cannot learn from noise only suffers from it."""
    for module in _frozen_modules(model, still_below(method) - 1):
        module.eval()


def _options(spec: Spec) -> dict[str, Any]:
    if spec.name not in METHODS:
        raise BadInput(unknown("tune method", spec.name, list(METHODS)))
    known = METHODS[spec.name]
    for key, value in spec.options.items():
        if key not in known:
            raise BadInput(f"tune method {spec}: {unknown('option', key, known)}")
        if type(value) is not type(known[key]):
            raise BadInput(f"tune method {spec}: {key}={value}, expected {type(known[key]).__name__}")
    return {**known, **spec.options}


def _freeze(model: Any, k: int, norms: bool) -> None:
    if model.config.model_type == "albert":
        raise BadInput("freeze: ALBERT has one layer that is used again and again; some of them cannot be frozen")
    layers = layer_list(model)
    if not 0 <= k <= len(layers):
        raise BadInput(f"freeze:k={k}: this encoder has {len(layers)} layers; expected 0 to {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[k:]:
        layer.requires_grad_(True)
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and (norms or _above_all(name)):
            module.requires_grad_(True)


def _above_all(name: str) -> bool:
    """ModernBERT's norm after the last layer."""
    return name == "final_norm"


def _frozen_modules(model: Any, k: int) -> Iterator[nn.Module]:
    """The embeddings and the lowest k layers; nothing for k < 0."""
    if k < 0:
        return
    layers = layer_list(model)
    above = {id(module) for layer in layers[k:] for module in layer.modules()}
    holders = {id(module) for module in model.modules() if any(child is layers for child in module.modules())}
    yield from (module for module in model.modules() if id(module) not in above and id(module) not in holders)
