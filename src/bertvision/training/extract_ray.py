"""Extraction on a Ray cluster: shard numbers go to actors, each with an encoder of its own; the driver finishes.

An actor makes its shards as a single process does, so that the store is the same to the last byte. When
a machine dies, the others go on with all that nobody had begun, and a further round makes what it had in
hand. Ray Data restarts actors only where there is room for one more and otherwise waits for ever, so
actors are not restarted. As many errors as there are actors are the end of a round: each actor has one
group in hand, so this many can mean that none is left.
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
from bertvision.training.shard_builder import STATISTICS, ExtractionPlan, make_shards

GROUPS = 4
"""Times that each worker comes back for more: many, so that none waits long for the last one."""

LARGEST = 8
"""Shards of a group: within one, a shard is written while the next is computed."""

PackedEncoder = dict[str, bytes]

ROUNDS = 3
"""Rounds in a row that may bring no shard at all."""

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch, on every system, for a local Ray that other machines cannot reach."""

Outcome = tuple[str, bool]
"""A problem, empty if there was none, and whether it is hopeless."""


@dataclass(frozen=True)
class WorkerPool:
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


def plan_workers(nodes: Sequence[Mapping[str, float]], threads: int, device: str, most: int) -> WorkerPool:
    """One worker for each GPU, or where there is none one for every ``threads`` CPUs of a machine; at most ``most``.

    One CPU of the cluster stays free: with workers on all of them, Ray Data's own tasks would wait for ever.
    ``nodes`` are the resources of each machine as Ray names them.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = 0 if device == "cpu" else sum(int(node.get("GPU", 0)) for node in nodes)
    if device.startswith("cuda") and not gpus:
        raise BadInput(f"device {device!r} is not there: no machine of the Ray cluster has a GPU; leave it to auto")
    if gpus:
        pool = WorkerPool(min(gpus, sum(cpus) - 1), 1, 1, threads)
    else:
        pool = _cpu_workers([count for count in cpus if count], threads)
    if pool.actors < 1:
        raise BadInput(f"the Ray cluster has {sum(cpus)} CPUs, expected at least 2: one stays free for Ray's own tasks")
    return replace(pool, actors=min(pool.actors, most))


def _cpu_workers(cpus: Sequence[int], threads: int) -> WorkerPool:
    """Where workers would fill every CPU, each reserves one less than it computes with, so that none stays at home."""
    threads = min([threads, *cpus])
    fitting = sum(count // threads for count in cpus)
    free = sum(cpus) - 1
    each = threads if fitting * threads <= free else max(1, threads - 1)
    return WorkerPool(min(fitting, free // each), each, 0, threads)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def pack_encoder(encoder: Encoder) -> PackedEncoder:
    """The files of a saved encoder. What was tuned by a small method names its base, which stays where it is."""
    with TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def unpack_encoder(packed: PackedEncoder) -> Encoder:
    """The inverse of :func:`pack_encoder`, anywhere."""
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
    """What :func:`~bertvision.training.extract.extract` makes, made by a Ray cluster or by this machine's own Ray."""
    _import_ray(address)
    config = with_settings(config or ExtractConfig(), **settings)
    make = partial(_make, config=config, address=address, actors=actors)
    # The driver plans, and leaves its GPU, if it has one, to the actors.
    return extract_with(make, encoder, task, to, with_settings(config, device="cpu"))


class ShardWorker:
    """An actor of the pool; it is given numbers of shards, and tells which are made or why they are not."""

    def __init__(self, parts: list[Any], place: str, threads: int) -> None:
        self.parts, self.place, self.threads = parts, place, threads

    @cached_property
    def plan(self) -> ExtractionPlan:
        """Encoder and plan, loaded once; the plan must be the driver's."""
        import ray
        import torch

        torch.set_num_threads(self.threads)
        packed, task, config, fingerprint = ray.get(self.parts[0])
        plan = ExtractionPlan(unpack_encoder(packed), task, config)
        found = differences(fingerprint, plan.fingerprint)
        if found:
            host = os.uname().nodename
            raise BadInput(f"{host} would make another store: {'; '.join(found)}; install the same bertvision there")
        return plan

    def make(self, numbers: list[int]) -> Outcome:
        """Why these shards could not be made, if so; what nobody could make is hopeless."""
        try:
            make_shards(self.plan, numbers, self.place)
        except BadInput as error:
            return str(error), True
        except Exception as error:  # whatever it is, another round may do better
            return f"{type(error).__name__}: {error}", False
        return "", False

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        numbers = [int(number) for number in batch["number"]]
        problem, hopeless = self.make(numbers)
        return {"number": numbers, "problem": [problem] * len(numbers), "hopeless": [hopeless] * len(numbers)}


def _make_statistics(*parts: Any) -> Outcome:
    """What int8 must know before the first shard, on a machine that makes shards: others might round otherwise."""
    return ShardWorker(*parts).make([])


