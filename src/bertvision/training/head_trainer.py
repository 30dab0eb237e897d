"""One head while it is fitted: module, optimiser or solver, schedule, history, best state."""

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
from bertvision.core.runtime import lr_factor, seeded
from bertvision.evaluation.calibration import temperatures
from bertvision.evaluation.scoring import SplitScores
from bertvision.heads.base import Solver, build_head, head_losses
from bertvision.heads.layers import LayerRows, stack_rows
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint
from bertvision.training.fitted_head import FittedHead, pack_ragged, unpack_ragged

ROWS = 16

FIT_CHECKPOINT = "fitting.safetensors"
"""In a run folder, the state of a fit that is not done; it goes when the heads are there."""

FACTS = ("history", "best_epoch", "best_score", "threshold", "temperatures", "seconds", "failed", "stopped")


@dataclass
class HeadTrainer:
    """One head on its way: module, optimiser, schedule, history and best state."""

    spec: str
    seed: int
    shape: Shape
    config: FitConfig
    steps: int
    device: torch.device
    weights: Tensor | None = None  # of the classes
    lr: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    best_score: float = -math.inf
    best_outputs: list[NDArray[np.float32]] = field(default_factory=list)
    best_inner: SplitScores | None = None  # of those outputs; not saved
    threshold: float | None = None
    temperatures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    failed: bool = False
    stopped: bool = False  # by whoever watches: it takes no more part

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
        """One optimiser step, or a look for a solver; a loss that is no number ends this head only."""
        if self.failed:
            return
        timer = Timer()
        with self._own_random():
            loss = self._learn(batch) if self.solver is None else self._observe(batch, self.solver)
        self.note(loss, timer.seconds)

    def note(self, loss: float, seconds: float) -> None:
        self.losses.append(loss)
        self.failed = not math.isfinite(loss)
        self.seconds += seconds

    def _own_random(self) -> AbstractContextManager[None]:
        """Dropout draws by seed and step alone, so that a head comes out the same in any company."""
        if not self.head.module.uses_rng:
            return nullcontext()
        return seeded((self.seed * 1_000_003 + self.schedule.last_epoch) % 2**32)

    def _learn(self, batch: LayerBatch) -> float:
        loss = self.loss(self.head.train().forward_batch(batch), batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.update()
        return float(loss.detach())

    def loss(self, logits: Tensor, batch: LayerBatch) -> Tensor:
        return self.losses_of(logits[None], batch)[0]

    def losses_of(self, logits: Tensor, batch: LayerBatch) -> Tensor:
        """(heads, batch, ...) -> (heads,): those of all heads that learn the same from the same."""
        return head_losses(self.shape.kind, logits, batch.targets, batch.mask, self.weights)

    def update(self) -> None:
        """What follows once the gradients are there."""
        nn.utils.clip_grad_norm_(self.head.parameters(), self.config.clip)
        self.optimizer.step()
        self.head.module.after_step(float(self.schedule.get_last_lr()[0]))
        self.schedule.step()

    @torch.no_grad()
    def _observe(self, batch: LayerBatch, solver: Solver) -> float:
        """The loss is that of the weights at hand, those of the epoch before."""
        seen = self.head.eval().select_inputs(batch)
        solver.observe(seen, batch.targets)
        return float(self.loss(self.head.scatter(self.head.module(seen), batch), batch))

    def solve(self, epoch: int) -> None:
        """The weights of a head that is computed, once all of the epoch was seen."""
        timer = Timer()
        if self.solver is not None and not self.failed:
            self.solver.solve(epoch)
        self.seconds += timer.seconds

    def end_epoch(self, epoch: int, logits: list[NDArray[np.float32]], verdict: SplitScores, metric: str) -> None:
        """Write down the epoch; keep the state if it is the best on inner so far."""
        score = verdict.scores[metric]
        self.history.append({"epoch": epoch, "loss": float(np.mean(self.losses)), "inner": score})
        self.losses = []
        if score > self.best_score:
            self.best = {key: value.detach().cpu().clone() for key, value in self.head.state_dict().items()}
            self.best_score, self.best_epoch, self.best_outputs = score, epoch, logits
            self.best_inner = verdict
            self.threshold, self.temperatures = verdict.threshold, temperatures(verdict)

    def result(self, states: tuple[int, ...]) -> FittedHead:
        self.head.load_state_dict(self.best)
        self.optimizer.zero_grad(set_to_none=True)  # the head outlives this, and gradients are as large as it is
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
        )


