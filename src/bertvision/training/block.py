"""Heads that are a few rows of products over the states, stepped together; not a step itself.

Pools of all seeds and rates share one product, forward and back, in blocks of sixteen rows that are
always full: rows of zeros stand in for heads that are not there, so that the very same product is computed
for a head alone and for one in company. What follows, up to the losses, is done for all of them at once too.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bertvision.core.records import LayerBatch
from bertvision.core.runtime import Timer
from bertvision.heads.layer_rows import LayerRows, laid_together
from bertvision.training.head_trainer import Runner

ROWS = 16


class Block:
    """Runners whose heads see the same states in the same way."""

    def __init__(self) -> None:
        self.runners: list[Runner] = []
        self.rows = 0

    def add(self, runner: Runner) -> None:
        self.runners.append(runner)
        self.rows += len(_rows(runner))

    def step(self, batch: LayerBatch) -> None:
        """One optimiser step of every head that has not diverged."""
        timer, live = Timer(), [runner for runner in self.runners if not runner.failed]
        if not live:
            return
        for runner in live:
            runner.head.train()
            runner.optimizer.zero_grad(set_to_none=True)
        losses = live[0].losses_of(_outputs(live, batch), batch)  # (heads,)
        # Each loss knows its own head only, so the gradient of the sum is every head's own.
        losses.sum().backward()
        for runner in live:
            runner.update()
        for runner, loss in zip(live, losses.tolist(), strict=True):
            runner.note(loss, timer.seconds / len(live))


def _outputs(runners: Sequence[Runner], batch: LayerBatch) -> Tensor:
    """Every head's logits: (heads, batch, tokens, 2) or (heads, batch, outputs)."""
    rows = laid_together([_rows(runner) for runner in runners], ROWS)
    head = runners[0].head
    # Narrowed even where nothing is cut off: gradients then lie, and are summed, as they are for a head alone.
    outputs = rows.of(head.seen(batch)).narrow(-1, 0, len(runners) * head.shape.outputs)  # (..., heads x outputs)
    each: Tensor = head.placed(outputs, batch).unflatten(-1, (len(runners), -1))
    return each.movedim(-2, 0)


def blocks_of(runners: Sequence[Runner]) -> list[Block | Runner]:
    """Every runner once: in a block with those that share its product, or by itself."""
    found: list[Block | Runner] = []
    open_blocks: dict[object, Block] = {}
    for runner in runners:
        rows = runner.head.body.layer_rows()
        if runner.solver is not None or rows is None or len(rows) > ROWS:
            found.append(runner)
            continue
        head = runner.head
        seen = (head.layer_ids, head.read, head.with_pooled)
        block = open_blocks.get(seen)
        if block is None or block.rows + len(rows) > ROWS:
            block = open_blocks[seen] = Block()
            found.append(block)
        block.add(runner)
    return found


def _rows(runner: Runner) -> LayerRows:
    rows = runner.head.body.layer_rows()
    assert rows is not None, "only such heads are put into a block"
    return rows
