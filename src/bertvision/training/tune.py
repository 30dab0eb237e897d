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

from bertvision.core.config import TuneConfig, with_settings
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, progress
from bertvision.core.records import Window
from bertvision.core.runtime import choose_device, graceful_interrupt, peak_bytes, seeded
from bertvision.encoders.delta_weights import BaseRef, DeltaWeights, check_base_location, clone_to_meta, model_hash
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder, NativeHead
from bertvision.encoders.methods import head_of, injected_names, parse_method, prepare, saves_delta
from bertvision.heads.base import Head, build_head
from bertvision.store.batching import read_batches
from bertvision.tasks.recipe_defaults import method_defaults
from bertvision.tasks.task import Task
from bertvision.training.distributed import ProcessGroup, join_process_group
from bertvision.training.inputs import (
    TaskWindows,
    data_hash,
    default_head,
    encoder_hash,
    label_weights,
    task_shape,
    window_settings,
    windows_of,
)
from bertvision.training.tuner import LOSS_WINDOW, Checkpoint, Tuner

TUNING_CHECKPOINT = "tuning.safetensors"
"""In a run folder, the state of a tuning that is not done; removed when it is."""

BERT_WIDTH = 768

SMALL_TIMES = {"bitfit": 20, "lora": 10}
"""Where little is trained learning rates are higher, by so much: at BERT's width Ben Zaken's 1e-3 and Hu's 5e-4, with
minilm about what inner of MRPC preferred. Those of adapters depend on the task."""


def tune(
    encoder: Encoder,
    task: Task,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    windows: TaskWindows | None = None,
    **settings: Any,
) -> Encoder:
    """A tuned copy of an encoder, e.g. ``tune(encoder, task, epochs=0.3)``; the given one is left as it is.

    ``saved`` is a file to write the state to on the way; if it is there, made from the very same, tuning
    resumes from it and ends as if it had never stopped. ``windows`` are the task's, where they are made already.
    """
    config = resolve_config(config, encoder, task, **settings)
    device = choose_device(config.device)
    train = windows_of(task, encoder, windows)["train"]
    checkpoint = Checkpoint(saved, tune_hash(encoder, task, config))
    with seeded(config.seed), join_process_group() as team:
        tuner = start(encoder, task, config, num_steps(len(train), config), device, checkpoint, team)
        run(tuner, tuning_batches(train, config, tuner.steps_done, tuner.steps), tuner.steps, checkpoint)
    if team.leads:
        checkpoint.remove()
    return export_encoder(tuner, task, "whole run")


def resolve_config(config: TuneConfig | None, encoder: Encoder, task: Task, **settings: Any) -> TuneConfig:
    """The settings with the learning rate decided; without a config they start from the method's defaults."""
    if config is None:
        config = with_settings(TuneConfig(), **method_defaults(task.name, settings.get("method") or "full"))
    config = with_settings(config, **settings)
    method_lr = method_defaults(task.name, config.method).get("lr")
    return with_settings(config, lr=config.lr or method_lr or choose_lr(config, encoder.width))


def choose_lr(config: TuneConfig, width: int) -> float:
    """The user's learning rate; else the method's, where little is trained; else the task's, found with BERT.

    Narrower encoders take the common default.
    """
    if config.lr:
        return config.lr
    times = SMALL_TIMES.get(parse_method(config.method).name)
    if times:
        return float(f"{times * default_lr(width):.2g}")
    return config.bert_lr if config.bert_lr and width >= BERT_WIDTH else default_lr(width)


def default_lr(width: int) -> float:
    """1.5e-4 at width 384 and below, where it was best of those tried, falling to the customary 5e-5 at 768."""
    return float(f"{1.5e-4 * min(1.0, (384 / width) ** 1.6):.1e}")


def tune_hash(encoder: Encoder, task: Task, config: TuneConfig) -> str:
    """What the outcome of tuning depends on."""
    settings = {key: value for key, value in hashed_fields(config).items() if key != "save_minutes"}
    return hash_json([encoder_hash(encoder), data_hash(task), window_settings(task), settings])


def check_tuning(encoder: Encoder, task: Task, config: TuneConfig, target: Path) -> None:
    """Refuse a method, a head or a target folder that cannot work, before anything is done."""
    config = resolve_config(config, encoder, task)
    delta = _delta(encoder, config.method)
    if delta is not None:
        check_base_location(delta.base, target)
    with seeded(config.seed):
        head = make_tuning_head(encoder, task, config)
        prepare(clone_to_meta(encoder.model), config.method, head.needs_pooled)


def num_steps(windows: int, config: TuneConfig, epochs: float | None = None) -> int:
    """Optimiser steps of so many epochs, or of all."""
    return round((config.epochs if epochs is None else epochs) * math.ceil(windows / config.batch))


def make_tuning_head(encoder: Encoder, task: Task, config: TuneConfig) -> Head:
    """What the encoder is tuned with: the head asked for, or the task's plain one.

    An encoder that was tuned for the same outputs with the same head continues with its weights, so that
    zero epochs leave its answers as they were.
    """
    spec = head_of(config.method, config.head, default_head(task, encoder))
    head = build_head(spec, task_shape(task, encoder.layers, encoder.width))
    own, before = encoder.own, encoder.record.get("tune", {})
    if own and own.spec == head.spec and own.shape == head.shape and before.get("labels", []) == list(task.labels):
        head.load_state_dict(dict(own.state))
    return head


