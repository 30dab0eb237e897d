"""Storage types of hidden states.

f32 is exact. f16 takes half the space with a relative error of 2e-4; values outside its range would become inf.
int8 takes a quarter with an error of about 7e-3: states are standardised per layer and channel, because a few
channels of BERT are tens of times larger than the rest, then scaled per token and layer:

    z = (x - mean[layer, channel]) / spread[layer, channel],  scale = max |z| / 127,  stored = round(z / scale)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bertvision.core.errors import BadInput, shorten

DTYPES = {"f32": torch.float32, "f16": torch.float16, "int8": torch.int8}
STEPS = 127


def storage_dtype(name: str) -> torch.dtype:
    """The type that states are stored in, by its name in the settings."""
    if name not in DTYPES:
        raise BadInput(f"extract.dtype is {shorten(name)}; expected f32, f16 or int8")
    return DTYPES[name]


def vector_dtype(name: str) -> torch.dtype:
    """The type of vectors that represent whole texts; f16 beside int8 states."""
    return torch.float16 if name == "int8" else storage_dtype(name)


def state_bytes(dtype: str, width: int) -> int:
    """Bytes of one state (one token at one layer)."""
    return width * storage_dtype(dtype).itemsize + (torch.float16.itemsize if dtype == "int8" else 0)


class Codec(ABC):
    """Encodes states into buffers of the storage type; buffers are named like the tensors of a shard."""

    pooled_dtype: torch.dtype  # storage type of the pooled CLS

    @abstractmethod
    def buffers(self, tokens: int, layers: int, width: int, **options: object) -> dict[str, Tensor]:
        """Empty buffers for ``tokens`` tokens; ``options`` are those of torch.empty."""

    def round(self, states: Tensor) -> Tensor:
        """States in their storage type if encoding only rounds them, to copy fewer bytes; else unchanged."""
        return states

    @abstractmethod
    def encode(self, buffers: Mapping[str, Tensor], index: int, states: Tensor) -> None:
        """Write states (tokens, width) of the layer at ``index`` into the buffers (tokens, layers, ...)."""

    def statistics(self) -> dict[str, Tensor]:
        """Tensors that are needed to decode the states."""
        return {}


class Plain(Codec):
    """f32 and f16: values rounded to the type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = self.pooled_dtype = storage_dtype(dtype)

    def buffers(self, tokens: int, layers: int, width: int, **options: object) -> dict[str, Tensor]:
        return {"hidden": torch.empty((tokens, layers, width), dtype=self.dtype, **options)}  # type: ignore[call-overload]

    def round(self, states: Tensor) -> Tensor:
        return states.to(self.dtype)

    def encode(self, buffers: Mapping[str, Tensor], index: int, states: Tensor) -> None:
        buffers["hidden"][:, index].copy_(states)


class Int8(Codec):
    """int8, standardised with statistics that are fixed before the first shard."""

    pooled_dtype = torch.float16

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        self.mean, self.spread = mean.cpu(), spread.cpu()  # (layers, width)

    def buffers(self, tokens: int, layers: int, width: int, **options: object) -> dict[str, Tensor]:
        hidden = torch.empty((tokens, layers, width), dtype=torch.int8, **options)  # type: ignore[call-overload]
        scales = torch.empty((tokens, layers), dtype=torch.float16, **options)  # type: ignore[call-overload]
        return {"hidden": hidden, "scales": scales}

    def encode(self, buffers: Mapping[str, Tensor], index: int, states: Tensor) -> None:
        mean, spread = self.mean[index].to(states.device), self.spread[index].to(states.device)  # (width,)
        z = (states - mean) / spread  # (tokens, width)
        scales = (z.abs().amax(1) / STEPS).half()  # (tokens,)
        # Divide by the rounded scale, which is what decoding multiplies by; rows of zeros have scale 0.
        steps = z / scales.float().masked_fill(scales == 0, 1.0)[:, None]
        buffers["hidden"][:, index].copy_(steps.round_().clamp_(-STEPS, STEPS))
        buffers["scales"][:, index].copy_(scales)

    def statistics(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "spread": self.spread}


def make_codec(dtype: str, statistics: Mapping[str, Tensor]) -> Codec:
    """The codec of a type; int8 needs the statistics of :func:`channel_statistics`."""
    return Int8(statistics["mean"], statistics["spread"]) if dtype == "int8" else Plain(dtype)


def channel_statistics(samples: Iterable[Tensor]) -> dict[str, Tensor]:
    """Mean and standard deviation of each channel of each layer over samples (tokens, layers, width)."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for sample in samples:
        exact = sample.double()
        count, total, squares = count + len(exact), total + exact.sum(0), squares + exact.square().sum(0)
    mean = total / count  # (layers, width)
    variance = (squares / count - mean.square()).clamp_min(0)
    spread = variance.sqrt().float()
    # A channel that is constant in the sample is not scaled.
    return {"mean": mean.float(), "spread": spread.masked_fill(spread < 1e-6, 1.0)}


def check_finite(shard: Mapping[str, Tensor], dtype: str) -> None:
    """Raise an error if a shard holds inf or NaN; minimum and maximum suffice, since NaN propagates to both."""
    for name in ("scales", "hidden", "apart"):
        if name in shard and shard[name].is_floating_point() and shard[name].numel():
            extremes = torch.stack(torch.aminmax(shard[name]))
            if not bool(torch.isfinite(extremes).all()):
                advice = "use --dtype f32" if dtype != "f32" else "the encoder itself computes them; tune it again"
                raise BadInput(f"states are not finite in {dtype}: the encoder's values overflow it; {advice}")


def decode_states(shard: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """States of the given tokens as f32 (rows, layers, width); gathering before converting is faster."""
    states = shard["hidden"].index_select(0, rows).float()
    if "scales" in shard:
        states.mul_(shard["scales"].index_select(0, rows).float()[..., None])
        torch.addcmul(shard["mean"], states, shard["spread"], out=states)
    return states


def decode_layer(shard: Mapping[str, Tensor], span: slice, index: int) -> Tensor:
    """States (tokens, width) of the layer at ``index`` as f32."""
    states = shard["hidden"][span, index].float()
    if "scales" not in shard:
        return states
    scaled = states * shard["scales"][span, index].float()[:, None]
    return torch.addcmul(shard["mean"][index], scaled, shard["spread"][index])
