"""Fit any number of heads x seeds from one read of the states an epoch.

Each head has its own optimiser, history and best epoch, chosen by its score on ``inner``. Seeds vary
a head's start; the order of batches is common to all, because all share the read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bertvision.core.config import FitConfig, with_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, log_line, progress_bar
from bertvision.core.records import LayerBatch, Shape, WindowTable
from bertvision.core.runtime import choose_device, trim_memory
from bertvision.evaluation.scoring import score_inner
from bertvision.heads.base import build_head, canonical_spec, check_head_tokens
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead, scatter_outputs
from bertvision.training.head_trainer import HeadTrainer, fuse_trainers, restore_trainers, save_trainers
from bertvision.training.inputs import label_weights
from bertvision.training.live_states import task_of_states

TRIM_BATCHES = 16
"""After so many, freed memory is given back: batches of all sizes leave gaps, and new pages cost little as seldom."""

SAVE_SECONDS = 30.0
"""The state of a fit is written down after an epoch, if at least so much would be lost."""


class Split(Protocol):
    """A re-iterable of batches: a stored split, or anything that gives the same."""

    shape: Shape

    def __len__(self) -> int: ...
    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]: ...
    def batch_count(self, batch: int) -> int: ...
    def table(self) -> WindowTable: ...


class Source(Protocol):
    """Splits of states by name, and which of the encoder's states they hold."""

    shape: Shape

    @property
    def layers(self) -> Sequence[int]: ...
    def __getitem__(self, split: str) -> Split: ...


def fit(
    heads: Sequence[str],
    store: Source,
    seeds: Sequence[int] = (0,),
    config: FitConfig | None = None,
    task: Task | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> list[FittedHead]:
    """Heads by spec x seeds, fitted on ``train`` and chosen on ``inner``, in the order given.

    ``saved`` is a file to write the state to after long epochs; if it is there, made from the very same, fitting
    goes on from it and ends as if it had never stopped.
    """
    config = with_settings(config or FitConfig(), **settings)
    if not heads or not seeds:
        raise BadInput("fit needs at least one head and one seed, e.g. --head learned-pool --seeds 0,1")
    if task is None:
        assert isinstance(store, States), "batches from elsewhere need task="
        task = task_of_states(store)
    specs = list(dict.fromkeys(canonical_spec(head) for head in heads))
    tokens = str(getattr(store, "tokens", "all"))
    with torch.device("meta"):  # nothing is kept of it
        for spec in specs:
            check_head_tokens(build_head(spec, store.shape), tokens)
    trainers = []
    for spec, seed, lr in product(specs, dict.fromkeys(seeds), dict.fromkeys((config.lr, *config.rates))):
        trainer = make_trainer(spec, seed, store, config, task, lr)
        if trainer.solver is None or lr == config.lr:  # weights that are computed know no rate
            trainers.append(trainer)
    store_id = store.id if isinstance(store, States) else ""
    made_from = hash_json([store_id, hashed_fields(config), specs, list(seeds)])
    done = 0 if saved is None else restore_trainers(trainers, saved, made_from)
    if done:
        log_line(f"fit: goes on after epoch {done} of {config.epochs} ({saved})")
    since_save = Timer()
    for epoch in train_epochs(trainers, store, task, done):
        if saved is not None and since_save.seconds > SAVE_SECONDS:
            save_trainers(trainers, epoch, saved, made_from)
            since_save = Timer()
    return [replace(fitted, tokens=tokens) for fitted in _results(trainers, tuple(store.layers))]


def make_trainer(
    spec: str, seed: int, store: Source, config: FitConfig, task: Task, lr: float | None = None
) -> HeadTrainer:
    """One head at its start, with settings of its own; :func:`train_epochs` trains any number of them."""
    device = choose_device(config.device)
    steps = config.epochs * store["train"].batch_count(config.batch)
    return HeadTrainer(spec, seed, store.shape, config, steps, device, label_weights(task, device), lr or config.lr)


def train_epochs(trainers: Sequence[HeadTrainer], store: Source, task: Task, done: int = 0) -> Iterator[int]:
    """The epochs that are not ``done``, from one read each; after any the caller may stop a trainer, which then keeps
    its best.

    All share the batches, and so their size and order; everything else is each trainer's own.
    """
    shared = trainers[0].config
    assert all((t.config.batch, t.config.order_seed) == (shared.batch, shared.order_seed) for t in trainers)
    epochs = range(done + 1, max(trainer.config.epochs for trainer in trainers) + 1)
    batches = len(epochs) * store["train"].batch_count(shared.batch)
    with progress_bar(f"fit {len(trainers)} heads, {len(epochs)} epochs", batches, "batch") as advance:
        for epoch in epochs:
            active = [trainer for trainer in trainers if epoch <= trainer.config.epochs and not trainer.stopped]
            _train_epoch(_not_failed(active), store["train"], shared, epoch, advance)
            _score_epoch(_not_failed(active), store["inner"], task, shared, epoch)
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
    for number, batch in enumerate(train.batches(config.batch, seed=config.order_seed * 1000 + epoch), 1):
        moved = batch.to(trainers[0].device) if trainers else batch  # once for all of them
        for group in groups:
            group.step(moved)
        advance(1)
        if number % TRIM_BATCHES == 0:
            trim_memory()
    for trainer in trainers:
        trainer.solve(epoch)


def _score_epoch(trainers: Sequence[HeadTrainer], inner: Split, task: Task, config: FitConfig, epoch: int) -> None:
    """Score every head on inner; one whose last step made its outputs infinite has diverged as well."""
    table = inner.table()
    for trainer, logits in zip(trainers, _outputs(trainers, inner, config.batch), strict=True):
        trainer.failed = not all(np.isfinite(row).all() for row in logits)
        if not trainer.failed:
            trainer.end_epoch(epoch, logits, score_inner(task, logits, table), task.metric)


@torch.inference_mode()
def _outputs(trainers: Sequence[HeadTrainer], split: Split, batch: int) -> list[list[NDArray[np.float32]]]:
    """Every head's outputs on a split, in window order, from one read."""
    outputs: list[list[Any]] = [[None] * len(split) for _ in trainers]
    for stored in split.batches(batch):
        states = stored.to(trainers[0].device) if trainers else stored
        for trainer, rows in zip(trainers, outputs, strict=True):
            scatter_outputs(trainer.apply(states), states, split.shape.kind, rows)
    return outputs


def _results(trainers: Sequence[HeadTrainer], states: tuple[int, ...]) -> list[FittedHead]:
    """What was fitted, of several rates the one best on inner.

    A head that diverged is reported, and left out unless an epoch ended well before.
    """
    best: dict[tuple[str, int], HeadTrainer] = {}
    for trainer in trainers:
        if trainer.failed:
            fate = f"its epoch {trainer.best_epoch} is kept" if trainer.best else "it is left out"
            log_line(
                f"head {trainer.spec} seed {trainer.seed} diverged at rate {trainer.lr:g}, {fate}; lower --set fit.lr"
            )
        rival = best.setdefault((trainer.spec, trainer.seed), trainer)
        if trainer.best_score > rival.best_score:
            best[trainer.spec, trainer.seed] = trainer
    fitted = [trainer.result(states) for trainer in best.values() if trainer.best]
    if not fitted:
        raise ArithmeticError("every head diverged: lower the learning rate, e.g. --set fit.lr=1e-4")
    return fitted
