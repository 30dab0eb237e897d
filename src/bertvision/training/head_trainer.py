"""One head while it is fitted: module, optimiser or solver, schedule, history, best state; not a step itself."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertvision.core.config import FitConfig
from bertvision.core.records import LayerBatch, Shape
from bertvision.core.runtime import Timer, rate_at, seeded
from bertvision.evaluation.calibration import temperatures
from bertvision.evaluation.scoring import Verdict
from bertvision.heads.base import Solver, build_head, head_losses
from bertvision.training.fitted_head import FittedHead


@dataclass
class Runner:
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
            self.optimizer, lambda step: rate_at(step, self.steps, self.config.warmup)
        )
        self.solver = self.head.body.solver(self.weights)
        self.losses: list[float] = []

    def apply(self, batch: LayerBatch) -> Tensor:
        return self.head.eval().on_batch(batch)

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
        draws = self.head.body.draws
        return seeded((self.seed * 1_000_003 + self.schedule.last_epoch) % 2**32) if draws else nullcontext()

    def _learn(self, batch: LayerBatch) -> float:
        loss = self.loss(self.head.train().on_batch(batch), batch)
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
        self.head.body.settle(float(self.schedule.get_last_lr()[0]))
        self.schedule.step()

    @torch.no_grad()
    def _observe(self, batch: LayerBatch, solver: Solver) -> float:
        """The loss is that of the weights at hand, those of the epoch before."""
        seen = self.head.eval().seen(batch)
        solver.observe(seen, batch.targets)
        return float(self.loss(self.head.placed(self.head.body(seen), batch), batch))

    def solve(self, epoch: int) -> None:
        """The weights of a head that is computed, once all of the epoch was seen."""
        timer = Timer()
        if self.solver is not None and not self.failed:
            self.solver.solve(epoch)
        self.seconds += timer.seconds

    def finish_epoch(self, epoch: int, logits: list[NDArray[np.float32]], verdict: Verdict, metric: str) -> None:
        """Write down the epoch; keep the state if it is the best on inner so far."""
        score = verdict.scores[metric]
        self.history.append({"epoch": epoch, "loss": float(np.mean(self.losses)), "inner": score})
        self.losses = []
        if score > self.best_score:
            self.best = {key: value.detach().cpu().clone() for key, value in self.head.state_dict().items()}
            self.best_score, self.best_epoch, self.best_outputs = score, epoch, logits
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
        )
