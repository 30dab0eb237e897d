"""The lower part of an encoder as an encoder of its own: fewer layers, less time, the same states below the cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.encoders.architectures import cut_layers, layer_list, set_layers
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import cut_inside


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
    cut_layers(short.model, depth)
    cut_inside(short.model, depth)
    short = replace(short, own=None, source=None, record={**encoder.record, "cut": depth})
    if encoder.delta is None:
        return short
    left = {name for name, _ in short.model.named_parameters()}
    names = tuple(name for name in encoder.delta.names if name in left)
    return replace(short, delta=replace(encoder.delta, base=replace(encoder.delta.base, cut=depth), names=names))


class StateInjector:
    """Holds the states (batch, tokens, width) that the next call begins with."""

    def __init__(self) -> None:
        self.states: Tensor | None = None

    def __call__(self, _layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.states is not None, "give the states before the model is called"
        return (self.states.to(arguments[0].dtype), *arguments[1:])


@contextmanager
def upper_layers(model: Any, k: int) -> Iterator[StateInjector]:
    """Within the block the model is its layers above state ``k``; its state j is then the whole one's k + j.

    The layers are the same objects, so that what is trained in the block stays trained after it.
    """
    if model.config.model_type == "albert":
        raise BadInput("ALBERT has one layer that is used again and again; its lower part cannot be left out")
    layers, feed = layer_list(model), StateInjector()
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
