"""Heads that begin with a few rows of products over the states, stepped together; not a step itself.

A product of (tokens x layers, width) with two rows is bound by reading the states, and costs about as
much with sixteen. So pools of all seeds and rates share one, forward and back, in blocks of sixteen
rows that are always full: rows of zeros stand in for heads that are not there, so that the very same
product is computed for a head alone and for one in company.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bertvision.heads.pool import rows_first
from bertvision.records import LayerBatch
from bertvision.runtime import Timer
from bertvision.steps.runner import Runner

ROWS = 16


class Block:
    """Runners whose heads see the same states in the same way."""

    def __init__(self) -> None:
        self.runners: list[Runner] = []
        self.rows = 0

    def add(self, runner: Runner) -> None:
        self.runners.append(runner)
        self.rows += _rows(runner)

    def step(self, batch: LayerBatch) -> None:
        """One optimiser step of every head that has not diverged."""
        timer, live = Timer(), [runner for runner in self.runners if not runner.failed]
        if not live:
            return
        for runner in live:
            runner.head.train()
            runner.optimizer.zero_grad(set_to_none=True)
        losses = [runner.loss(logits, batch) for runner, logits in zip(live, _outputs(live, batch), strict=True)]
        # Each loss knows its own head only, so the gradient of the sum is every head's own.
        torch.stack(losses).sum().backward()
        for runner in live:
            runner.update()
        for runner, loss in zip(live, losses, strict=True):
            runner.note(float(loss.detach()), timer.seconds / len(live))


def _outputs(runners: Sequence[Runner], batch: LayerBatch) -> list[Tensor]:
    head = runners[0].head
    seen = head.seen(batch)  # (..., layers, width)
    matrices = [_matrix(runner) for runner in runners]
    sizes = [len(matrix) for matrix in matrices]
    zeros = seen.new_zeros(ROWS - sum(sizes), seen.shape[-1])
    scores = rows_first(seen @ torch.cat([*matrices, zeros]).T)  # (ROWS, ..., layers)
    parts = scores.split([*sizes, len(zeros)])
    found = [runner.head.body.after_rows(part) for runner, part in zip(runners, parts, strict=False)]
    return [head.placed(outputs, batch) for outputs in found]


def blocks_of(runners: Sequence[Runner]) -> list[Block | Runner]:
    """Every runner once: in a block with those that share its product, or by itself."""
    found: list[Block | Runner] = []
    open_blocks: dict[object, Block] = {}
    for runner in runners:
        if runner.solver is not None or runner.head.body.first_rows() is None or _rows(runner) > ROWS:
            found.append(runner)
            continue
        head = runner.head
        seen = (head.layer_ids, head.read, head.with_pooled)
        block = open_blocks.get(seen)
        if block is None or block.rows + _rows(runner) > ROWS:
            block = open_blocks[seen] = Block()
            found.append(block)
        block.add(runner)
    return found


def _matrix(runner: Runner) -> Tensor:
    matrix = runner.head.body.first_rows()
    assert matrix is not None, "only such heads are put into a block"
    return matrix


def _rows(runner: Runner) -> int:
    return len(_matrix(runner))