def _delta(encoder: Encoder, method: str) -> DeltaWeights | None:
    """The base that only a few weights will differ from, if so; an encoder that lies on a base stays on it."""
    if encoder.delta is not None or not saves_delta(method):
        return encoder.delta
    tokenizer = tokenizer_hash(encoder.tokenizer)
    return DeltaWeights(BaseRef(encoder.name, model_hash(encoder.model), encoder.source, tokenizer=tokenizer))


def start(
    encoder: Encoder,
    task: Task,
    config: TuneConfig,
    steps: int,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    team: ProcessGroup | None = None,
) -> Tuner:
    """A copy of the encoder with a fresh head, at step 0 or where the checkpoint left off; seed torch first."""
    team, head = team or ProcessGroup(), make_tuning_head(encoder, task, config)
    copy = replace(encoder.copy(), delta=_delta(encoder, config.method))
    tuner = Tuner(copy, head, config, steps, device, label_weights(task, device), team)
    if team.size > 1:
        torch.manual_seed(config.seed + 1_000_003 * team.number)  # the same start everywhere, but not the same dropout
    if checkpoint is not None:
        tuner.resume(checkpoint)
    return tuner


def tuning_batches(windows: Sequence[Window], config: TuneConfig, first: int, steps: int) -> Iterator[list[Window]]:
    """The batches of steps ``first`` to ``steps``: epoch after epoch, shuffled, of near-equal length."""
    lengths = np.array([len(window) for window in windows])
    per_epoch = math.ceil(len(windows) / config.batch)
    for epoch in range(first // per_epoch, math.ceil(steps / per_epoch)):
        batches = read_batches(lengths, config.batch, np.random.default_rng([config.seed, epoch]))
        begin, end = max(0, first - epoch * per_epoch), min(per_epoch, steps - epoch * per_epoch)
        for chosen in batches[begin:end]:
            yield [windows[i] for i in chosen]


def run(tuner: Tuner, batches: Iterator[Any], until: int, checkpoint: Checkpoint) -> None:
    """One step per batch up to step ``until``; saves every few minutes, and before it stops on request."""
    since_save = Timer()
    with graceful_interrupt() as stop_requested:
        for batch in progress(batches, "tune", total=until - tuner.steps_done, unit="step"):
            _step(tuner, batch)
            stop = stop_requested()
            due = stop or since_save.seconds > 60 * tuner.config.save_minutes
            if due and checkpoint.path is not None and tuner.team.leads:
                tuner.save(checkpoint.path, checkpoint.made_from)
                since_save = Timer()
            if stop:
                raise KeyboardInterrupt


def _step(tuner: Tuner, batch: Sequence[Any]) -> None:
    try:
        tuner.step(batch)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        pieces = 2 * tuner.config.accumulate
        raise MemoryError(
            f"tuning ran out of memory at {len(batch)} texts of up to {max(map(len, batch))} tokens; the same in "
            f"smaller pieces: --set tune.accumulate={pieces}, or slower: --set tune.checkpointing=true"
        ) from error


def export_encoder(tuner: Tuner, task: Task, schedule: str, copy: bool = False) -> Encoder:
    """The encoder as it is now, with its head and how it came to be; a copy, if tuning is to go on."""
    head, config = tuner.head, tuner.config
    own = NativeHead(head.spec, head.shape, {key: value.cpu().clone() for key, value in head.state_dict().items()})
    delta = tuner.encoder.delta
    if delta is not None:
        delta = replace(delta, names=_changed_names(tuner, delta))
    encoder = replace(tuner.encoder.copy() if copy else tuner.encoder, delta=delta, source=None)
    encoder.model.requires_grad_(True).eval().cpu()
    if encoder.model.is_gradient_checkpointing:
        encoder.model.gradient_checkpointing_disable()  # another tuning may want dropout's masks drawn by numpy
    record = {**asdict(config), "head": head.spec, "schedule": schedule, "steps": tuner.steps_done, "task": task.name}
    record["labels"] = list(task.labels)
    examples = tuner.steps_done * config.batch
    cost = {
        "seconds": tuner.seconds,
        "loss": float(np.mean(tuner.losses[-LOSS_WINDOW:])) if tuner.losses else None,
        "trained": tuner.trained,
        "seconds_per_1000": 1000 * tuner.seconds / examples if examples else None,
        "peak_bytes": peak_bytes(tuner.device),
    }
    return replace(encoder, own=own, record={**encoder.record, "tune": record, "cost": cost})


def _changed_names(tuner: Tuner, delta: DeltaWeights) -> tuple[str, ...]:
    """Names of the weights that are not the base's any more."""
    model = tuner.encoder.model
    trained = {id(parameter) for parameter in tuner.named.values()} if tuner.steps_done else set()
    known = {*delta.names, *injected_names(model)}
    names = [name for name, parameter in model.named_parameters() if name in known or id(parameter) in trained]
    return tuple(sorted(names))
