"""Module names of the encoder families of transformers, and operations on their layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from bertvision.core.errors import BadInput


@dataclass(frozen=True)
class Family:
    """A supported model type and the names of its modules.

    ``attention`` and ``output`` are the last linear maps of attention and of the feed-forward within a layer, before
    dropout, residual and norm. ``lora`` are the maps that LoRA adapts: queries and values, or the one map of both.
    """

    model_type: str
    layers: str  # the list of layers
    pooler: bool  # whether the model may have a pooler
    attention: str = "attention.output.dense"
    output: str = "output.dense"
    lora: tuple[str, ...] = ("query", "value")


FAMILIES = {
    row.model_type: row
    for row in (
        Family("bert", "encoder.layer", pooler=True),
        Family("roberta", "encoder.layer", pooler=True),
        Family("xlm-roberta", "encoder.layer", pooler=True),
        Family("camembert", "encoder.layer", pooler=True),
        Family("electra", "encoder.layer", pooler=False),
        Family("deberta", "encoder.layer", pooler=False, lora=("in_proj",)),
        Family("deberta-v2", "encoder.layer", pooler=False, lora=("query_proj", "value_proj")),
        Family("mpnet", "encoder.layer", pooler=True, attention="attention.attn.o", lora=("attn.q", "attn.v")),
        Family(
            "distilbert",
            "transformer.layer",
            pooler=False,
            attention="attention.out_lin",
            output="ffn.lin2",
            lora=("q_lin", "v_lin"),
        ),
        Family("modernbert", "layers", pooler=False, attention="attn.Wo", output="mlp.Wo", lora=("attn.Wqkv",)),
        Family(
            "albert",
            "encoder.albert_layer_groups.0.albert_layers",
            pooler=True,
            attention="attention.dense",
            output="ffn_output",
        ),
    )
}


def family_of(model_type: str, name: str) -> Family:
    """The family of a model type; ``name`` is the encoder in the error for unknown types."""
    if model_type not in FAMILIES:
        raise BadInput(f"encoder {name} has model type {model_type!r}; supported: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[model_type]


def layer_list(model: Any) -> nn.ModuleList:
    """The layers of a model; ALBERT has a single one, which is used repeatedly."""
    layers = model.get_submodule(FAMILIES[model.config.model_type].layers)
    assert isinstance(layers, nn.ModuleList)
    return layers


def set_layers(model: Any, layers: nn.ModuleList) -> None:
    """Replace the layers of a model without changing its config."""
    parent, _, name = FAMILIES[model.config.model_type].layers.rpartition(".")
    setattr(model.get_submodule(parent), name, layers)


def shares_layers(model: Any) -> bool:
    """Whether all layers are one physical layer."""
    return bool(model.config.model_type == "albert")


def truncate_layers(model: Any, depth: int) -> None:
    """Keep the lowest ``depth`` layers; the pooler, which reads the last state, is removed."""
    config = model.config
    config.num_hidden_layers = depth
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    if shares_layers(model):  # only their number changes
        return
    set_layers(model, layer_list(model)[:depth])
    if config.model_type == "modernbert":
        config.layer_types = config.layer_types[:depth]
        config.tie_last_hidden_states = False  # or the last state would be normalised, unlike in the full model


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a layer norm; DeBERTa has its own class."""
    return isinstance(module, nn.LayerNorm) or type(module).__name__.endswith("LayerNorm")
