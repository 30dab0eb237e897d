"""Fit any number of heads x seeds from one read of the states per epoch.

Each head has its own optimiser, history and best epoch, selected by its score on ``inner``. Seeds change the
initialisation; the order of batches is the same for all, because they share the read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertvision.core.config import FitConfig, with_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, log_line, progress_bar
from bertvision.core.records import FOLDS
from bertvision.core.runtime import choose_device, trim_memory
from bertvision.core.summaries import TOGETHER
from bertvision.evaluation.scoring import score_inner
from bertvision.heads.base import build_head, canonical_spec
from bertvision.heads.readings import check_head_tokens
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead, scatter_outputs
from bertvision.training.head_trainer import FoldedTrainer, HeadTrainer, fuse_trainers, restore_trainers, save_trainers
from bertvision.training.inputs import BatchSource, Split, label_weights
from bertvision.training.live_states import task_of_states
from bertvision.training.selection import INNER, choose_validation, window_folds
from bertvision.training.solve import solve_heads

TRIM_BATCHES = 16
"""Batches between two releases of freed memory: batches of different sizes fragment the heap."""

TRAIN_SPLITS = {"auto": "train", INNER: "train", FOLDS: FOLDS}
VALIDATION_SPLITS = {"auto": INNER, INNER: INNER, FOLDS: FOLDS}
"""The splits that heads are trained and selected on, by ``FitConfig.validation``."""

MIN_STEPS = 40
"""Steps that heads are trained for at least if they are validated by folds; five epochs of 16 rows are too few."""

SAVE_SECONDS = 30.0
"""Write a checkpoint after an epoch if the last one is older than this."""


def fit(
    heads: Sequence[str],
    store: BatchSource,
    seeds: Sequence[int] = (0,),
    config: FitConfig | None = None,
    task: Task | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> list[FittedHead]:
    """Fit every head with every seed on ``train``, and keep each at its best epoch on ``inner``.

    Args:
        heads: Specs, e.g. ``["probe", "learned-pool:layers=last4"]``.
        store: The hidden states: a :class:`Store`, or any other source of batches.
        seeds: Random seeds of the initialisation and of dropout.
        config: Settings. Default: ``FitConfig()``.
        task: The task of the states. Required unless ``store`` is a store or live states.
        saved: Checkpoint file. If it exists and was made from the same inputs, fitting resumes from it.
        **settings: Fields of :class:`FitConfig` that override ``config``, e.g. ``epochs=10``.

    Returns:
        Fitted heads in the order of heads x seeds; heads that diverged before their first epoch ended are left out.

    Example:
        >>> fitted = fit(["probe", "learned-pool"], Store("states"), seeds=(0, 1))  # doctest: +SKIP
        >>> predictions = predict(fitted, Store("states")["dev"])  # doctest: +SKIP
    """
    config = with_settings(config or FitConfig(), **settings)
    if not heads or not seeds:
        raise BadInput('fit needs at least one head and one seed, e.g. heads=["learned-pool"], seeds=(0, 1)')
    if task is None:
        assert isinstance(store, States), "task= is required if store is not a store"
        task = task_of_states(store)
    specs = list(dict.fromkeys(canonical_spec(head) for head in heads))
    tokens, pairs = str(getattr(store, "tokens", "all")), str(getattr(store, "pairs", TOGETHER))
    with torch.device("meta"):  # check only, allocate no weights
        built = [build_head(spec, store.shape) for spec in specs]
    for head in built:
        check_head_tokens(head, tokens, pairs)
    states = tuple(store.layers)
    if isinstance(store, States):
        config = with_settings(config, validation=choose_validation(task, store, config.validation))
    if config.validation == FOLDS:  # few rows make few steps
        batches = store[FOLDS].batch_count(config.batch)
        config = replace(config, epochs=max(config.epochs, math.ceil(MIN_STEPS / batches)))
    solved = [head.spec for head in built if head.module.solved]
    fitted = solve_heads(solved, store, task, config.validation)
    trained = [spec for spec in specs if spec not in solved]
    if trained:
        fitted += _train(trained, store, seeds, config, task, saved)
    order = {spec: position for position, spec in enumerate(specs)}
    fitted.sort(key=lambda head: order[head.spec])  # stable: the seeds of a head stay in their order
    return [replace(head, states=states, tokens=tokens) for head in fitted]


def _train(
    specs: Sequence[str],
    store: BatchSource,
    seeds: Sequence[int],
    config: FitConfig,
    task: Task,
    saved: Path | None,
) -> list[FittedHead]:
    """Train heads by an optimiser, from one read of the states per epoch."""
    trainers = []
    for spec, seed, lr in product(specs, dict.fromkeys(seeds), dict.fromkeys((config.lr, *config.rates))):
        trainer = make_trainer(spec, seed, store, config, task, lr)
        if trainer.solver is None or lr == config.lr:  # closed-form heads have no learning rate
            trainers.append(trainer)
    store_id = store.id if isinstance(store, States) else ""
    hashed = replace(config, validation="auto") if config.validation == INNER else config  # as before there were folds
    made_from = hash_json([store_id, hashed_fields(hashed), specs, list(seeds)])
    done = 0 if saved is None else restore_trainers(trainers, saved, made_from)
    if done:
        log_line(f"fit: resuming after epoch {done} of {config.epochs} ({saved})")
    since_save = Timer()
    for epoch in train_epochs(trainers, store, task, done):
        if saved is not None and since_save.seconds > SAVE_SECONDS:
            save_trainers(trainers, epoch, saved, made_from)
            since_save = Timer()
    return _results(trainers, tuple(store.layers))


def make_trainer(
    spec: str, seed: int, store: BatchSource, config: FitConfig, task: Task, lr: float | None = None
) -> HeadTrainer:
    """The trainer of one freshly initialised head."""
    device = choose_device(config.device)
    train = store[TRAIN_SPLITS[config.validation]]
    steps = config.epochs * train.batch_count(config.batch)
    settings = (spec, seed, store.shape, config, steps, device, label_weights(task, device), lr or config.lr)
    if config.validation == FOLDS:
        folds = torch.from_numpy(window_folds(task, train.table()))
        return FoldedTrainer(*settings, validation=FOLDS, folds=folds)
    return HeadTrainer(*settings)


def train_epochs(trainers: Sequence[HeadTrainer], store: BatchSource, task: Task, done: int = 0) -> Iterator[int]:
    """Train all heads from one read of the states per epoch; yield every epoch after ``done``.

    All trainers must have the same batch size and order. Between epochs the caller may set ``stopped`` on a
    trainer, which then keeps its best state.
    """
    shared = trainers[0].config
    assert all((t.config.batch, t.config.order_seed) == (shared.batch, shared.order_seed) for t in trainers)
    epochs = range(done + 1, max(trainer.config.epochs for trainer in trainers) + 1)
    train, validation = store[TRAIN_SPLITS[shared.validation]], store[VALIDATION_SPLITS[shared.validation]]
    batches = len(epochs) * train.batch_count(shared.batch)
    with progress_bar(f"fit {len(trainers)} heads, {len(epochs)} epochs", batches, "batch") as advance:
        for epoch in epochs:
            active = [trainer for trainer in trainers if epoch <= trainer.config.epochs and not trainer.stopped]
            _train_epoch(_not_failed(active), train, shared, epoch, advance)
            _score_epoch(_not_failed(active), validation, task, shared, epoch)
            trim_memory()
            if not _not_failed(active):
                return
            yield epoch


def _not_failed(trainers: Sequence[HeadTrainer]) -> list[HeadTrainer]:
    return [trainer for trainer in trainers if not trainer.failed]


def _train_epoch(
    trainers: Sequence[HeadTrainer], train: Split, config: FitConfig, epoch: int, advance: Callable[[int], object]
) -> None:
    groups = fuse_trainers(trainers)
    for count, stored in enumerate(train.batches(config.batch, seed=config.order_seed * 1000 + epoch), 1):
        batch = stored.to(trainers[0].device) if trainers else stored  # one copy for all heads
        for group in groups:
            group.step(batch)
        advance(1)
        if count % TRIM_BATCHES == 0:
            trim_memory()
    for trainer in trainers:
        trainer.solve(epoch)


def _score_epoch(trainers: Sequence[HeadTrainer], inner: Split, task: Task, config: FitConfig, epoch: int) -> None:
    """Score every head on inner, from one read; a head with outputs that are not finite has diverged."""
    outputs: list[list[Any]] = [[None] * len(inner) for _ in trainers]  # per head and window
    with torch.inference_mode():
        for stored in inner.batches(config.batch):
            batch = stored.to(trainers[0].device) if trainers else stored
            for trainer, rows in zip(trainers, outputs, strict=True):
                scatter_outputs(trainer.apply(batch), batch, inner.shape.kind, rows)
    table, split = inner.table(), VALIDATION_SPLITS[config.validation]
    for trainer, logits in zip(trainers, outputs, strict=True):
        trainer.failed = not all(np.isfinite(row).all() for row in logits)
        if not trainer.failed:
            trainer.end_epoch(epoch, logits, score_inner(task, logits, table, split), task.metric)


def _results(trainers: Sequence[HeadTrainer], states: tuple[int, ...]) -> list[FittedHead]:
    """The fitted heads, each with its best learning rate on inner; diverged heads keep their best epoch, if any."""
    best: dict[tuple[str, int], HeadTrainer] = {}
    for trainer in trainers:
        if trainer.failed:
            outcome = f"keeping epoch {trainer.best_epoch}" if trainer.best else "left out"
            log_line(
                f"head {trainer.spec} seed {trainer.seed} diverged at learning rate {trainer.lr:g}, {outcome}; "
                "lower --set fit.lr"
            )
        current = best.setdefault((trainer.spec, trainer.seed), trainer)
        if trainer.best_score > current.best_score:
            best[trainer.spec, trainer.seed] = trainer
    fitted = [trainer.result(states) for trainer in best.values() if trainer.best]
    if not fitted:
        raise ArithmeticError("every head diverged: lower the learning rate, e.g. --set fit.lr=1e-4")
    return fitted
