"""How states become bytes and states again.

f32 keeps every bit. f16 halves that at a relative error of 2e-4; outside its range it would be inf.
int8 halves it again, at about 7e-3: states are standardised per layer and channel, because a few
channels of a BERT are tens of times larger than the rest and would leave one or two steps for the
others, then scaled per token and layer:

    z = (x - mean[layer, channel]) / spread[layer, channel],  scale = max |z| / 127,  stored = round(z / scale)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bertvision.core.errors import BadInput

DTYPES = {"f32": torch.float32, "f16": torch.float16, "int8": torch.int8}
STEPS = 127
STATISTICS = ("mean", "spread")


def codec_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise BadInput(f"store dtype {name!r} is not known; expected one of {', '.join(DTYPES)}")
    return DTYPES[name]


def state_bytes(dtype: str, width: int) -> int:
    """Bytes of one state (a token at a layer)."""
    return width * codec_dtype(dtype).itemsize + (torch.float16.itemsize if dtype == "int8" else 0)


class Codec(ABC):
    """Puts states into buffers of the store's type; buffers have the names of a shard's tensors."""

    small: torch.dtype  # of what lies beside the states, such as the pooled CLS

    @abstractmethod
    def buffers(self, tokens: int, layers: int, width: int, **where: object) -> dict[str, Tensor]:
        """Room for that many tokens."""

    def narrow(self, states: Tensor) -> Tensor:
        """States in the type they are stored in, where no more than rounding is to be done: less to move about."""
        return states

    @abstractmethod
    def put(self, buffers: Mapping[str, Tensor], place: int, states: Tensor) -> None:
        """States (tokens, width) of the layer at ``place`` into the buffers (tokens, layers, ...)."""

    def statistics(self) -> dict[str, Tensor]:
        """What must lie beside the states to read them."""
        return {}


class Plain(Codec):
    """Numbers as they are, rounded to the type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = self.small = codec_dtype(dtype)

    def buffers(self, tokens: int, layers: int, width: int, **where: object) -> dict[str, Tensor]:
        return {"hidden": torch.empty((tokens, layers, width), dtype=self.dtype, **where)}  # type: ignore[call-overload]

    def narrow(self, states: Tensor) -> Tensor:
        return states.to(self.dtype)

    def put(self, buffers: Mapping[str, Tensor], place: int, states: Tensor) -> None:
        buffers["hidden"][:, place].copy_(states)


class Int8(Codec):
    """Standardised by statistics that were fixed before the first state was stored."""

    small = torch.float16

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        self.mean, self.spread = mean.cpu(), spread.cpu()  # (layers, width)

    def buffers(self, tokens: int, layers: int, width: int, **where: object) -> dict[str, Tensor]:
        hidden = torch.empty((tokens, layers, width), dtype=torch.int8, **where)  # type: ignore[call-overload]
        scales = torch.empty((tokens, layers), dtype=torch.float16, **where)  # type: ignore[call-overload]
        return {"hidden": hidden, "scales": scales}

    def put(self, buffers: Mapping[str, Tensor], place: int, states: Tensor) -> None:
        mean, spread = (one[place].to(states.device) for one in (self.mean, self.spread))  # (width,)
        z = (states - mean) / spread  # (tokens, width)
        scales = (z.abs().amax(1) / STEPS).half()  # (tokens,)
        # Rounded first, so that what is divided by here is what is multiplied by later; all zeros need no scale.
        steps = z / scales.float().masked_fill(scales == 0, 1.0)[:, None]
        buffers["hidden"][:, place].copy_(steps.round_().clamp_(-STEPS, STEPS))
        buffers["scales"][:, place].copy_(scales)

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
    # A channel that does not vary in the sample has no scale of its own.
    return {"mean": mean.float(), "spread": spread.masked_fill(spread < 1e-6, 1.0)}


def check_finite(shard: Mapping[str, Tensor], dtype: str) -> None:
    """A state that left the range of its type (or was never a number) must not reach the disk.

    Smallest and largest tell it all: inf is one of them, and a NaN spreads to both.
    """
    for name in ("scales", "hidden"):
        if name in shard and shard[name].is_floating_point() and shard[name].numel():
            extremes = torch.stack(torch.aminmax(shard[name]))
            if not bool(torch.isfinite(extremes).all()):
                way = "use --dtype f32" if dtype != "f32" else "the encoder itself gives them; tune it again"
                raise BadInput(f"states are not finite in {dtype}: the encoder's values overflow it; {way}")


def decoded(shard: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """States of these tokens as f32 (rows, layers, width).

    Gathered first and turned into f32 then: two passes in large pieces are faster than one in small ones.
    """
    states = shard["hidden"].index_select(0, rows).float()
    if "scales" in shard:
        states.mul_(shard["scales"].index_select(0, rows).float()[..., None])
        torch.addcmul(shard["mean"], states, shard["spread"], out=states)
    return states


def decode_layer(shard: Mapping[str, Tensor], span: slice, place: int) -> Tensor:
    """States (tokens, width) of one layer as f32."""
    states = shard["hidden"][span, place].float()
    if "scales" not in shard:
        return states
    scaled = states * shard["scales"][span, place].float()[:, None]
    return torch.addcmul(shard["mean"][place], scaled, shard["spread"][place])
