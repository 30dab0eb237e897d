"""Tune an encoder together with one head, for any number of epochs or a fraction of one.

A fraction is a whole run of that length, with its own warm-up and decay, not the beginning of a
longer one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertvision.core.config import TuneConfig
from bertvision.core.runtime import choose_device, seeded
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training.distributed import joined_team
from bertvision.training.inputs import split_windows
from bertvision.training.tune_loop import resume, run_to, steps_of
from bertvision.training.tune_setup import begin, finished, settled, tune_hash


def tune(
    encoder: Encoder,
    task: Task,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> Encoder:
    """A tuned copy of an encoder, e.g. ``tune(encoder, task, epochs=0.3)``; the given one is left as it is.

    ``saved`` is a file to write the state to on the way; if it is there, made from the very same, tuning
    goes on from it and ends as if it had never stopped.
    """
    config = settled(config, encoder, task, **settings)
    device = choose_device(config.device)
    windows = split_windows(task, "train", encoder)
    made_from = tune_hash(encoder, task, config)
    with seeded(config.seed), joined_team() as team:
        tuning = begin(encoder, task, config, steps_of(len(windows), config), device, team)
        resume(tuning, saved, made_from)
        run_to(tuning, windows, tuning.steps, saved, made_from)
    if saved is not None and team.leads:
        saved.unlink(missing_ok=True)
    return finished(tuning, task, "whole run")
