"""Which of an encoder's own weights are trained: those above layer k, norms, biases.

Below layer K nothing is trained; so no graph is built there, nothing is dropped out, and each step costs
a forward pass only. Hulburd 2020 trained all norms beside the rest: ``norms=true``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from bertvision.core.errors import BadInput
from bertvision.encoders.architectures import is_norm, layer_list, shares_layers


def train_above(model: Any, k: int, what: str) -> None:
    """Embeddings and the lowest ``k`` layers stay as they are; ``what`` the user wrote is for the message."""
    if shares_layers(model):
        raise BadInput(
            f"{what}: ALBERT has one layer that is used again and again, so that some cannot be frozen; "
            "give full, bitfit, lora or adapters:share=all"
        )
    layers = layer_list(model)
    if not 0 <= k <= len(layers):
        raise BadInput(f"{what}: this encoder has {len(layers)} layers; expected 0 to {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[k:]:
        layer.requires_grad_(True)
    train_norms(model, above_all)


def train_norms(model: Any, chosen: Any) -> None:
    """Norms whose names ``chosen`` says yes to are trained too."""
    for name, module in model.named_modules():
        if is_norm(module) and chosen(name):
            module.requires_grad_(True)


def above_all(name: str) -> bool:
    """ModernBERT's norm after the last layer."""
    return name == "final_norm"


def train_biases(model: Any) -> None:
    """BitFit (Ben Zaken et al. 2022): every bias, those of norms included, and nothing else."""
    model.requires_grad_(False)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    if not biases:
        raise BadInput(f"bitfit: encoders of type {model.config.model_type} have no biases; give another --method")
    for bias in biases:
        bias.requires_grad_(True)


def frozen_modules(model: Any, k: int) -> Iterator[nn.Module]:
    """The embeddings and the lowest k layers; nothing for k < 0."""
    if k < 0:
        return
    layers = layer_list(model)
    above = {id(module) for layer in layers[k:] for module in layer.modules()}
    holders = {id(module) for module in model.modules() if any(child is layers for child in module.modules())}
    yield from (module for module in model.modules() if id(module) not in above and id(module) not in holders)
