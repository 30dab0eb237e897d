"""Several processes that tune one encoder together: each takes its share of every batch, gradients are added up.

Started by ``torchrun`` or ``accelerate launch``, which tell each process its number in the
environment. One process is a team of one, for which nothing here costs anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class BatchShare(Generic[T]):
    """What one process works on, and how much of the whole that is."""

    items: Sequence[T]
    weight: float


@dataclass(frozen=True)
class ProcessGroup:
    """This process's number, and how many there are."""

    number: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """One process speaks and writes for all."""
        return self.number == 0

    def share(self, batch: Sequence[T]) -> BatchShare[T]:
        """Every ``size``-th item; a process that would have none works on the first, and it counts nothing.

        All processes must have a gradient for the same weights, else their sums would not match.
        """
        mine = batch[self.number :: self.size]
        return BatchShare(mine, len(mine) / len(batch)) if mine else BatchShare(batch[:1], 0.0)

    def all_reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum over processes, in one message; losses are shares of the whole, so that the sum is its gradient."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def add(self, number: Tensor) -> Tensor:
        if self.size > 1:
            torch.distributed.all_reduce(number)
        return number


def num_processes() -> int:
    """How many processes were started together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this process speaks and writes for all."""
    return os.environ.get("RANK", "0") == "0"


_group_numbers = count()


@cache
def _launch_store() -> Any:
    """The key-value store of this launch, connected once: rank 0 may host it, and its port cannot be bound twice."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


@contextmanager
def join_process_group() -> Iterator[ProcessGroup]:
    """The team that the environment tells of; the processes are connected while the block runs."""
    size, number = num_processes(), int(os.environ.get("RANK", "0"))
    if size == 1:
        yield ProcessGroup()
        return
    mine = not torch.distributed.is_initialized()
    if mine:
        # Keys outlive a group: without a prefix of its own, the next group in this launch would read the closed
        # addresses of this one and be refused. All processes join equally often, so their numbers agree.
        store = torch.distributed.PrefixStore(f"bertvision/{next(_group_numbers)}", _launch_store())  # type: ignore[attr-defined]
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=store, rank=number, world_size=size)
    try:
        yield ProcessGroup(number, size)
    finally:
        if mine:
            torch.distributed.destroy_process_group()
