"""Fit any number of heads x seeds from one read of the states an epoch.

Each head has its own optimiser, history and best epoch, chosen by its score on ``inner``. Seeds vary
a head's start; the order of batches is common to all, because all share the read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bertvision.core.config import FitConfig, updated
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import Timer, log_line, progress_bar
from bertvision.core.records import LayerBatch, Shape, WindowTable
from bertvision.core.runtime import choose_device, trim_memory
from bertvision.evaluation.scoring import score_inner
from bertvision.heads.base import build_head, canonical_spec, check_served
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead, place_outputs
from bertvision.training.head_trainer import HeadTrainer, fuse_trainers, restore_trainers, save_trainers
from bertvision.training.inputs import label_weights
from bertvision.training.live_states import states_task

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
    config = updated(config or FitConfig(), **settings)
    if not heads or not seeds:
        raise BadInput("fit needs at least one head and one seed, e.g. --head learned-pool --seeds 0,1")
    task = task or _stored_task(store)
    device, train = choose_device(config.device), store["train"]
    specs = list(dict.fromkeys(canonical_spec(head) for head in heads))
    tokens = str(getattr(store, "tokens", "all"))
    _check_tokens(specs, store.shape, tokens)
    steps = config.epochs * train.batch_count(config.batch)
    weights = label_weights(task, device)
    runners = [
        HeadTrainer(spec, seed, store.shape, config, steps, device, weights, lr)
        for spec in specs
        for seed in dict.fromkeys(seeds)
        for lr in dict.fromkeys((config.lr, *config.rates))
    ]
    # Weights that are computed know no rate.
    runners = [runner for runner in runners if runner.solver is None or runner.lr == config.lr]
    _fit_saved(runners, store, task, saved, hash_json([_id(store), hashed_fields(config), specs, list(seeds)]))
    return [replace(fitted, tokens=tokens) for fitted in _results(runners, tuple(store.layers))]


def _fit_saved(runners: Sequence[HeadTrainer], store: Source, task: Task, saved: Path | None, made_from: str) -> None:
    done = 0 if saved is None else restore_trainers(runners, saved, made_from)
    if done:
        log_line(f"fit: goes on after epoch {done} of {runners[0].config.epochs} ({saved})")
    since = Timer()
    for epoch in train_epochs(runners, store, task, done):
        if saved is not None and since.seconds > SAVE_SECONDS:
            save_trainers(runners, epoch, saved, made_from)
            since = Timer()


def _check_tokens(specs: Sequence[str], shape: Shape, tokens: str) -> None:
    with torch.device("meta"):  # nothing is kept of it
        heads = [build_head(spec, shape) for spec in specs]
    for head in heads:
        check_served(head, tokens)


def make_trainer(spec: str, seed: int, store: Source, config: FitConfig, task: Task) -> HeadTrainer:
    """One head at its start, with settings of its own; :func:`fit_epochs` takes any number of them on."""
    device = choose_device(config.device)
    steps = config.epochs * store["train"].batch_count(config.batch)
    return HeadTrainer(spec, seed, store.shape, config, steps, device, label_weights(task, device), config.lr)


def train_epochs(runners: Sequence[HeadTrainer], store: Source, task: Task, done: int = 0) -> Iterator[int]:
    """The epochs that are not ``done``, from one read each; after any the caller may stop a runner, which then keeps
    its best.

    All share the batches, and so their size and order; everything else is each runner's own.
    """
    shared = runners[0].config
    assert all((one.config.batch, one.config.order_seed) == (shared.batch, shared.order_seed) for one in runners)
    epochs = range(done + 1, max(runner.config.epochs for runner in runners) + 1)
    batches = len(epochs) * store["train"].batch_count(shared.batch)
    with progress_bar(f"fit {len(runners)} heads, {len(epochs)} epochs", batches, "batch") as advance:
        for epoch in epochs:
            going = [runner for runner in runners if epoch <= runner.config.epochs and not runner.stopped]
            _train_epoch(_live(going), store["train"], shared, epoch, advance)
            _judge_epoch(_live(going), store["inner"], task, shared, epoch)
            trim_memory()
            if not _live(going):
                return
            yield epoch


def _live(runners: Sequence[HeadTrainer]) -> list[HeadTrainer]:
    return [runner for runner in runners if not runner.failed]


def _judge_epoch(runners: Sequence[HeadTrainer], inner: Split, task: Task, config: FitConfig, epoch: int) -> None:
    """Score every head on inner; one whose last step made its outputs infinite has diverged as well."""
    table = inner.table()
    for runner, logits in zip(runners, _outputs(runners, inner, config.batch), strict=True):
        runner.failed = not all(np.isfinite(row).all() for row in logits)
        if not runner.failed:
            runner.end_epoch(epoch, logits, score_inner(task, logits, table), task.metric)


def _train_epoch(
    runners: Sequence[HeadTrainer], train: Split, config: FitConfig, epoch: int, advance: Callable[[int], object]
) -> None:
    batches = train.batches(config.batch, seed=config.order_seed * 1000 + epoch)
    blocks = fuse_trainers(runners)
    for number, batch in enumerate(batches, 1):
        here = _moved(batch, runners)
        for block in blocks:
            block.step(here)
        advance(1)
        if number % TRIM_BATCHES == 0:
            trim_memory()
    for runner in runners:
        runner.solve(epoch)


def _moved(batch: LayerBatch, runners: Sequence[HeadTrainer]) -> LayerBatch:
    """What heads look at, brought to their device once for all of them."""
    return batch.to(runners[0].device) if runners else batch


@torch.inference_mode()
def _outputs(runners: Sequence[HeadTrainer], split: Split, batch: int) -> list[list[NDArray[np.float32]]]:
    """Every head's outputs on a split, in window order, from one read."""
    outputs: list[list[Any]] = [[None] * len(split) for _ in runners]
    for stored in split.batches(batch):
        states = _moved(stored, runners)
        for runner, found in zip(runners, outputs, strict=True):
            place_outputs(runner.apply(states), states, split.shape.kind, found)
    return outputs


def _results(runners: Sequence[HeadTrainer], states: tuple[int, ...]) -> list[FittedHead]:
    """What was fitted, of several rates the one best on inner.

    A head that diverged is reported, and left out unless an epoch ended well before.
    """
    for runner in runners:
        if runner.failed:
            fate = f"its epoch {runner.best_epoch} is kept" if runner.best else "it is left out"
            log_line(
                f"head {runner.spec} seed {runner.seed} diverged at rate {runner.lr:g}, {fate}; lower --set fit.lr"
            )
    best: dict[tuple[str, int], HeadTrainer] = {}
    for runner in runners:
        known = best.setdefault((runner.spec, runner.seed), runner)
        if runner.best_score > known.best_score:
            best[runner.spec, runner.seed] = runner
    good = [runner.result(states) for runner in best.values() if runner.best]
    if not good:
        raise ArithmeticError("every head diverged: lower the learning rate, e.g. --set fit.lr=1e-4")
    return good


def _id(store: Source) -> str:
    return store.id if isinstance(store, States) else ""


def _stored_task(store: Source) -> Task:
    assert isinstance(store, States), "batches from elsewhere need task="
    return states_task(store)
