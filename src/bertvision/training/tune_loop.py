"""The loop of tuning: which batch is whose turn, when the state is written down, what is said when memory runs out.

Not a step itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertvision.core.config import TuneConfig
from bertvision.core.records import Window
from bertvision.core.runtime import Timer, gentle_stop, progress, say
from bertvision.store.batching import reading_batches
from bertvision.training.tuner import Tuning

SAVED = "tuning.safetensors"
"""In a run folder, the state of a tuning that is not done; it goes when it is."""


def resume(tuning: Tuning, saved: Path | None, made_from: str) -> None:
    """Take up the state in ``saved``, if it is there and was made from the same."""
    if saved is not None and tuning.restore(saved, made_from):
        say(f"tune: goes on after step {tuning.step:,} of {tuning.steps:,} ({saved})")


def run_to(tuning: Tuning, windows: Sequence[Window], until: int, saved: Path | None, made_from: str) -> None:
    """Every step up to ``until``, on batches of windows."""
    run_batches(tuning, batches_from(windows, tuning.config, tuning.step, until), until, saved, made_from)


def run_batches(tuning: Tuning, batches: Iterator[Any], until: int, saved: Path | None, made_from: str) -> None:
    """A step a batch; the state is written down every few minutes and when asked to stop."""
    since = Timer()
    with gentle_stop() as asked:
        for batch in progress(batches, "tune", total=until - tuning.step, unit="step"):
            _advance(tuning, batch)
            stop = asked()
            if saved is not None and tuning.team.leads and (stop or since.seconds > 60 * tuning.config.save_minutes):
                tuning.save(saved, made_from)
                since = Timer()
            if stop:
                raise KeyboardInterrupt


def _advance(tuning: Tuning, batch: Sequence[Any]) -> None:
    try:
        tuning.advance(batch)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        pieces = 2 * tuning.config.accumulate
        raise MemoryError(
            f"tuning ran out of memory at {len(batch)} texts of up to {max(map(len, batch))} tokens; the same in "
            f"smaller pieces: --set tune.accumulate={pieces}, or slower: --set tune.checkpointing=true"
        ) from error


def steps_of(windows: int, config: TuneConfig, epochs: float | None = None) -> int:
    """Optimiser steps of so many epochs, or of all."""
    return round((config.epochs if epochs is None else epochs) * math.ceil(windows / config.batch))


def batches_from(windows: Sequence[Window], config: TuneConfig, first: int, steps: int) -> Iterator[list[Window]]:
    """The batches of steps ``first`` to ``steps``: epoch after epoch, shuffled, of near-equal length."""
    lengths = np.array([len(window) for window in windows])
    per_epoch = math.ceil(len(windows) / config.batch)
    for epoch in range(first // per_epoch, math.ceil(steps / per_epoch)):
        dealt = reading_batches(lengths, config.batch, np.random.default_rng([config.seed, epoch]))
        begin, end = max(0, first - epoch * per_epoch), min(per_epoch, steps - epoch * per_epoch)
        for chosen in dealt[begin:end]:
            yield [windows[i] for i in chosen]
