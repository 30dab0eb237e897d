"""How long things take in turns, so that a busy machine slows all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from bertvision.core.progress import Timer
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder

WINDOWS, ROUNDS = 16, 5


def interleaved_seconds(works: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds of each in every round."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, mine in zip(works, seconds, strict=True):
            timer = Timer()
            work()
            mine.append(timer.seconds)
    return seconds


def median_encoder_seconds(encoders: Sequence[Encoder], windows: Sequence[Window]) -> list[float]:
    """Median seconds of each over the longest few of the windows, on the CPU, up to its last state."""
    import torch

    longest, works = sorted(windows, key=len)[-WINDOWS:], []
    for encoder in encoders:
        batch = collate(longest, encoder.tokenizer.pad_token_id, torch.device("cpu"))
        works.append(partial(hidden_states, encoder.model.cpu().eval(), batch, (encoder.layers - 1,)))
    with torch.inference_mode():
        return [median(seconds) for seconds in interleaved_seconds(works, ROUNDS)]
