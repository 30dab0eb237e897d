"""Bottleneck adapters in every layer (Houlsby et al. 2019; sharing: Mohebbi & Rajaei).

Two per layer, on the outputs of the last linear map of attention and of the feed-forward, before dropout,
residual and norm. They are forward hooks, and their weights live in a module of their own next to the layers, so
that the base keeps its modules and weight names. A shared adapter is one module at several sites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import Value, write_value
from bertvision.encoders.architectures import FAMILIES, layer_list, shares_layers

ADAPTER_POSITIONS = ("attention", "output")
"""Sites of adapters in a layer: after the projection of attention, and of the feed-forward."""

AdapterPosition = tuple[int, str]  # layer and site

_MAP = re.compile(r"\d+(-\d+)?(\+\d+(-\d+)?)*\Z")

ADAPTERS_ATTRIBUTE = "bottlenecks"
"""Attribute of a model that holds the adapters."""

START = 1e-3
"""Standard deviation of the initial weights: an adapter starts as nearly the identity."""


def sharing_groups(share: Value, layers: int) -> dict[AdapterPosition, int]:
    """The group of every place; groups are numbered by first appearance, so that equal sharings are equal."""
    numbers: dict[int, int] = {}
    groups = {}
    for layer, pair in enumerate(_pairs(share, layers)):
        for site, group in zip(ADAPTER_POSITIONS, pair, strict=True):
            groups[layer, site] = numbers.setdefault(group, len(numbers))
    return groups


def _pairs(share: Value, layers: int) -> list[tuple[int, int]]:
    """Groups of attention and output, layer by layer."""
    if share == "none":
        return [(2 * layer, 2 * layer + 1) for layer in range(layers)]
    if share == "all":
        return [(0, 0)] * layers
    if share == "layer" or (type(share) is int and share >= 1):
        consecutive = 1 if share == "layer" else int(share)
        return [(layer // consecutive, layer // consecutive) for layer in range(layers)]
    if not (isinstance(share, str) and re.search("[+-]", share) and _MAP.match(share)):
        raise BadInput(
            f"adapters:share={shorten(write_value(share))}: expected none, layer, all, a number of consecutive layers, "
            "or a group for every layer such as 0+0+1-2"
        )
    entries = [entry.split("-") for entry in share.split("+")]
    if len(entries) != layers:
        raise BadInput(
            f"adapters:share={shorten(share)} has groups for {len(entries)} layers, this encoder has {layers}; "
            f"give {layers} groups, or none, layer, all or a number of consecutive layers"
        )
    return [(int(entry[0]), int(entry[-1])) for entry in entries]


def truncate_share(share: Value, depth: int) -> Value:
    """The same sharing for the lowest layers only."""
    if not (isinstance(share, str) and "+" in share):
        return share
    first, *rest = share.split("+")[:depth]
    return "+".join([first if rest or "-" in first else f"{first}-{first}", *rest])  # a lone number means another thing


def format_sharing(groups: Mapping[AdapterPosition, int]) -> str:
    """A sharing as text that :func:`sharing` reads."""
    layers = 1 + max(layer for layer, _ in groups)
    return "+".join("-".join(str(groups[layer, site]) for site in ADAPTER_POSITIONS) for layer in range(layers))


class Bottleneck(nn.Module):
    """h + U gelu(D h + d) + u: 2 m H + m + H parameters for size m; starts as nearly the identity."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=START, a=-2 * START, b=2 * START)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        compressed = F.gelu(self.down(states))  # (..., width) -> (..., size)
        return states + cast(Tensor, self.up(compressed))  # (..., size) -> (..., width)


class AdapterHook:
    """The forward hook of one place; it can be switched off although its adapter is shared."""

    def __init__(self, adapter: nn.Module) -> None:
        self.adapter, self.on = adapter, True

    def __call__(self, _linear: nn.Module, _inputs: object, states: Tensor) -> Tensor:
        return cast(Tensor, self.adapter(states)) if self.on else states


class Bottlenecks(nn.ModuleList):
    """Adapters by layer and site: ``bottlenecks.3.attention.down.weight``; a shared one has several names."""

    def __init__(self, groups: Mapping[AdapterPosition, int], width: int, size: int) -> None:
        adapters = [Bottleneck(width, size) for _ in range(1 + max(groups.values()))]
        layers = range(1 + max(layer for layer, _ in groups))
        super().__init__(
            nn.ModuleDict({site: adapters[groups[layer, site]] for site in ADAPTER_POSITIONS}) for layer in layers
        )
        self.hooks = {(layer, site): AdapterHook(adapters[group]) for (layer, site), group in groups.items()}


def insert_adapters(model: Any, size: int, share: Value) -> None:
    """Add fresh adapters to a model; seed torch first."""
    groups = sharing_groups(share, int(model.config.num_hidden_layers))
    if shares_layers(model):
        groups = _of_shared_layer(model, groups, share)
    adapters = Bottlenecks(groups, int(model.config.hidden_size), size)
    setattr(model, ADAPTERS_ATTRIBUTE, adapters)
    family = FAMILIES[model.config.model_type]
    for number, layer in enumerate(layer_list(model)):
        for site in ADAPTER_POSITIONS:
            layer.get_submodule(getattr(family, site)).register_forward_hook(adapters.hooks[number, site])


def _of_shared_layer(model: Any, groups: dict[AdapterPosition, int], share: Value) -> dict[AdapterPosition, int]:
    """The places of the one physical layer that ALBERT uses as all of them."""
    physical = model.config.num_hidden_groups * model.config.inner_group_num
    if physical > 1:
        raise BadInput(f"adapters: this ALBERT has {physical} layers that take turns, expected one; give full or lora")
    if any(groups[layer, site] != groups[0, site] for layer, site in groups):
        raise BadInput(
            f"adapters:share={write_value(share)}: ALBERT has one layer that is used again and again, so its adapters "
            "cannot differ from layer to layer; give share=all"
        )
    return {(0, site): groups[0, site] for site in ADAPTER_POSITIONS}


def adapters_of(model: Any) -> Bottlenecks | None:
    """The adapters of a model."""
    return cast("Bottlenecks | None", getattr(model, ADAPTERS_ATTRIBUTE, None))


def truncate_adapters(model: Any, depth: int) -> None:
    """Remove the adapters of layers above ``depth``."""
    adapters = adapters_of(model)
    if adapters is not None and not shares_layers(model):
        del adapters[depth:]
        adapters.hooks = {place: insert for place, insert in adapters.hooks.items() if place[0] < depth}


@contextmanager
def disabled_adapters(model: Any, first: int, last: int) -> Iterator[None]:
    """Switch off the adapters of layers ``first`` to ``last``, counted from 1, within the block."""
    adapters = adapters_of(model)
    if adapters is None:
        raise BadInput("this encoder has no adapters that could be switched off; tune with --method adapters")
    if shares_layers(model):
        raise BadInput("ALBERT has one layer that is used again and again; adapters of some cannot be switched off")
    chosen = [insert for (layer, _), insert in adapters.hooks.items() if first <= layer + 1 <= last]
    previous = [insert.on for insert in chosen]
    for insert in chosen:
        insert.on = False
    try:
        yield
    finally:
        for insert, was in zip(chosen, previous, strict=True):
            insert.on = was
