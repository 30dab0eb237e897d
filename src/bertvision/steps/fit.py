"""Fit any number of heads x seeds from one read of the states an epoch.

Each head has its own optimiser, history and best epoch, chosen by its score on ``inner``. Seeds vary
a head's start; the order of batches is common to all, because all share the read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertvision.config import FitConfig, updated
from bertvision.errors import BadInput
from bertvision.heads.base import Solver, build_head, canonical_spec, head_loss
from bertvision.records import LayerBatch, Shape, WindowTable
from bertvision.runtime import Timer, choose_device, progress, rate_at, say, seeded
from bertvision.steps.calibrate import temperatures
from bertvision.steps.fitted import FittedHead, place_outputs
from bertvision.steps.inputs import label_weights
from bertvision.steps.judge import Verdict, judge_inner
from bertvision.steps.live import states_task
from bertvision.store.split import States
from bertvision.tasks.base import Task


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
    **settings: Any,
) -> list[FittedHead]:
    """Heads by spec x seeds, fitted on ``train`` and chosen on ``inner``, in the order given."""
    config = updated(config or FitConfig(), **settings)
    if not heads or not seeds:
        raise BadInput("fit needs at least one head and one seed, e.g. --head learned-pool --seeds 0,1")
    task = task or _stored_task(store)
    device, train = choose_device(config.device), store["train"]
    specs = list(dict.fromkeys(canonical_spec(head) for head in heads))
    steps = config.epochs * train.batch_count(config.batch)
    weights = label_weights(task, device)
    runners = [
        _Runner(spec, seed, store.shape, config, steps, device, weights)
        for spec in specs
        for seed in dict.fromkeys(seeds)
    ]
    for epoch in range(1, config.epochs + 1):
        _train_epoch(_live(runners), train, config, epoch)
        _judge_epoch(_live(runners), store["inner"], task, config, epoch)
        if not _live(runners):
            break
    return _results(runners, tuple(store.layers))


def _live(runners: Sequence[_Runner]) -> list[_Runner]:
    return [runner for runner in runners if not runner.failed]


def _judge_epoch(runners: Sequence[_Runner], inner: Split, task: Task, config: FitConfig, epoch: int) -> None:
    """Score every head on inner; one whose last step made its outputs infinite has diverged as well."""
    table = inner.table()
    for runner, logits in zip(runners, _outputs(runners, inner, config.batch), strict=True):
        runner.failed = not all(np.isfinite(row).all() for row in logits)
        if not runner.failed:
            runner.finish_epoch(epoch, logits, judge_inner(task, logits, table), task.metric)


def _train_epoch(runners: Sequence[_Runner], train: Split, config: FitConfig, epoch: int) -> None:
    batches = train.batches(config.batch, seed=config.order_seed * 1000 + epoch)
    what = f"fit {len(runners)} heads, epoch {epoch}/{config.epochs}"
    for batch in progress(batches, what, total=train.batch_count(config.batch)):
        here = _moved(batch, runners)
        for runner in runners:
            runner.step(here)
    for runner in runners:
        runner.solve(epoch)


def _moved(batch: LayerBatch, runners: Sequence[_Runner]) -> LayerBatch:
    """What heads look at, brought to their device once for all of them."""
    device = runners[0].device if runners else batch.hidden.device
    pooled = None if batch.pooled is None else batch.pooled.to(device)
    hidden, mask, targets = (tensor.to(device) for tensor in (batch.hidden, batch.mask, batch.targets))
    return replace(batch, hidden=hidden, mask=mask, targets=targets, pooled=pooled)


@torch.inference_mode()
def _outputs(runners: Sequence[_Runner], split: Split, batch: int) -> list[list[NDArray[np.float32]]]:
    """Every head's outputs on a split, in window order, from one read."""
    outputs: list[list[Any]] = [[None] * len(split) for _ in runners]
    for stored in split.batches(batch):
        states = _moved(stored, runners)
        for runner, found in zip(runners, outputs, strict=True):
            place_outputs(runner.apply(states), states, split.shape.kind, found)
    return outputs


@dataclass
class _Runner:
    """One head on its way: module, optimiser, schedule, history and best state."""

    spec: str
    seed: int
    shape: Shape
    config: FitConfig
    steps: int
    device: torch.device
    weights: Tensor | None
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    best_score: float = -math.inf
    best_outputs: list[NDArray[np.float32]] = field(default_factory=list)
    threshold: float | None = None
    temperatures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    failed: bool = False

    def __post_init__(self) -> None:
        with seeded(self.seed):
            self.head = build_head(self.spec, self.shape).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=self.config.lr, weight_decay=self.config.weight_decay, fused=True
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: rate_at(step, self.steps, self.config.warmup)
        )
        self.solver = self.head.body.solver(self.weights)
        self.losses: list[float] = []

    def apply(self, batch: LayerBatch) -> Tensor:
        return self.head.eval()(batch.hidden, batch.mask, batch.pooled)  # type: ignore[no-any-return]

    def step(self, batch: LayerBatch) -> None:
        """One optimiser step, or a look for a solver; a loss that is no number ends this head only."""
        if self.failed:
            return
        timer = Timer()
        with self._own_random():
            self.losses.append(self._learn(batch) if self.solver is None else self._observe(batch, self.solver))
        self.failed = not math.isfinite(self.losses[-1])
        self.seconds += timer.seconds

    def _own_random(self) -> AbstractContextManager[None]:
        """Dropout draws by seed and step alone, so that a head comes out the same in any company."""
        draws = self.head.body.draws
        return seeded((self.seed * 1_000_003 + self.schedule.last_epoch) % 2**32) if draws else nullcontext()

    def _learn(self, batch: LayerBatch) -> float:
        logits = self.head.train()(batch.hidden, batch.mask, batch.pooled)
        loss = head_loss(self.shape.kind, logits, batch.targets, batch.mask, self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), self.config.clip)
        self.optimizer.step()
        self.head.body.settle(float(self.schedule.get_last_lr()[0]))
        self.schedule.step()
        return float(loss.detach())

    @torch.no_grad()
    def _observe(self, batch: LayerBatch, solver: Solver) -> float:
        """The loss is that of the weights at hand, those of the epoch before."""
        chosen = self.head.choose(batch.hidden)
        logits = self.head.eval().on_chosen(chosen, batch.mask, batch.pooled)
        solver.observe(self.head.body_input(chosen, batch.mask, batch.pooled), batch.targets)
        return float(head_loss(self.shape.kind, logits, batch.targets, batch.mask, self.weights))

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
        )


def _results(runners: Sequence[_Runner], states: tuple[int, ...]) -> list[FittedHead]:
    """What was fitted; a head that diverged is reported, and left out unless an epoch ended well before."""
    for runner in runners:
        if runner.failed:
            fate = f"its epoch {runner.best_epoch} is kept" if runner.best else "it is left out"
            say(f"head {runner.spec} seed {runner.seed} diverged (not finite), {fate}; lower --set fit.lr")
    good = [runner.result(states) for runner in runners if runner.best]
    if not good:
        raise ArithmeticError("every head diverged: lower the learning rate, e.g. --set fit.lr=1e-4")
    return good


def _stored_task(store: Source) -> Task:
    assert isinstance(store, States), "batches from elsewhere need task="
    return states_task(store)
