"""Timing of several encoders in alternation, so that other load on the machine affects them equally."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from bertvision.core.progress import Timer
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder

WINDOWS, ROUNDS = 16, 5


def interleaved_seconds(functions: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds per function and round; every round calls all functions once."""
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, timings in zip(functions, seconds, strict=True):
            timer = Timer()
            function()
            timings.append(timer.seconds)
    return seconds


def median_encoder_seconds(encoders: Sequence[Encoder], windows: Sequence[Window]) -> list[float]:
    """Median seconds of each encoder for the longest windows, on the CPU, up to its last layer."""
    import torch

    longest, passes = sorted(windows, key=len)[-WINDOWS:], []
    for encoder in encoders:
        batch = collate(longest, encoder.tokenizer.pad_token_id, torch.device("cpu"))
        passes.append(partial(hidden_states, encoder.model.cpu().eval(), batch, (encoder.layers - 1,)))
    with torch.inference_mode():
        return [median(seconds) for seconds in interleaved_seconds(passes, ROUNDS)]
