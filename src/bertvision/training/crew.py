"""How many workers a cluster has room for, and what each of them takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bertvision.core.errors import BadInput

GROUPS = 4
"""Times that each worker comes back for more: many, so that none waits long for the last one."""

LARGEST = 8
"""Shards of a group: within one, a shard is written while the next is computed."""


@dataclass(frozen=True)
class Crew:
    """Workers, and what one of them takes of its machine."""

    actors: int
    cpus: int  # reserved for each
    gpus: int
    threads: int  # that each computes with

    def __str__(self) -> str:
        return f"{_count(self.actors, 'actor')}, {'a GPU' if self.gpus else _count(self.threads, 'thread')} each"

    def groups(self, shards: int) -> int:
        """Into how many pieces of work shards are divided."""
        size = min(LARGEST, max(1, shards // (GROUPS * self.actors)))
        return -(-shards // size)


def make_crew(nodes: Sequence[Mapping[str, float]], threads: int, device: str, most: int) -> Crew:
    """One worker for each GPU, or where there is none one for every ``threads`` CPUs of a machine; at most ``most``.

    One CPU of the cluster stays free: with workers on all of them, Ray Data's own tasks would wait for ever.
    ``nodes`` are the resources of each machine as Ray names them.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = 0 if device == "cpu" else sum(int(node.get("GPU", 0)) for node in nodes)
    if device.startswith("cuda") and not gpus:
        raise BadInput(f"device {device!r} is not there: no machine of the Ray cluster has a GPU; leave it to auto")
    if gpus:
        crew = Crew(min(gpus, sum(cpus) - 1), 1, 1, threads)
    else:
        crew = _on_cpus([count for count in cpus if count], threads)
    if crew.actors < 1:
        raise BadInput(f"the Ray cluster has {sum(cpus)} CPUs, expected at least 2: one stays free for Ray's own tasks")
    return replace(crew, actors=min(crew.actors, most))


def _on_cpus(cpus: Sequence[int], threads: int) -> Crew:
    """Where workers would fill every CPU, each reserves one less than it computes with, so that none stays at home."""
    threads = min([threads, *cpus])
    fitting = sum(count // threads for count in cpus)
    free = sum(cpus) - 1
    each = threads if fitting * threads <= free else max(1, threads - 1)
    return Crew(min(fitting, free // each), each, 0, threads)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
