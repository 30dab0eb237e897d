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
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, progress
from bertvision.core.records import Window
from bertvision.core.runtime import choose_device, graceful_interrupt, peak_bytes, seeded
from bertvision.encoders.delta_weights import BaseRef, DeltaWeights, check_base_location, clone_to_meta, model_hash
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder, NativeHead
from bertvision.encoders.methods import head_of, injected_names, parse_method, prepare, saves_delta
from bertvision.heads.base import Head, build_head
from bertvision.heads.readings import reads_apart
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
    reuse_windows,
    task_shape,
    window_settings,
)
from bertvision.training.tuner import LOSS_WINDOW, Checkpoint, Tuner

TUNING_CHECKPOINT = "tuning.safetensors"
"""Checkpoint of unfinished tuning in a run folder; removed at the end."""

BERT_WIDTH = 768

LR_FACTORS = {"bitfit": 20, "lora": 10}
"""Learning rate relative to full tuning. At BERT's width they give the 1e-3 of Ben Zaken et al. and the 5e-4 of Hu et
al.; for minilm they are close to the best on inner of MRPC. The learning rate of adapters depends on the task."""


def tune(
    encoder: Encoder,
    task: Task,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    windows: TaskWindows | None = None,
    **settings: Any,
) -> Encoder:
    """Fine-tune a copy of an encoder together with one head.

    Args:
        encoder: The encoder to start from; it is not changed.
        task: Tuning uses the ``train`` split only.
        config: Settings. Default: those of the tuning method for this task.
        saved: Checkpoint file. If it exists and was made from the same inputs, tuning resumes from it and
            ends with the same weights as an uninterrupted run.
        windows: Tokenised splits of the task, to avoid tokenising them again.
        **settings: Fields of :class:`TuneConfig` that override ``config``, e.g. ``epochs=0.3`` or ``method="lora"``.

    Returns:
        The tuned encoder with its native head; ``record["tune"]`` and ``record["cost"]`` describe the tuning.

    Example:
        >>> encoder = load_encoder("bert-base-uncased")  # doctest: +SKIP
        >>> tuned = tune(encoder, load_task("squad2", train=["train.json"]), epochs=0.3)  # doctest: +SKIP
    """
    config = resolve_config(config, encoder, task, **settings)
    device = choose_device(config.device)
    train = reuse_windows(task, encoder, windows)["train"]
    checkpoint = Checkpoint(saved, tune_hash(encoder, task, config))
    with seeded(config.seed), join_process_group() as processes:
        tuner = start(encoder, task, config, num_steps(len(train), config), device, checkpoint, processes)
        run(tuner, tuning_batches(train, config, tuner.steps_done, tuner.steps), tuner.steps, checkpoint)
    if processes.leads:
        checkpoint.remove()
    return export_encoder(tuner, task, "whole run")


def resolve_config(config: TuneConfig | None, encoder: Encoder, task: Task, **settings: Any) -> TuneConfig:
    """Settings with a definite learning rate; without a config, start from the method's defaults."""
    if config is None:
        config = with_settings(TuneConfig(), **method_defaults(task.name, settings.get("method") or "full"))
    config = with_settings(config, **settings)
    method_lr = method_defaults(task.name, config.method).get("lr")
    return with_settings(config, lr=config.lr or method_lr or choose_lr(config, encoder.width))


def choose_lr(config: TuneConfig, width: int) -> float:
    """The configured learning rate, else the method's, else the task's for BERT, else the default of the width."""
    if config.lr:
        return config.lr
    factor = LR_FACTORS.get(parse_method(config.method).name)
    if factor:
        return float(f"{factor * default_lr(width):.2g}")
    return config.bert_lr if config.bert_lr and width >= BERT_WIDTH else default_lr(width)


def default_lr(width: int) -> float:
    """1.5e-4 up to width 384 (the best of a small grid), falling to the usual 5e-5 at width 768."""
    return float(f"{1.5e-4 * min(1.0, (384 / width) ** 1.6):.1e}")


def tune_hash(encoder: Encoder, task: Task, config: TuneConfig) -> str:
    """Hash of everything that the tuned weights depend on."""
    settings = {key: value for key, value in hashed_fields(config).items() if key != "save_minutes"}
    return hash_json([encoder_hash(encoder), data_hash(task), window_settings(task), settings])


def check_tuning(encoder: Encoder, task: Task, config: TuneConfig, target: Path) -> None:
    """Raise an error for a method, head or target folder that cannot work, before any computation."""
    config = resolve_config(config, encoder, task)
    delta = _delta(encoder, config.method)
    if delta is not None:
        check_base_location(delta.base, target)
    with seeded(config.seed):
        head = make_tuning_head(encoder, task, config)
        prepare(clone_to_meta(encoder.model), config.method, head.needs_pooled)


