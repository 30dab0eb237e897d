"""Training of one head: module, optimiser or solver, schedule, history and best state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertvision.core.config import FitConfig
from bertvision.core.progress import Timer
from bertvision.core.records import LayerBatch, Shape
from bertvision.core.runtime import seeded
from bertvision.evaluation.calibration import fit_temperatures
from bertvision.evaluation.scoring import SplitScores, validation_losses
from bertvision.heads.base import Solver, build_head, head_losses
from bertvision.heads.layers import LayerRows, stack_rows
from bertvision.heads.readings import WEIGHTED
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint
from bertvision.training.fitted_head import FittedHead, pack_ragged, unpack_ragged
from bertvision.training.schedule import lr_factor

ROWS = 16
"""Output rows of one fused product."""

FIT_CHECKPOINT = "fitting.safetensors"
"""Checkpoint of an unfinished fit in a run folder; removed when the heads are saved."""

CLEARLY = 2.0
"""Standard errors by which the loss must have risen for an earlier epoch to be kept."""

PROGRESS = (
    "history",
    "best_epoch",
    "best_score",
    "best_losses",
    "threshold",
    "temperatures",
    "seconds",
    "failed",
    "stopped",
)
"""Attributes of a trainer that a checkpoint holds as JSON."""


@dataclass
class HeadTrainer:
    """Trains one head and keeps its best state on inner."""

    spec: str
    seed: int
    shape: Shape
    config: FitConfig
    steps: int
    device: torch.device
    weights: Tensor | None = None  # class weights
    lr: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    best_score: float = -math.inf
    best_outputs: list[NDArray[np.float32]] = field(default_factory=list)
    best_inner: SplitScores | None = None  # scores of best_outputs; not in checkpoints
    threshold: float | None = None
    temperatures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    failed: bool = False
    stopped: bool = False  # set by the caller, to end training early
    validation: str = "inner"  # split that the best epoch is chosen on
    best_losses: list[float] = field(default_factory=list)  # of every example at the best epoch, if compared by loss

    def __post_init__(self) -> None:
        with seeded(self.seed):
            self.head = build_head(self.spec, self.shape).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=self.lr or self.config.lr, weight_decay=self.config.weight_decay, fused=True
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: lr_factor(step, self.steps, self.config.warmup)
        )
        self.solver = self.head.module.solver(self.weights)
        self.losses: list[float] = []

    def apply(self, batch: LayerBatch) -> Tensor:
        return self.head.eval().forward_batch(batch)

    def step(self, batch: LayerBatch) -> None:
        """One optimiser step, or one observation of a solver; a loss that is not finite ends this head only."""
        if self.failed:
            return
        timer = Timer()
        with self._dropout_seed():
            loss = self._train(batch) if self.solver is None else self._observe(batch, self.solver)
        self.record_loss(loss, timer.seconds)

    def record_loss(self, loss: float, seconds: float) -> None:
        self.losses.append(loss)
        self.failed = not math.isfinite(loss)
        self.seconds += seconds

    def _dropout_seed(self) -> AbstractContextManager[None]:
        """Seed dropout by seed and step only, so that a head does not depend on the heads it is fitted with."""
        if not self.head.module.uses_rng:
            return nullcontext()
        return seeded((self.seed * 1_000_003 + self.schedule.last_epoch) % 2**32)

    def _train(self, batch: LayerBatch) -> float:
        loss = self.loss(self.head.train().forward_batch(batch), batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.update()
        return float(loss.detach())

    def loss(self, logits: Tensor, batch: LayerBatch) -> Tensor:
        return self.losses_of(logits[None], batch)[0]

    def losses_of(self, logits: Tensor, batch: LayerBatch) -> Tensor:
        """Losses per head: (heads, batch, ...) -> (heads,)."""
        return head_losses(self.shape.kind, logits, batch.targets, batch.mask, self.weights)

    def update(self) -> None:
        """Clip gradients, then step optimiser and schedule."""
        nn.utils.clip_grad_norm_(self.head.parameters(), self.config.clip)
        self.optimizer.step()
        self.head.module.after_step(float(self.schedule.get_last_lr()[0]))
        self.schedule.step()

    @torch.no_grad()
    def _observe(self, batch: LayerBatch, solver: Solver) -> float:
        """Accumulate a batch in the solver; the loss is that of the previous epoch's weights."""
        inputs = self.head.eval().select_inputs(batch)
        solver.observe(inputs, batch.targets)
        return float(self.loss(self.head.scatter(self.head.module(inputs), batch), batch))

    def solve(self, epoch: int) -> None:
        """Compute the weights of a closed-form head, at the end of an epoch."""
        timer = Timer()
        if self.solver is not None and not self.failed:
            self.solver.solve(epoch)
        self.seconds += timer.seconds

    def end_epoch(self, epoch: int, logits: list[NDArray[np.float32]], inner: SplitScores, metric: str) -> None:
        """Append the epoch to the history; copy the state if it is the best on inner so far."""
        entry = {"epoch": epoch, "loss": float(np.mean(self.losses)), "inner": inner.scores[metric]}
        self.history.append(entry)
        self.losses = []
        if self.is_better(inner, metric):
            self.best = {key: value.detach().cpu().clone() for key, value in self.head.state_dict().items()}
            self.best_score, self.best_epoch, self.best_outputs = inner.scores[metric], epoch, logits
            self.best_inner = inner
            self.threshold, self.temperatures = inner.threshold, fit_temperatures(inner)

    def is_better(self, inner: SplitScores, metric: str) -> bool:
        """Whether this epoch takes the place of the best one so far."""
        return inner.scores[metric] > self.best_score

    def result(self, states: tuple[int, ...]) -> FittedHead:
        """The head at its best epoch."""
        self.head.load_state_dict(self.best)
        self.optimizer.zero_grad(set_to_none=True)  # gradients would stay in memory with the head
        return FittedHead(
            spec=self.spec,
            seed=self.seed,
            head=self.head.cpu().eval(),
            history=tuple(self.history),
            best_epoch=self.best_epoch,
            seconds=self.seconds,
            inner=tuple(self.best_outputs),
            threshold=self.threshold,
            temperatures=self.temperatures,
            states=states,
            lr=self.lr or self.config.lr,
            inner_scores=self.best_inner,
            validation=self.validation,
        )


