"""Parts of an encoder: its lower layers as an encoder of their own, or its upper layers, fed with stored states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.encoders.architectures import layer_list, set_layers, truncate_layers
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import truncate_injected


def truncate_encoder(encoder: Encoder, depth: int) -> Encoder:
    """A copy with the lowest ``depth`` layers, whose states 0..depth equal those of the full encoder.

    The pooler and the head it was tuned with read the last layer's state, so they are removed.
    """
    layers = encoder.layers - 1
    if not 1 <= depth <= layers:
        raise BadInput(f"cannot cut encoder {encoder.name} at {depth}: it has layers 1 to {layers}")
    short = encoder.copy()
    if depth == layers:
        return short
    truncate_layers(short.model, depth)
    truncate_injected(short.model, depth)
    short = replace(short, own=None, source=None, record={**encoder.record, "cut": depth})
    if encoder.delta is None:
        return short
    kept = {name for name, _ in short.model.named_parameters()}
    names = tuple(name for name in encoder.delta.names if name in kept)
    return replace(short, delta=replace(encoder.delta, base=replace(encoder.delta.base, cut=depth), names=names))


class StateInjector:
    """A forward hook that replaces the input of a layer by given states (batch, tokens, width)."""

    def __init__(self) -> None:
        self.states: Tensor | None = None

    def __call__(self, _layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.states is not None, "give the states before the model is called"
        return (self.states.to(arguments[0].dtype), *arguments[1:])


@contextmanager
def upper_layers(model: Any, k: int) -> Iterator[StateInjector]:
    """Reduce the model to its layers above state ``k`` within the block; its state j is then the full model's k + j.

    The layers are the same objects, so that training within the block changes the full model.
    """
    if model.config.model_type == "albert":
        raise BadInput("ALBERT has one layer that is used again and again; its lower part cannot be left out")
    layers, injector = layer_list(model), StateInjector()
    if not 0 <= k < len(layers):
        raise BadInput(f"cannot start at state {k}: this encoder has layers 1 to {len(layers)}")
    conv = getattr(getattr(model, "encoder", None), "conv", None)  # of deberta-v2: it belongs to the first layer
    set_layers(model, nn.ModuleList(layers[k:]))
    model.config.num_hidden_layers = len(layers) - k
    if conv is not None and k > 0:
        model.encoder.conv = None
    hook = layers[k].register_forward_pre_hook(injector)
    try:
        yield injector
    finally:
        hook.remove()
        set_layers(model, layers)
        model.config.num_hidden_layers = len(layers)
        if conv is not None:
            model.encoder.conv = conv