def num_steps(windows: int, config: TuneConfig, epochs: float | None = None) -> int:
    """Optimiser steps of ``epochs`` epochs (default: the configured number)."""
    return round((config.epochs if epochs is None else epochs) * math.ceil(windows / config.batch))


def make_tuning_head(encoder: Encoder, task: Task, config: TuneConfig) -> Head:
    """The head that an encoder is tuned with: the configured one, or the task's default.

    An encoder that was already tuned with the same head for the same labels keeps that head's weights, so
    zero epochs leave its predictions unchanged.
    """
    spec = head_of(config.method, config.head, default_head(task, encoder))
    head = build_head(spec, task_shape(task, encoder.layers, encoder.width))
    if reads_apart(head):
        raise BadInput(f"head {head.spec} reads each text of a pair by itself, but tuning reads both as one input")
    native, labels = encoder.own, encoder.record.get("tune", {}).get("labels", [])
    if native and (native.spec, native.shape) == (head.spec, head.shape) and labels == list(task.labels):
        head.load_state_dict(dict(native.state))
    return head


def _delta(encoder: Encoder, method: str) -> DeltaWeights | None:
    """The base encoder that the tuned one will be saved relative to; None if it is saved whole."""
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
    processes: ProcessGroup | None = None,
) -> Tuner:
    """A tuner on a copy of the encoder, at step 0 or resumed from a checkpoint; seed torch before the call."""
    processes, head = processes or ProcessGroup(), make_tuning_head(encoder, task, config)
    copy = replace(encoder.copy(), delta=_delta(encoder, config.method))
    tuner = Tuner(copy, head, config, steps, device, label_weights(task, device), processes)
    if processes.size > 1:
        torch.manual_seed(config.seed + 1_000_003 * processes.rank)  # equal weights, but different dropout masks
    if checkpoint is not None:
        tuner.resume(checkpoint)
    return tuner


def tuning_batches(windows: Sequence[Window], config: TuneConfig, first: int, steps: int) -> Iterator[list[Window]]:
    """The batches of steps ``first`` to ``steps``: windows of similar length, shuffled every epoch."""
    lengths = np.array([len(window) for window in windows])
    per_epoch = math.ceil(len(windows) / config.batch)
    for epoch in range(first // per_epoch, math.ceil(steps / per_epoch)):
        batches = read_batches(lengths, config.batch, np.random.default_rng([config.seed, epoch]))
        begin, end = max(0, first - epoch * per_epoch), min(per_epoch, steps - epoch * per_epoch)
        for indices in batches[begin:end]:
            yield [windows[i] for i in indices]


def run(tuner: Tuner, batches: Iterator[Any], until: int, checkpoint: Checkpoint) -> None:
    """One step per batch up to step ``until``, with a checkpoint every few minutes and when interrupted."""
    since_save = Timer()
    with graceful_interrupt() as stop_requested:
        for batch in progress(batches, "tune", total=until - tuner.steps_done, unit="step"):
            _step(tuner, batch)
            stop = stop_requested()
            due = stop or since_save.seconds > 60 * tuner.config.save_minutes
            if due and checkpoint.path is not None and tuner.processes.leads:
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
        chunks = 2 * tuner.config.accumulate
        raise MemoryError(
            f"tuning ran out of memory on a batch of {len(batch)} texts of up to {max(map(len, batch))} tokens; use "
            f"--set tune.accumulate={chunks} (smaller chunks) or --set tune.checkpointing=true (slower)"
        ) from error


def export_encoder(tuner: Tuner, task: Task, schedule: str, copy: bool = False) -> Encoder:
    """The tuned encoder with its head and a record of its tuning; ``copy`` if tuning continues afterwards."""
    head, config = tuner.head, tuner.config
    native = NativeHead(head.spec, head.shape, {key: value.cpu().clone() for key, value in head.state_dict().items()})
    delta = tuner.encoder.delta
    if delta is not None:
        delta = replace(delta, names=_changed_names(tuner, delta))
    encoder = replace(tuner.encoder.copy() if copy else tuner.encoder, delta=delta, source=None)
    encoder.model.requires_grad_(True).eval().cpu()
    if encoder.model.is_gradient_checkpointing:
        encoder.model.gradient_checkpointing_disable()  # it would exclude fast dropout in a later tuning
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
    return replace(encoder, own=native, record={**encoder.record, "tune": record, "cost": cost})


def _changed_names(tuner: Tuner, delta: DeltaWeights) -> tuple[str, ...]:
    """Names of the parameters that differ from the base encoder's."""
    model = tuner.encoder.model
    trained = {id(parameter) for parameter in tuner.named.values()} if tuner.steps_done else set()
    changed = {*delta.names, *injected_names(model)}
    names = [name for name, parameter in model.named_parameters() if name in changed or id(parameter) in trained]
    return tuple(sorted(names))
