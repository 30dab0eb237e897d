"""Faster dropout masks on the CPU.

torch draws the random numbers of a mask one at a time in one thread, which takes a tenth of a tuning step with one
thread and a fifth with two. numpy fills the same masks from 16 random bits per number:

    keep where u < round(65536 p),  u uniform in 0 .. 65535

The probability deviates by less than 1e-5. The seed of each mask comes from torch's generator, so that saving torch's
state is enough to resume bit-exactly.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

LEVELS = 2**16


class FastDropoutMasks(TorchDispatchMode):
    """Fill masks (``bernoulli_`` of float tensors on the CPU) with numpy; other operations are unchanged."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.bernoulli_.float and kwargs.get("generator") is None:
            mask: Tensor = args[0]
            if mask.device.type == "cpu" and mask.is_floating_point() and mask.is_contiguous():
                keep = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
                generator = np.random.SFC64(int(torch.randint(2**62, ())))
                words = generator.random_raw(-(-mask.numel() // 4))  # 64 bits each, for four numbers
                numbers = words.view(np.uint16)[: mask.numel()]
                return mask.copy_(torch.from_numpy(numbers < round(keep * LEVELS)).view(mask.shape))
        return func(*args, **kwargs)


def fast_dropout(device: torch.device, checkpointing: bool) -> AbstractContextManager[object]:
    """Context manager for the forward pass of a training step.

    It does nothing on a GPU, and with checkpointing, which must draw the same masks when it recomputes states.
    """
    if device.type != "cpu" or checkpointing:
        return nullcontext()
    return FastDropoutMasks()  # type: ignore[no-untyped-call]
