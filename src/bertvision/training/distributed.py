"""Data-parallel tuning: every process takes its share of each batch, and gradients are summed.

Processes are launched by ``torchrun`` or ``accelerate launch``, which set their ranks in the environment.
A single process is a group of size 1 and communicates nothing.
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
    """The part of a batch that one process computes, and its weight in the loss of the whole batch."""

    items: Sequence[T]
    weight: float


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the main process, which logs and writes files."""
        return self.rank == 0

    def share(self, batch: Sequence[T]) -> BatchShare[T]:
        """Every ``size``-th item; where none is left, the first item with weight 0.

        Every process needs gradients for the same parameters, or the flat gradients would not line up.
        """
        items = batch[self.rank :: self.size]
        return BatchShare(items, len(items) / len(batch)) if items else BatchShare(batch[:1], 0.0)

    def all_reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients over processes in one message; losses are already weighted by share."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def all_reduce(self, value: Tensor) -> Tensor:
        """Sum a tensor over processes, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(value)
        return value


def num_processes() -> int:
    """The number of processes that were launched together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this is the main process, which logs and writes files."""
    return os.environ.get("RANK", "0") == "0"


_group_numbers = count()


@cache
def _launch_store() -> Any:
    """The key-value store of this launch, connected once: rank 0 may host it, and a port cannot be bound twice."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


@contextmanager
def join_process_group() -> Iterator[ProcessGroup]:
    """The process group described by the environment, connected while the block runs."""
    size, rank = num_processes(), int(os.environ.get("RANK", "0"))
    if size == 1:
        yield ProcessGroup()
        return
    owned = not torch.distributed.is_initialized()
    if owned:
        # Keys outlive a group: without its own prefix, the next group in this launch would read closed addresses
        # and fail to connect. All processes join equally often, so their prefixes agree.
        store = torch.distributed.PrefixStore(f"bertvision/{next(_group_numbers)}", _launch_store())  # type: ignore[attr-defined]
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield ProcessGroup(rank, size)
    finally:
        if owned:
            torch.distributed.destroy_process_group()