class FusedTrainers:
    """Trainers whose heads read the same states in the same way: one product serves all."""

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
        # Each loss knows its own head only, so the gradient of the sum is every head's own.
        losses.sum().backward()
        for trainer in live:
            trainer.update()
        for trainer, loss in zip(live, losses.tolist(), strict=True):
            trainer.note(loss, timer.seconds / len(live))


def _outputs(trainers: Sequence[HeadTrainer], batch: LayerBatch) -> Tensor:
    """Every head's logits: (heads, batch, tokens, 2) or (heads, batch, outputs)."""
    rows = stack_rows([_rows(trainer) for trainer in trainers], ROWS)
    head = trainers[0].head
    # Narrowed even where nothing is cut off: gradients then lie, and are summed, as they are for a head alone.
    outputs = rows.of(head.select_inputs(batch))  # (..., ROWS)
    outputs = outputs.narrow(-1, 0, len(trainers) * head.shape.outputs)  # (..., heads x outputs)
    each: Tensor = head.scatter(outputs, batch).unflatten(-1, (len(trainers), -1))
    return each.movedim(-2, 0)


def fuse_trainers(trainers: Sequence[HeadTrainer]) -> list[FusedTrainers | HeadTrainer]:
    """Every trainer once: in a group with those that share its product, or by itself."""
    found: list[FusedTrainers | HeadTrainer] = []
    open_groups: dict[object, FusedTrainers] = {}
    for trainer in trainers:
        rows = trainer.head.module.layer_rows()
        if trainer.solver is not None or rows is None or len(rows) > ROWS:
            found.append(trainer)
            continue
        head = trainer.head
        seen = (head.layer_ids, head.read, head.with_pooled)
        group = open_groups.get(seen)
        if group is None or group.rows + len(rows) > ROWS:
            group = open_groups[seen] = FusedTrainers()
            found.append(group)
        group.add(trainer)
    return found


def _rows(trainer: HeadTrainer) -> LayerRows:
    rows = trainer.head.module.layer_rows()
    assert rows is not None, "only such heads are fused"
    return rows


def save_trainers(trainers: Sequence[HeadTrainer], epoch: int, path: Path, made_from: str) -> None:
    """All that the epochs up to this one made; there whole or not at all."""
    tensors = {f"{i}.{key}": value for i, trainer in enumerate(trainers) for key, value in _tensors(trainer).items()}
    write_checkpoint(path, tensors, made_from, epoch=epoch, runners=[_facts(trainer) for trainer in trainers])


def restore_trainers(trainers: Sequence[HeadTrainer], path: Path, made_from: str) -> int:
    """The epoch after which they go on; 0 if there is nothing that was made from the same.

    Heads that are computed sum up the texts once more, in another order: theirs may differ by rounding.
    """
    saved = read_checkpoint(path, made_from)
    if saved is None:
        return 0
    tensors, note = saved
    found = _by_number(tensors)
    for number, (trainer, facts) in enumerate(zip(trainers, note["runners"], strict=True)):
        _put_back(trainer, found[number], facts)
    return int(note["epoch"])


def _tensors(trainer: HeadTrainer) -> dict[str, Tensor]:
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


def _facts(trainer: HeadTrainer) -> dict[str, Any]:
    return {"schedule": trainer.schedule.state_dict(), **{name: getattr(trainer, name) for name in FACTS}}


def _put_back(trainer: HeadTrainer, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    for name in FACTS:
        setattr(trainer, name, facts[name])
    trainer.head.load_state_dict(_below("now", tensors))
    trainer.best = _below("best", tensors)
    trainer.best_outputs = unpack_ragged(_below("outputs", tensors)) if trainer.best else []
    trainer.schedule.load_state_dict(facts["schedule"])
    groups = trainer.optimizer.state_dict()["param_groups"]
    for group, rate in zip(groups, trainer.schedule.get_last_lr(), strict=True):
        group["lr"] = rate
    moments = _by_number(_below("moments", tensors))
    trainer.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _below(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{part}."): value for key, value in tensors.items() if key.startswith(f"{part}.")}


def _by_number(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """What is named NUMBER.NAME, by number and then by name."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        found.setdefault(int(number), {})[name] = value
    return found