@dataclass
class FoldedTrainer(HeadTrainer):
    """Trains a head on all rows and, beside it, one without each fold, which predict the rows of their fold.

    The best epoch is the one with the best out-of-fold predictions; the head that is kept was trained on all rows.
    """

    folds: Tensor = field(default_factory=lambda: torch.zeros(0))  # (windows,)
    without: list[HeadTrainer] = field(default_factory=list)  # by fold

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = (self.spec, self.seed, self.shape, self.config, self.steps, self.device, self.weights, self.lr)
        self.without = [HeadTrainer(*settings) for _ in range(int(self.folds.max()) + 1)]

    def step(self, batch: LayerBatch) -> None:
        super().step(batch)
        folds = self.folds[batch.windows]  # (batch,)
        for fold, trainer in enumerate(self.without):
            kept = folds != fold
            if bool(kept.any()):
                trainer.step(batch.select(kept.to(batch.mask.device)))
            self.failed = self.failed or trainer.failed

    def apply(self, batch: LayerBatch) -> Tensor:
        """Out-of-fold outputs (batch, outputs)."""
        folds = self.folds[batch.windows]
        outputs = torch.zeros(len(folds), self.shape.outputs, device=batch.mask.device)
        for fold in folds.unique().tolist():
            rows = (folds == fold).to(batch.mask.device)
            outputs[rows] = self.without[fold].apply(batch.select(rows)).float()
        return outputs

    def solve(self, epoch: int) -> None:
        super().solve(epoch)
        for trainer in self.without:
            trainer.solve(epoch)

    def is_better(self, inner: SplitScores, metric: str) -> bool:
        """The last epoch is the best, unless an earlier one had a clearly smaller loss on the rows left out.

        With few rows, which epoch scores best is mostly chance, and at the last one the learning rate has decayed.
        """
        losses = validation_losses(inner)  # (examples,)
        if self.best_losses:
            rise = losses - np.array(self.best_losses)
            if rise.mean() > CLEARLY * rise.std() / math.sqrt(len(rise)):
                return False
        self.best_losses = losses.tolist()
        return True

    def end_epoch(self, epoch: int, logits: list[NDArray[np.float32]], inner: SplitScores, metric: str) -> None:
        super().end_epoch(epoch, logits, inner, metric)
        self.seconds += sum(trainer.seconds for trainer in self.without)
        for trainer in self.without:
            trainer.losses, trainer.seconds = [], 0.0


class FusedTrainers:
    """Trainers whose heads read the same states in the same way, computed with one matrix product."""

    def __init__(self) -> None:
        self.trainers: list[HeadTrainer] = []
        self.rows = 0

    def add(self, trainer: HeadTrainer) -> None:
        self.trainers.append(trainer)
        self.rows += len(_rows(trainer))

    def step(self, batch: LayerBatch) -> None:
        """One optimiser step of every head that has not diverged."""
        timer, live = Timer(), [trainer for trainer in self.trainers if not trainer.failed]
        if not live:
            return
        for trainer in live:
            trainer.head.train()
            trainer.optimizer.zero_grad(set_to_none=True)
        losses = live[0].losses_of(_outputs(live, batch), batch)  # (heads,)
        # Each loss depends on one head only, so the sum has the same gradients as separate losses.
        losses.sum().backward()
        for trainer in live:
            trainer.update()
        for trainer, loss in zip(live, losses.tolist(), strict=True):
            trainer.record_loss(loss, timer.seconds / len(live))


