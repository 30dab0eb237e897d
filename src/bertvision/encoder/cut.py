"""The lower part of an encoder as an encoder of its own: fewer layers, less time, the same states below the cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from bertvision.encoder.families import FAMILIES
from bertvision.encoder.load import Encoder
from bertvision.errors import BadInput


def cut_encoder(encoder: Encoder, depth: int) -> Encoder:
    """A copy with the lowest ``depth`` layers, whose states 0..depth are exactly those of the whole.

    The pooler and the head that it was tuned with look at the last layer's state, so they go with it.
    """
    layers = encoder.layers - 1
    if not 1 <= depth <= layers:
        raise BadInput(f"cannot cut encoder {encoder.name} at {depth}: it has layers 1 to {layers}")
    short = encoder.copy()
    if depth == layers:
        return short
    _cut(short.model, depth)
    if short.has_pooler:
        short.model.pooler = None
    return replace(short, own=None, record={**encoder.record, "cut": depth})


def _cut(model: Any, depth: int) -> None:
    config = model.config
    config.num_hidden_layers = depth
    if config.model_type == "albert":  # one layer that is used again and again: their number is all there is
        return
    set_layers(model, layer_list(model)[:depth])
    if config.model_type == "modernbert":
        config.layer_types = config.layer_types[:depth]
        config.tie_last_hidden_states = False  # else the last state would be the normalised one, unlike in the whole


def layer_list(model: Any) -> nn.ModuleList:
    """The layers of a model, as the families table says."""
    place = model.get_submodule(FAMILIES[model.config.model_type].layers)
    assert isinstance(place, nn.ModuleList)
    return place


def set_layers(model: Any, layers: nn.ModuleList) -> None:
    """Put other layers in their place; the model's settings stay as they are."""
    parent, _, name = FAMILIES[model.config.model_type].layers.rpartition(".")
    setattr(model.get_submodule(parent), name, layers)
