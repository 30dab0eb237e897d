"""Heads whose weights are solved for: one read of the states, then a path of penalties per head.

The penalty is the one with the smallest loss on rows that the fit has not seen: out of fold, or on inner.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertvision.core.progress import Timer, progress
from bertvision.core.records import FOLDS, WindowTable
from bertvision.evaluation.calibration import fit_temperatures
from bertvision.evaluation.scoring import SplitScores, score_inner
from bertvision.heads.base import Head, SolvedModule, build_head, head_loss
from bertvision.heads.solvers import Design, Solution
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import BatchSource, Split, label_weights
from bertvision.training.selection import INNER, window_folds

BATCH = 256

MAX_MEMORY = 2**30
"""Bytes of features that are kept in memory; above, they are in a temporary file."""

PATIENCE = 2
"""Weaker penalties in a row without a smaller loss that end the path."""


class FeatureBuffer:
    """The features that one head reads of every window of a split."""

    def __init__(self, rows: int, columns: int, on_disk: bool) -> None:
        self.rows, self.columns = rows, columns
        if on_disk:
            with tempfile.TemporaryFile() as file:  # it has no name, and its space is freed with the buffer
                self.values: NDArray[np.float32] = np.memmap(file, dtype=np.float32, shape=(rows, columns))
        else:
            self.values = np.empty((rows, columns), np.float32)

    def write(self, windows: Tensor, features: Tensor) -> None:
        self.values[windows.numpy()] = features.numpy()

    def read(self, start: int, stop: int) -> Tensor:
        return torch.from_numpy(np.array(self.values[start:stop]))


@dataclass
class SplitFeatures:
    """The features of several heads, and the targets, of a split in window order."""

    by_head: list[FeatureBuffer]
    targets: Tensor  # (windows,) or (windows, labels)


@torch.inference_mode()
def read_features(heads: Sequence[Head], split: Split, in_order: bool = True) -> SplitFeatures:
    """Gather the features of all heads from one read of a split.

    Rows are in window order or, if that does not matter, as they come: part of a split has gaps in its numbers.
    """
    rows, columns = len(split), [_count_features(head) for head in heads]
    on_disk = 4 * rows * sum(columns) > MAX_MEMORY
    buffers = [FeatureBuffer(rows, count, on_disk) for count in columns]
    targets: Tensor | None = None
    read = 0
    for batch in progress(split.batches(BATCH), "read states", total=split.batch_count(BATCH)):
        numbers = batch.windows if in_order else torch.arange(read, read + len(batch.windows))
        read += len(numbers)
        for head, buffer in zip(heads, buffers, strict=True):
            buffer.write(numbers, head.select_inputs(batch).flatten(1))
        if targets is None:
            targets = batch.targets.new_zeros((rows, *batch.targets.shape[1:]))
        targets[numbers] = batch.targets
    assert targets is not None, "a split has windows"
    return SplitFeatures(buffers, targets)


def _count_features(head: Head) -> int:
    with torch.inference_mode():
        return int(cast(Tensor, next(head.module.parameters())).shape[1])


def solve_heads(specs: Sequence[str], states: BatchSource, task: Task, validation: str) -> list[FittedHead]:
    """Solve for the weights of heads; with ``validation="folds"`` the final fit is to train and inner."""
    if not specs:
        return []
    heads = [build_head(spec, states.shape) for spec in specs]
    train = states[FOLDS if validation == FOLDS else "train"]
    features = read_features(heads, train, in_order=validation == FOLDS)
    inner = None if validation == FOLDS else read_features(heads, states[INNER])
    folds = torch.from_numpy(window_folds(task, train.table())) if validation == FOLDS else None
    weights, table = label_weights(task, torch.device("cpu")), states[validation].table()
    fitted = []
    for index, head in enumerate(progress(heads, "solve", total=len(heads))):
        inner_features, inner_targets = (None, None) if inner is None else (inner.by_head[index], inner.targets)
        fit = _Fit(head, features.by_head[index], features.targets, folds, inner_features, inner_targets, weights)
        fitted.append(_follow_path(fit, task, table, validation))
    return fitted


@dataclass
class _Fit:
    """One head, its features of the training rows, and the rows that its penalty is chosen on."""

    head: Head
    features: FeatureBuffer
    targets: Tensor
    folds: Tensor | None  # (rows,) fold of each training row; None: inner is held out
    inner: FeatureBuffer | None
    inner_targets: Tensor | None
    weights: Tensor | None  # class weights

    def solutions(self) -> Iterator[tuple[Solution, Tensor, float]]:
        """Each solution of the path with its outputs for the rows left out, and their loss."""
        kind, module = self.head.shape.kind, cast(SolvedModule, self.head.module)
        held_out_targets = self.targets if self.inner_targets is None else self.inner_targets
        for solution in module.path(Design(self.features), self.targets, self.folds, self.weights):
            outputs = solution.held_out if self.inner is None else self._predict_inner(solution)
            assert outputs is not None, "rows are left out of folds"
            loss = head_loss(kind, outputs, held_out_targets, torch.ones(len(outputs)), self.weights)
            finite = bool(outputs.isfinite().all() and solution.bias.isfinite().all())
            yield solution, outputs, float(loss) if finite else math.inf

    def _predict_inner(self, solution: Solution) -> Tensor:
        assert self.inner is not None
        return self.inner.read(0, self.inner.rows) @ solution.weight + solution.bias


def _follow_path(fit: _Fit, task: Task, table: WindowTable, validation: str) -> FittedHead:
    """Weaken the penalty until the loss on rows left out no longer falls, and keep the best solution."""
    timer = Timer()
    history: list[dict[str, float]] = []
    best: tuple[Solution, list[NDArray[np.float32]], SplitScores] | None = None
    best_epoch, best_loss = 0, math.inf
    for epoch, (solution, outputs, loss) in enumerate(fit.solutions(), 1):
        logits = list(outputs.numpy())
        scores = score_inner(task, logits, table, validation)
        history.append({"epoch": epoch, "loss": loss, "inner": scores.scores[task.metric]})
        if loss < best_loss:
            best, best_epoch, best_loss = (solution, logits, scores), epoch, loss
        if epoch - best_epoch >= PATIENCE:
            break
    if best is None:
        raise ArithmeticError(f"head {fit.head.spec} has no finite loss: the states are damaged or too large")
    solution, logits, scores = best
    cast(SolvedModule, fit.head.module).set_solution(solution)
    return FittedHead(
        spec=fit.head.spec,
        seed=0,
        head=fit.head.eval(),
        history=tuple(history),
        best_epoch=best_epoch,
        seconds=timer.seconds,
        inner=tuple(logits),
        threshold=scores.threshold,
        temperatures=fit_temperatures(scores),
        inner_scores=scores,
        validation=validation,
        penalty=solution.strength,
    )
