"""The layers of a model as the families table says: found, replaced, cut; and which modules are norms."""

from __future__ import annotations

from typing import Any

from torch import nn

from bertvision.encoders.architectures import FAMILIES


def layer_list(model: Any) -> nn.ModuleList:
    """The layers of a model; ALBERT's is one layer, used again and again."""
    place = model.get_submodule(FAMILIES[model.config.model_type].layers)
    assert isinstance(place, nn.ModuleList)
    return place


def set_layers(model: Any, layers: nn.ModuleList) -> None:
    """Put other layers in their place; the model's settings stay as they are."""
    parent, _, name = FAMILIES[model.config.model_type].layers.rpartition(".")
    setattr(model.get_submodule(parent), name, layers)


def one_for_all(model: Any) -> bool:
    """Whether one physical layer serves as all of them."""
    return bool(model.config.model_type == "albert")


def cut_layers(model: Any, depth: int) -> None:
    """Keep the lowest layers; the pooler looks at the last state, so it goes with the others."""
    config = model.config
    config.num_hidden_layers = depth
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    if one_for_all(model):  # their number is all there is
        return
    set_layers(model, layer_list(model)[:depth])
    if config.model_type == "modernbert":
        config.layer_types = config.layer_types[:depth]
        config.tie_last_hidden_states = False  # else the last state would be the normalised one, unlike in the whole


def is_norm(module: nn.Module) -> bool:
    """DeBERTa brings a layer norm of its own class."""
    return isinstance(module, nn.LayerNorm) or type(module).__name__.endswith("LayerNorm")
