"""Parts of an encoder: its lower layers as a separate encoder, or its upper layers on given states."""

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
    """Copy the lowest ``depth`` layers of an encoder; their states 0 to ``depth`` equal those of the full encoder.

    The pooler and the native head read the state of the last layer, so they are removed.
    """
    layers = encoder.layers - 1
    if not 1 <= depth <= layers:
        raise BadInput(f"cannot truncate encoder {encoder.name} at layer {depth}: it has layers 1 to {layers}")
    truncated = encoder.copy()
    if depth == layers:
        return truncated
    truncate_layers(truncated.model, depth)
    truncate_injected(truncated.model, depth)
    truncated = replace(truncated, own=None, source=None, record={**encoder.record, "cut": depth})
    if encoder.delta is None:
        return truncated
    parameters = {name for name, _ in truncated.model.named_parameters()}
    names = tuple(name for name in encoder.delta.names if name in parameters)
    return replace(truncated, delta=replace(encoder.delta, base=replace(encoder.delta.base, cut=depth), names=names))


class StateInjector:
    """A forward hook that replaces the input of a layer by given states (batch, tokens, width)."""

    def __init__(self) -> None:
        self.states: Tensor | None = None

    def __call__(self, _layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.states is not None, "set states before calling the model"
        return (self.states.to(arguments[0].dtype), *arguments[1:])


@contextmanager
def upper_layers(model: Any, k: int) -> Iterator[StateInjector]:
    """Reduce a model to its layers above state ``k`` within the block; its state j is then state k + j of the full one.

    The layers are the same objects, so training within the block changes the full model.
    """
    if model.config.model_type == "albert":
        raise BadInput("ALBERT uses one layer repeatedly, so its lower layers cannot be left out")
    layers, injector = layer_list(model), StateInjector()
    if not 0 <= k < len(layers):
        raise BadInput(f"cannot start at state {k}: this encoder has layers 1 to {len(layers)}")
    conv = getattr(getattr(model, "encoder", None), "conv", None)  # deberta-v2: part of the first layer
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
