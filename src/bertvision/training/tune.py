"""Tune an encoder together with one head, for any number of epochs or a fraction of one.

A fraction is a whole run of that length, with its own warm-up and decay, not the beginning of a
longer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertvision.core.config import TuneConfig, updated
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, log_line, progress
from bertvision.core.records import Window
from bertvision.core.runtime import choose_device, graceful_interrupt, peak_bytes, seeded
from bertvision.encoders.delta_weights import BaseRef, DeltaWeights, check_place, model_hash, without_weights
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder, OwnHead
from bertvision.encoders.methods import added_names, head_of, prepare, read_method, saves_delta
from bertvision.heads.base import Head, build_head
from bertvision.store.batching import read_batches
from bertvision.tasks.recipe_defaults import method_defaults
from bertvision.tasks.task import Task
from bertvision.training.distributed import Team, joined_team
from bertvision.training.inputs import (
    data_hash,
    encoder_hash,
    label_weights,
    plain_head,
    split_windows,
    task_shape,
    window_settings,
)
from bertvision.training.tuner import WATCHED, Tuner

SAVED = "tuning.safetensors"
"""In a run folder, the state of a tuning that is not done; it goes when it is."""

BERT_WIDTH = 768

SMALL_TIMES = {"bitfit": 20, "lora": 10}
"""Where little is trained rates are higher, by so much: at BERT's width Ben Zaken's 1e-3 and Hu's 5e-4, with minilm
about what inner of MRPC preferred. Those of adapters depend on the task."""


def resume(tuning: Tuner, saved: Path | None, made_from: str) -> None:
    """Take up the state in ``saved``, if it is there and was made from the same."""
    if saved is not None and tuning.restore(saved, made_from):
        log_line(f"tune: goes on after step {tuning.step:,} of {tuning.steps:,} ({saved})")


def run_to(tuning: Tuner, windows: Sequence[Window], until: int, saved: Path | None, made_from: str) -> None:
    """Every step up to ``until``, on batches of windows."""
    run_batches(tuning, batches_from(windows, tuning.config, tuning.step, until), until, saved, made_from)


def run_batches(tuning: Tuner, batches: Iterator[Any], until: int, saved: Path | None, made_from: str) -> None:
    """A step a batch; the state is written down every few minutes and when asked to stop."""
    since = Timer()
    with graceful_interrupt() as asked:
        for batch in progress(batches, "tune", total=until - tuning.step, unit="step"):
            _advance(tuning, batch)
            stop = asked()
            if saved is not None and tuning.team.leads and (stop or since.seconds > 60 * tuning.config.save_minutes):
                tuning.save(saved, made_from)
                since = Timer()
            if stop:
                raise KeyboardInterrupt


def _advance(tuning: Tuner, batch: Sequence[Any]) -> None:
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
        dealt = read_batches(lengths, config.batch, np.random.default_rng([config.seed, epoch]))
        begin, end = max(0, first - epoch * per_epoch), min(per_epoch, steps - epoch * per_epoch)
        for chosen in dealt[begin:end]:
            yield [windows[i] for i in chosen]


def rate_of(config: TuneConfig, width: int) -> float:
    """The user's rate; else the method's, where little is trained; else the task's own, which was found with BERT.

    Narrower encoders take the common default.
    """
    if config.lr:
        return config.lr
    times = SMALL_TIMES.get(read_method(config.method).name)
    if times:
        return float(f"{times * default_rate(width):.2g}")
    return config.bert_lr if config.bert_lr and width >= BERT_WIDTH else default_rate(width)


def default_rate(width: int) -> float:
    """1.5e-4 at width 384 and below, where it was best of those tried, falling to the customary 5e-5 at 768."""
    return float(f"{1.5e-4 * min(1.0, (384 / width) ** 1.6):.1e}")


def settled(config: TuneConfig | None, encoder: Encoder, task: Task, **settings: Any) -> TuneConfig:
    """The settings with the learning rate decided; without a config, what the method brings lies beneath them."""
    if config is None:
        config = updated(TuneConfig(), **method_defaults(task.name, settings.get("method") or "full"))
    config = updated(config, **settings)
    brought = method_defaults(task.name, config.method).get("lr")
    return updated(config, lr=config.lr or brought or rate_of(config, encoder.width))


def tune_hash(encoder: Encoder, task: Task, config: TuneConfig) -> str:
    """What the outcome of tuning depends on."""
    settings = {key: value for key, value in hashed_fields(config).items() if key != "save_minutes"}
    return hash_json([encoder_hash(encoder), data_hash(task), window_settings(task), settings])


def new_head(encoder: Encoder, task: Task, config: TuneConfig) -> Head:
    """What the encoder is tuned with: the head asked for, or the task's plain one.

    An encoder that was tuned for the same outputs with the same head goes on with it as it is, so that
    no epochs at all leave its answers as they were.
    """
    spec = head_of(config.method, config.head, plain_head(task, encoder))
    head = build_head(spec, task_shape(task, encoder.layers, encoder.width))
    own, before = encoder.own, encoder.record.get("tune", {})
    if own and own.spec == head.spec and own.shape == head.shape and before.get("labels", []) == list(task.labels):
        head.load_state_dict(dict(own.state))
    return head


def check_tuning(encoder: Encoder, task: Task, config: TuneConfig, target: Path) -> None:
    """What is wrong with the method, the head or the place is told before anything is done, and not after."""
    config = settled(config, encoder, task)
    delta = _delta(encoder, config.method)
    if delta is not None:
        check_place(delta.base, target)
    with seeded(config.seed):
        head = new_head(encoder, task, config)
        prepare(without_weights(encoder.model), config.method, head.needs_pooled)


def begin(
    encoder: Encoder, task: Task, config: TuneConfig, steps: int, device: torch.device, team: Team | None = None
) -> Tuner:
    """A copy of the encoder with a fresh head, at step 0; seed torch first."""
    team, head = team or Team(), new_head(encoder, task, config)
    copy = replace(encoder.copy(), delta=_delta(encoder, config.method))
    tuning = Tuner(copy, head, config, steps, device, label_weights(task, device), team)
    if team.size > 1:
        torch.manual_seed(config.seed + 1_000_003 * team.number)  # the same start everywhere, but not the same dropout
    return tuning


def _delta(encoder: Encoder, method: str) -> DeltaWeights | None:
    """What an encoder will differ from, if that will be little; one that lies on a base stays on it."""
    if encoder.delta is not None or not saves_delta(method):
        return encoder.delta
    cuts_text = tokenizer_hash(encoder.tokenizer)
    return DeltaWeights(BaseRef(encoder.name, model_hash(encoder.model), encoder.source, tokenizer=cuts_text))


def finished(tuning: Tuner, task: Task, schedule: str, copy: bool = False) -> Encoder:
    """The encoder as it is now, with its head and how it came to be; a copy, if tuning is to go on."""
    head, config = tuning.head, tuning.config
    own = OwnHead(head.spec, head.shape, {key: value.cpu().clone() for key, value in head.state_dict().items()})
    delta = _grown(tuning)
    encoder = replace(tuning.encoder.copy() if copy else tuning.encoder, delta=delta, source=None)
    encoder.model.requires_grad_(True).eval().cpu()
    if encoder.model.is_gradient_checkpointing:
        encoder.model.gradient_checkpointing_disable()  # another tuning may want dropout's masks drawn by numpy
    record = {**asdict(config), "head": head.spec, "schedule": schedule, "steps": tuning.step, "task": task.name}
    record["labels"] = list(task.labels)
    return replace(encoder, own=own, record={**encoder.record, "tune": record, "cost": _cost(tuning)})


def _grown(tuning: Tuner) -> DeltaWeights | None:
    """The base, and the names of all that is not the base's any more."""
    delta, model = tuning.encoder.delta, tuning.encoder.model
    if delta is None:
        return None
    trained = {id(parameter) for parameter in tuning.named.values()} if tuning.step else set()
    known = {*delta.names, *added_names(model)}
    names = [name for name, parameter in model.named_parameters() if name in known or id(parameter) in trained]
    return replace(delta, names=tuple(sorted(names)))


def _cost(tuning: Tuner) -> dict[str, Any]:
    """What tuning took, method by method comparable."""
    examples = tuning.step * tuning.config.batch
    return {
        "seconds": tuning.seconds,
        "loss": float(np.mean(tuning.losses[-WATCHED:])) if tuning.losses else None,
        "trained": tuning.trained,
        "seconds_per_1000": 1000 * tuning.seconds / examples if examples else None,
        "peak_bytes": peak_bytes(tuning.device),
    }


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