def _outputs(trainers: Sequence[HeadTrainer], batch: LayerBatch) -> Tensor:
    """Every head's logits: (heads, batch, tokens, 2) or (heads, batch, outputs)."""
    rows = stack_rows([_rows(trainer) for trainer in trainers], ROWS)
    head = trainers[0].head
    outputs = rows.of(head.select_inputs(batch))  # (..., ROWS)
    # Always narrow, so that gradients have the memory layout, and the order of summation, of a single head.
    outputs = outputs.narrow(-1, 0, len(trainers) * head.shape.outputs)  # (..., heads x outputs)
    each: Tensor = head.scatter(outputs, batch).unflatten(-1, (len(trainers), -1))
    return each.movedim(-2, 0)


def fuse_trainers(trainers: Sequence[HeadTrainer]) -> list[FusedTrainers | HeadTrainer]:
    """Group the trainers that can share a product; the others stay alone."""
    groups: list[FusedTrainers | HeadTrainer] = []
    open_groups: dict[object, FusedTrainers] = {}
    for trainer in trainers:
        rows = trainer.head.module.layer_rows()
        alone = trainer.solver is not None or isinstance(trainer, FoldedTrainer)
        if alone or rows is None or len(rows) > ROWS or WEIGHTED in trainer.head.readings:
            groups.append(trainer)
            continue
        head = trainer.head
        inputs = (head.layer_ids, head.read, head.with_pooled)
        group = open_groups.get(inputs)
        if group is None or group.rows + len(rows) > ROWS:
            group = open_groups[inputs] = FusedTrainers()
            groups.append(group)
        group.add(trainer)
    return groups


def _rows(trainer: HeadTrainer) -> LayerRows:
    rows = trainer.head.module.layer_rows()
    assert rows is not None, "only heads with layer rows are fused"
    return rows


def save_trainers(trainers: Sequence[HeadTrainer], epoch: int, path: Path, made_from: str) -> None:
    """Write a checkpoint of all trainers at the end of an epoch."""
    tensors, progress = {}, []
    for i, trainer in enumerate(_with_folds(trainers)):
        tensors.update({f"{i}.{key}": value for key, value in _state_tensors(trainer).items()})
        values = {name: getattr(trainer, name) for name in PROGRESS}
        progress.append({"schedule": trainer.schedule.state_dict(), **values})
    write_checkpoint(path, tensors, made_from, epoch=epoch, runners=progress)


def restore_trainers(trainers: Sequence[HeadTrainer], path: Path, made_from: str) -> int:
    """Load a checkpoint and return its epoch; 0 if it does not exist or was made from other inputs.

    Closed-form heads sum over the texts again in another order, so theirs may differ by rounding.
    """
    saved = read_checkpoint(path, made_from)
    if saved is None:
        return 0
    tensors, metadata = saved
    by_trainer = _group_by_index(tensors)
    for i, (trainer, progress) in enumerate(zip(_with_folds(trainers), metadata["runners"], strict=True)):
        _load_state(trainer, by_trainer[i], progress)
    return int(metadata["epoch"])


def _with_folds(trainers: Sequence[HeadTrainer]) -> list[HeadTrainer]:
    """All trainers, those of folds after theirs."""
    every: list[HeadTrainer] = []
    for trainer in trainers:
        every += [trainer, *(trainer.without if isinstance(trainer, FoldedTrainer) else ())]
    return every


def _state_tensors(trainer: HeadTrainer) -> dict[str, Tensor]:
    """Current and best weights, optimiser state and best outputs of a trainer."""
    moments = trainer.optimizer.state_dict()["state"]
    return {
        **{f"now.{key}": value for key, value in trainer.head.state_dict().items()},
        **{f"best.{key}": value for key, value in trainer.best.items()},
        **{f"moments.{i}.{key}": value for i, state in moments.items() for key, value in state.items()},
        **(
            {f"outputs.{key}": value for key, value in pack_ragged(trainer.best_outputs).items()}
            if trainer.best
            else {}
        ),
    }


def _load_state(trainer: HeadTrainer, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    for name in PROGRESS:
        if name in progress:  # checkpoints of earlier versions have no losses
            setattr(trainer, name, progress[name])
    trainer.head.load_state_dict(_with_prefix("now", tensors))
    trainer.best = _with_prefix("best", tensors)
    trainer.best_outputs = unpack_ragged(_with_prefix("outputs", tensors)) if trainer.best else []
    trainer.schedule.load_state_dict(progress["schedule"])
    groups = trainer.optimizer.state_dict()["param_groups"]
    for group, lr in zip(groups, trainer.schedule.get_last_lr(), strict=True):
        group["lr"] = lr
    moments = _group_by_index(_with_prefix("moments", tensors))
    trainer.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors named PREFIX.NAME, by name."""
    return {key.removeprefix(f"{prefix}."): value for key, value in tensors.items() if key.startswith(f"{prefix}.")}


def _group_by_index(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Tensors named INDEX.NAME, by index and name."""
    groups: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        groups.setdefault(int(index), {})[name] = value
    return groups
