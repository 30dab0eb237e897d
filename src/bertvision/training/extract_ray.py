"""Extraction on a Ray cluster: actors, each with its own encoder, make shards; the driver writes the manifest.

Actors make shards as a single process does, so the store is identical to the last byte. If a machine fails, the
other actors continue with the pending groups of shards, and another round makes those that were lost. Ray Data
restarts actors only if there are resources for one more and otherwise waits for ever, so actors are not restarted.
A round ends after as many errors as there are actors: each processes one group at a time, so none may be left.
"""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertvision.core.config import ExtractConfig, with_settings
from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.core.progress import log_line, progress_bar
from bertvision.core.runtime import PASSIVE, POLICY
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.store.fingerprint import differences
from bertvision.store.remote import is_url
from bertvision.store.store import Store
from bertvision.store.writer import ShardRecord, StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.extract import extract_with
from bertvision.training.pair_texts import refuse_parts
from bertvision.training.shard_builder import STATISTICS, ExtractionPlan, make_shards

GROUPS = 4
"""Groups of shards per worker: with many, workers finish at about the same time."""

MAX_GROUP = 8
"""Shards per group; within a group a shard is written while the next is computed."""

PackedEncoder = dict[str, bytes]

ROUNDS = 3
"""Give up after this many rounds in a row without a single shard."""

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Despite its name, set to 0 it makes a local Ray unreachable from other machines on every system."""

Outcome = tuple[str, bool]
"""An error message, empty on success, and whether retrying is useless."""


@dataclass(frozen=True)
class WorkerPool:
    """The number of workers and the resources of each."""

    actors: int
    cpus: int  # reserved per actor
    gpus: int
    threads: int  # used per actor

    def __str__(self) -> str:
        return f"{_count(self.actors, 'actor')}, {'a GPU' if self.gpus else _count(self.threads, 'thread')} each"

    def groups(self, shards: int) -> int:
        """The number of groups that shards are divided into."""
        size = min(MAX_GROUP, max(1, shards // (GROUPS * self.actors)))
        return -(-shards // size)


def plan_workers(nodes: Sequence[Mapping[str, float]], threads: int, device: str, limit: int) -> WorkerPool:
    """One worker per GPU or, without GPUs, per ``threads`` CPUs of a machine; at most ``limit``.

    One CPU of the cluster stays free: otherwise the tasks of Ray Data itself would wait for ever. ``nodes`` are the
    resources of each machine in Ray's terms.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = 0 if device == "cpu" else sum(int(node.get("GPU", 0)) for node in nodes)
    if device.startswith("cuda") and not gpus:
        raise BadInput(f"device is {device!r}, but no machine of the Ray cluster has a GPU; use auto")
    if gpus:
        pool = WorkerPool(min(gpus, sum(cpus) - 1), 1, 1, threads)
    else:
        pool = _cpu_workers([count for count in cpus if count], threads)
    if pool.actors < 1:
        raise BadInput(f"the Ray cluster has {sum(cpus)} CPUs, expected at least 2: one stays free for Ray's own tasks")
    return replace(pool, actors=min(pool.actors, limit))


