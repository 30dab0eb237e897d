"""The upper layers of an encoder, run from stored states: what lies below never changes, so it need not run again.

The stock forward is kept: masks, rotary tables and relative positions are the model's own. Only the
list of layers begins at k, and the states that enter it are replaced by those given. The embeddings
still run, on their cheap way to being replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.encoders.layers import layer_list, set_layers


class Feed:
    """Holds the states (batch, tokens, width) that the next call begins with."""

    def __init__(self) -> None:
        self.states: Tensor | None = None

    def __call__(self, _layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.states is not None, "give the states before the model is called"
        return (self.states.to(arguments[0].dtype), *arguments[1:])


@contextmanager
def started_at(model: Any, k: int) -> Iterator[Feed]:
    """Within the block the model is its layers above state ``k``; its state j is then the whole one's k + j.

    The layers are the same objects, so that what is trained in the block stays trained after it.
    """
    if model.config.model_type == "albert":
        raise BadInput("ALBERT has one layer that is used again and again; its lower part cannot be left out")
    layers, feed = layer_list(model), Feed()
    if not 0 <= k < len(layers):
        raise BadInput(f"cannot start at state {k}: this encoder has layers 1 to {len(layers)}")
    conv = getattr(getattr(model, "encoder", None), "conv", None)  # of deberta-v2: it belongs to the first layer
    set_layers(model, nn.ModuleList(layers[k:]))
    model.config.num_hidden_layers = len(layers) - k
    if conv is not None and k > 0:
        model.encoder.conv = None
    hook = layers[k].register_forward_pre_hook(feed)
    try:
        yield feed
    finally:
        hook.remove()
        set_layers(model, layers)
        model.config.num_hidden_layers = len(layers)
        if conv is not None:
            model.encoder.conv = conv
