"""Bottleneck adapters in every layer (Houlsby et al. 2019), optionally shared (Mohebbi and Rajaei).

Each layer has two, on the outputs of the last linear maps of attention and of the feed-forward, before dropout,
residual and norm. They run as forward hooks, and their weights are in a separate module next to the layers, so that the
modules and weight names of the base stay as they are. A shared adapter is one module in several positions.
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
"""Positions of adapters in a layer: after the projections of attention and of the feed-forward."""

AdapterPosition = tuple[int, str]  # layer, and one of the positions above

_SHARE_MAP = re.compile(r"\d+(-\d+)?(\+\d+(-\d+)?)*\Z")

ADAPTERS_ATTRIBUTE = "bottlenecks"
"""Attribute of a model that contains its adapters."""

INIT_STD = 1e-3
"""Standard deviation of the initial weights; adapters start close to the identity."""


def sharing_groups(share: Value, layers: int) -> dict[AdapterPosition, int]:
    """The group of each position; groups are numbered by first appearance, so equal sharings have equal groups."""
    numbers: dict[int, int] = {}
    groups = {}
    for layer, pair in enumerate(_group_pairs(share, layers)):
        for name, group in zip(ADAPTER_POSITIONS, pair, strict=True):
            groups[layer, name] = numbers.setdefault(group, len(numbers))
    return groups


def _group_pairs(share: Value, layers: int) -> list[tuple[int, int]]:
    """Groups of the two positions, layer by layer."""
    if share == "none":
        return [(2 * layer, 2 * layer + 1) for layer in range(layers)]
    if share == "all":
        return [(0, 0)] * layers
    if share == "layer" or (type(share) is int and share >= 1):
        consecutive = 1 if share == "layer" else int(share)
        return [(layer // consecutive, layer // consecutive) for layer in range(layers)]
    if not (isinstance(share, str) and re.search("[+-]", share) and _SHARE_MAP.match(share)):
        raise BadInput(
            f"adapters:share={shorten(write_value(share))}: expected none, layer, all, a number of consecutive layers, "
            "or a group for every layer such as 0+0+1-2"
        )
    entries = [entry.split("-") for entry in share.split("+")]
    if len(entries) != layers:
        raise BadInput(
            f"adapters:share={shorten(share)} has groups for {len(entries)} layers, this encoder has {layers}; "
            f"use {layers} groups, or none, layer, all or a number of consecutive layers"
        )
    return [(int(entry[0]), int(entry[-1])) for entry in entries]


def truncate_share(share: Value, depth: int) -> Value:
    """The sharing of the lowest ``depth`` layers."""
    if not (isinstance(share, str) and "+" in share):
        return share
    first, *rest = share.split("+")[:depth]
    if not rest and "-" not in first:
        first = f"{first}-{first}"  # a single number would mean consecutive layers
    return "+".join([first, *rest])


class Bottleneck(nn.Module):
    """h + U gelu(D h + d) + u; 2 m H + m + H parameters for size m."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        compressed = F.gelu(self.down(states))  # (..., width) -> (..., size)
        return states + cast(Tensor, self.up(compressed))  # (..., size) -> (..., width)


class AdapterHook:
    """The forward hook of one position, which can be disabled even if other positions share its adapter."""

    def __init__(self, adapter: nn.Module) -> None:
        self.adapter, self.enabled = adapter, True

    def __call__(self, _linear: nn.Module, _inputs: object, states: Tensor) -> Tensor:
        return cast(Tensor, self.adapter(states)) if self.enabled else states


class Bottlenecks(nn.ModuleList):
    """Adapters by layer and position: ``bottlenecks.3.attention.down.weight``; a shared one has several names."""

    def __init__(self, groups: Mapping[AdapterPosition, int], width: int, size: int) -> None:
        adapters = [Bottleneck(width, size) for _ in range(1 + max(groups.values()))]
        layers = range(1 + max(layer for layer, _ in groups))
        super().__init__(
            nn.ModuleDict({name: adapters[groups[layer, name]] for name in ADAPTER_POSITIONS}) for layer in layers
        )
        self.hooks = {position: AdapterHook(adapters[group]) for position, group in groups.items()}


def insert_adapters(model: Any, size: int, share: Value) -> None:
    """Add adapters with fresh weights to a model; seed torch first."""
    groups = sharing_groups(share, int(model.config.num_hidden_layers))
    if shares_layers(model):
        groups = _groups_of_shared_layer(model, groups, share)
    adapters = Bottlenecks(groups, int(model.config.hidden_size), size)
    setattr(model, ADAPTERS_ATTRIBUTE, adapters)
    family = FAMILIES[model.config.model_type]
    for index, layer in enumerate(layer_list(model)):
        for name in ADAPTER_POSITIONS:
            layer.get_submodule(getattr(family, name)).register_forward_hook(adapters.hooks[index, name])


def _groups_of_shared_layer(model: Any, groups: dict[AdapterPosition, int], share: Value) -> dict[AdapterPosition, int]:
    """The groups of ALBERT, whose layers are one physical layer."""
    physical = model.config.num_hidden_groups * model.config.inner_group_num
    if physical > 1:
        raise BadInput(f"adapters: this ALBERT has {physical} alternating layers, expected one; use full or lora")
    if any(groups[layer, name] != groups[0, name] for layer, name in groups):
        raise BadInput(
            f"adapters:share={write_value(share)}: ALBERT uses one layer repeatedly, so its adapters cannot differ "
            "between layers; use share=all"
        )
    return {(0, name): groups[0, name] for name in ADAPTER_POSITIONS}


def adapters_of(model: Any) -> Bottlenecks | None:
    """The adapters of a model, if it has any."""
    return cast("Bottlenecks | None", getattr(model, ADAPTERS_ATTRIBUTE, None))


def truncate_adapters(model: Any, depth: int) -> None:
    """Remove the adapters of layers above ``depth``."""
    adapters = adapters_of(model)
    if adapters is not None and not shares_layers(model):
        del adapters[depth:]
        adapters.hooks = {position: hook for position, hook in adapters.hooks.items() if position[0] < depth}


@contextmanager
def disabled_adapters(model: Any, first: int, last: int) -> Iterator[None]:
    """Disable the adapters of layers ``first`` to ``last``, counted from 1, within the block."""
    adapters = adapters_of(model)
    if adapters is None:
        raise BadInput("this encoder has no adapters to disable; tune with --method adapters")
    if shares_layers(model):
        raise BadInput("ALBERT uses one layer repeatedly, so adapters of single layers cannot be disabled")
    hooks = [hook for (layer, _), hook in adapters.hooks.items() if first <= layer + 1 <= last]
    previous = [hook.enabled for hook in hooks]
    for hook in hooks:
        hook.enabled = False
    try:
        yield
    finally:
        for hook, was_enabled in zip(hooks, previous, strict=True):
            hook.enabled = was_enabled