class Driver:
    """Sends numbers of shards out, in rounds, until all shards are made."""

    def __init__(
        self, ray: Any, plan: ExtractionPlan, writer: StoreWriter, config: ExtractConfig, most: int | None
    ) -> None:
        self.ray, self.plan, self.writer, self.device, self.most = ray, plan, writer, config.device, most
        self.place = writer.name if is_url(writer.name) else str(writer.folder.absolute())
        config = with_settings(config, device=config.device.partition(":")[0])  # an actor sees one GPU, its own
        self.parts = [ray.put((pack_encoder(plan.encoder), plan.task, config, plan.fingerprint))]
        self.reason = "a machine was lost"

    def run(self, advance: Callable[[int], object]) -> None:
        left, idle = set(range(len(self.plan.jobs))), 0
        while left:
            before = len(left)
            try:
                for number in self._round(sorted(left)):
                    left.discard(number)
                    advance(self.plan.jobs[number].windows)
            except self.ray.exceptions.RayError as error:
                self.reason = type(error).__name__
            idle = 0 if len(left) < before else idle + 1
            if idle == ROUNDS:
                raise RuntimeError(f"{len(left)} shards were not made in {ROUNDS} rounds: {self.reason}")
            if left:
                log_line(
                    f"extract: {len(left)} of {len(self.plan.jobs)} shards once more ({shorten(self.reason, 120)})"
                )

    def _round(self, numbers: list[int]) -> Iterator[int]:
        """Numbers of shards, as they are made."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        pool = plan_workers(nodes, _threads(), self.device, min(self.most or len(numbers), len(numbers)))
        log_line(f"extract: {pool} on a Ray cluster of {len(nodes)}")
        if self.plan.config.dtype == "int8" and not self.writer.has(STATISTICS):
            learn = self.ray.remote(_make_statistics).options(**_takes(pool), max_retries=ROUNDS)
            self._judge(*self.ray.get(learn.remote(self.parts, self.place, pool.threads)))
        for row in self._dataset(numbers, pool).iter_rows():
            if self._judge(row["problem"], row["hopeless"]):
                yield int(row["number"])

    def _judge(self, problem: str, hopeless: bool) -> bool:
        if hopeless:
            raise BadInput(problem)
        self.reason = problem or self.reason
        return not problem

    def _dataset(self, numbers: list[int], pool: WorkerPool) -> Any:
        """Numbers in groups; an actor has one group in hand, and whoever is done takes the next."""
        data = self.ray.data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own settings, and that there is one way only to say max_restarts
            context = data.DataContext.get_current().copy()
            context.enable_progress_bars = context.print_on_execution_start = False
            context.max_errored_blocks = pool.actors - 1
            with data.DataContext.current(context):
                items = data.from_items([{"number": n} for n in numbers], override_num_blocks=pool.groups(len(numbers)))
                return items.map_batches(
                    ShardWorker,
                    batch_size=None,
                    compute=data.ActorPoolStrategy(size=pool.actors, max_tasks_in_flight_per_actor=1),
                    fn_constructor_args=(self.parts, self.place, pool.threads),
                    max_restarts=0,
                    max_task_retries=-1,  # an actor that does not answer is asked until it is known to be dead
                    **_takes(pool),
                )


def _make(
    plan: ExtractionPlan, writer: StoreWriter, config: ExtractConfig, address: str | None, actors: int | None
) -> list[ShardRecord]:
    """All shards; then each is checked from here."""
    ray = _import_ray(address)
    windows = sum(job.windows for job in plan.jobs)
    with _connected(ray, address), progress_bar("extract", windows, "window") as advance:
        Driver(ray, plan, writer, config, actors).run(advance)
    return [_record_of(writer, job.name) for job in plan.jobs]


def _record_of(writer: StoreWriter, name: str) -> ShardRecord:
    record = writer.record(name)
    if record is None:
        raise BadInput(
            f"{name} was made, but is not whole at {writer.name} here; give --to a folder all machines share, or a URL"
        )
    return record


def _threads() -> int:
    """As many as a single process would compute with here; OMP_NUM_THREADS decides, if set."""
    import torch

    return torch.get_num_threads()


def _takes(pool: WorkerPool) -> dict[str, Any]:
    """What an actor reserves, and its environment, which must be set before torch is loaded."""
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
            handler.setLevel(logging.CRITICAL)  # what there is to say is said here; Ray's log files have the rest
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """The cluster at an address, or one of this machine's own that ends with the block; nothing is reported home."""
    if ray.is_initialized():
        yield
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    own = {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    try:
        _knock(address or "")
        ray.init(address=address or "local", **quiet, **({} if address else own))
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "on this machine"
        raise BadInput(
            f"no Ray {where}: {shorten(str(error), 160)}; start one with: ray start --head, or leave --address out"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Where nobody listens Ray would try for minutes before it says so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
