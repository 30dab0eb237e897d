"""How states become bytes. f16 halves f32 at a relative error of 2e-4; outside its range it would be inf."""

from __future__ import annotations

import torch
from torch import Tensor

from bertvision.errors import BadInput

DTYPES = {"f32": torch.float32, "f16": torch.float16}


def codec_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise BadInput(f"store dtype {name!r} is not known; expected one of {', '.join(DTYPES)}")
    return DTYPES[name]


def check_finite(states: Tensor, dtype: str) -> None:
    """A state that left the range of its type (or was never a number) must not reach the disk."""
    if not bool(torch.isfinite(states).all()):
        raise BadInput(f"states are not finite in {dtype}: the encoder's values overflow it; use --dtype f32")
