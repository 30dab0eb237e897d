"""The lower part of an encoder as an encoder of its own: fewer layers, less time, the same states below the cut."""

from __future__ import annotations

from dataclasses import replace

from bertvision.core.errors import BadInput
from bertvision.encoders.layers import cut_layers
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
    if encoder.small is None:
        return short
    left = {name for name, _ in short.model.named_parameters()}
    names = tuple(name for name in encoder.small.names if name in left)
    return replace(short, small=replace(encoder.small, base=replace(encoder.small.base, cut=depth), names=names))