def _cpu_workers(cpus: Sequence[int], threads: int) -> WorkerPool:
    """Workers for CPUs; if they would take every CPU, each reserves one less than it uses."""
    threads = min([threads, *cpus])
    fitting = sum(count // threads for count in cpus)
    free = sum(cpus) - 1
    reserved = threads if fitting * threads <= free else max(1, threads - 1)
    return WorkerPool(min(fitting, free // reserved), reserved, 0, threads)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def pack_encoder(encoder: Encoder) -> PackedEncoder:
    """The files of a saved encoder; one that is saved as delta weights refers to its base by name."""
    with TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def unpack_encoder(packed: PackedEncoder) -> Encoder:
    """The inverse of :func:`pack_encoder`."""
    with TemporaryDirectory() as folder:
        for name, content in packed.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load_encoder(folder)


def ray_extract(
    encoder: Encoder,
    task: Task,
    to: str | Path,
    config: ExtractConfig | None = None,
    address: str | None = None,
    actors: int | None = None,
    **settings: Any,
) -> Store:
    """:func:`~bertvision.training.extract.extract` on a Ray cluster, or on a local Ray."""
    config = with_settings(config or ExtractConfig(), **settings)
    refuse_parts(config, "--engine ray")
    _import_ray(address)
    make = partial(_make, config=config, address=address, actors=actors)
    # The driver only plans; a GPU of its machine is left to the actors.
    return extract_with(make, encoder, task, to, with_settings(config, device="cpu"))


class ShardWorker:
    """An actor that makes shards, given by number, and reports success or an error for each."""

    def __init__(self, inputs: list[Any], location: str, threads: int) -> None:
        self.inputs, self.location, self.threads = inputs, location, threads

    @cached_property
    def plan(self) -> ExtractionPlan:
        """Encoder and plan, loaded once; the plan must equal the driver's."""
        import ray
        import torch

        torch.set_num_threads(self.threads)
        packed, task, config, fingerprint = ray.get(self.inputs[0])
        plan = ExtractionPlan(unpack_encoder(packed), task, config)
        changes = differences(fingerprint, plan.fingerprint)
        if changes:
            host = os.uname().nodename
            raise BadInput(f"{host} would make another store: {'; '.join(changes)}; install the same bertvision there")
        return plan

    def make(self, numbers: list[int]) -> Outcome:
        """Make these shards."""
        try:
            make_shards(self.plan, numbers, self.location)
        except BadInput as error:
            return str(error), True
        except Exception as error:  # another round may succeed
            return f"{type(error).__name__}: {error}", False
        return "", False

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        numbers = [int(number) for number in batch["number"]]
        problem, hopeless = self.make(numbers)
        return {"number": numbers, "problem": [problem] * len(numbers), "hopeless": [hopeless] * len(numbers)}


def _make_statistics(*parts: Any) -> Outcome:
    """Compute the int8 statistics on a worker: the driver's machine might round differently."""
    return ShardWorker(*parts).make([])


class Driver:
    """Distributes shard numbers to workers, in rounds, until all shards are made."""

    def __init__(
        self, ray: Any, plan: ExtractionPlan, writer: StoreWriter, config: ExtractConfig, limit: int | None
    ) -> None:
        self.ray, self.plan, self.writer, self.device, self.limit = ray, plan, writer, config.device, limit
        self.location = writer.name if is_url(writer.name) else str(writer.folder.absolute())
        config = with_settings(config, device=config.device.partition(":")[0])  # an actor sees only its own GPU
        self.inputs = [ray.put((pack_encoder(plan.encoder), plan.task, config, plan.fingerprint))]
        self.reason = "a machine was lost"

    def run(self, advance: Callable[[int], object]) -> None:
        """Make all shards; ``advance`` is called with the number of windows of each."""
        pending, idle = set(range(len(self.plan.jobs))), 0
        while pending:
            before = len(pending)
            try:
                for number in self._round(sorted(pending)):
                    pending.discard(number)
                    advance(self.plan.jobs[number].windows)
            except self.ray.exceptions.RayError as error:
                self.reason = type(error).__name__
            idle = 0 if len(pending) < before else idle + 1
            if idle == ROUNDS:
                raise RuntimeError(f"{len(pending)} shards were not made in {ROUNDS} rounds: {self.reason}")
            if pending:
                reason = shorten(self.reason, 120)
                log_line(f"extract: retrying {len(pending)} of {len(self.plan.jobs)} shards ({reason})")

    def _round(self, numbers: list[int]) -> Iterator[int]:
        """Yield the numbers of shards as they are made."""
        import torch

        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        limit = min(self.limit or len(numbers), len(numbers))
        pool = plan_workers(nodes, torch.get_num_threads(), self.device, limit)  # OMP_NUM_THREADS, if set
        log_line(f"extract: {pool} on a Ray cluster of {len(nodes)}")
        if self.plan.config.dtype == "int8" and not self.writer.has(STATISTICS):
            remote = self.ray.remote(_make_statistics).options(**_resources(pool), max_retries=ROUNDS)
            self._check(*self.ray.get(remote.remote(self.inputs, self.location, pool.threads)))
        for row in self._dataset(numbers, pool).iter_rows():
            if self._check(row["problem"], row["hopeless"]):
                yield int(row["number"])

    def _check(self, problem: str, hopeless: bool) -> bool:
        """Whether there was no problem; an error that retrying cannot solve is raised."""
        if hopeless:
            raise BadInput(problem)
        self.reason = problem or self.reason
        return not problem

    def _dataset(self, numbers: list[int], pool: WorkerPool) -> Any:
        """A Ray dataset that makes shards in groups; an idle actor takes the next group."""
        data = self.ray.data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about Ray's own settings and max_restarts
            context = data.DataContext.get_current().copy()
            context.enable_progress_bars = context.print_on_execution_start = False
            context.max_errored_blocks = pool.actors - 1
            with data.DataContext.current(context):
                items = data.from_items([{"number": n} for n in numbers], override_num_blocks=pool.groups(len(numbers)))
                return items.map_batches(
                    ShardWorker,
                    batch_size=None,
                    compute=data.ActorPoolStrategy(size=pool.actors, max_tasks_in_flight_per_actor=1),
                    fn_constructor_args=(self.inputs, self.location, pool.threads),
                    max_restarts=0,
                    max_task_retries=-1,  # retry an unresponsive actor until it is known to be dead
                    **_resources(pool),
                )


def _make(
    plan: ExtractionPlan, writer: StoreWriter, config: ExtractConfig, address: str | None, actors: int | None
) -> list[ShardRecord]:
    """Make all shards on the cluster, then check each of them from the driver."""
    ray = _import_ray(address)
    windows = sum(job.windows for job in plan.jobs)
    with _connected(ray, address), progress_bar("extract", windows, "window") as advance:
        Driver(ray, plan, writer, config, actors).run(advance)
    return [_read_record(writer, job.name) for job in plan.jobs]


def _read_record(writer: StoreWriter, name: str) -> ShardRecord:
    record = writer.record(name)
    if record is None:
        raise BadInput(
            f"{name} was made, but is not complete at {writer.name} on this machine; give --to a folder that all "
            "machines share, or a URL"
        )
    return record


def _resources(pool: WorkerPool) -> dict[str, Any]:
    """The resources and environment of an actor (the environment must be set before torch is imported)."""
    variables = {"OMP_NUM_THREADS": str(pool.threads), POLICY: PASSIVE, "BERTVISION_PROGRESS": "0"}
    return {"num_cpus": pool.cpus, "num_gpus": pool.gpus, "runtime_env": {"env_vars": variables}}


def _import_ray(address: str | None) -> Any:
    if address is None:
        os.environ.setdefault(LOOPBACK, "0")  # read when ray is imported
    try:
        import ray
        import ray.data
    except ImportError:
        raise missing_extra("ray", "ray") from None
    for handler in logging.getLogger("ray.data").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.CRITICAL)  # errors are reported by the driver, details are in Ray's log files
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to the cluster at an address, or start a local one for the block, without usage reports."""
    if ray.is_initialized():
        yield
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    local = {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    try:
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # fail at once; Ray itself would retry for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address or "local", **quiet, **({} if address else local))
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "on this machine"
        raise BadInput(
            f"no Ray {where}: {shorten(str(error), 160)}; start one with: ray start --head, or leave --address out"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
