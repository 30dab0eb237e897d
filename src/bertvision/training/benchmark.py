"""How long encoders take over the same windows, in turns, so that a busy machine slows all alike."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bertvision.core.progress import Timer
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder

WINDOWS, ROUNDS = 16, 5


def seconds_in_turns(encoders: Sequence[Encoder], windows: Sequence[Window]) -> list[float]:
    """Median seconds of each over the longest few of the windows, on the CPU, up to its last state."""
    import torch

    longest = sorted(windows, key=len)[-WINDOWS:]
    taken: list[list[float]] = [[] for _ in encoders]
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for encoder, seconds in zip(encoders, taken, strict=True):
                batch = collate(longest, encoder.tokenizer.pad_token_id, torch.device("cpu"))
                timer = Timer()
                hidden_states(encoder.model.cpu().eval(), batch, (encoder.layers - 1,))
                seconds.append(timer.seconds)
    return [median(seconds) for seconds in taken]
