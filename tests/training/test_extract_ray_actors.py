"""Planning Ray workers: one CPU stays free, no more workers than shards, and at least one if possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.training.extract_ray import WorkerPool, plan_workers


def machines(*cpus: float, gpus: float = 0) -> list[dict[str, float]]:
    return [{"CPU": count, "GPU": gpus} if gpus else {"CPU": count} for count in cpus]


@pytest.mark.parametrize(
    ("cpus", "threads", "expected"),
    [
        ((2,), 1, WorkerPool(1, 1, 0, 1)),
        ((2,), 2, WorkerPool(1, 1, 0, 2)),  # computes on both, reserves one
        ((4,), 1, WorkerPool(3, 1, 0, 1)),
        ((2, 2), 2, WorkerPool(2, 1, 0, 2)),
        ((8, 8), 4, WorkerPool(4, 3, 0, 4)),
        ((9, 8), 4, WorkerPool(4, 4, 0, 4)),
        ((16, 4), 8, WorkerPool(5, 3, 0, 4)),  # the smallest machine decides on threads
        ((0, 4), 4, WorkerPool(1, 3, 0, 4)),  # a head node without workers
    ],
)
def test_plan_workers_by_cpus(cpus: tuple[int, ...], threads: int, expected: WorkerPool) -> None:
    assert plan_workers(machines(*cpus), threads, "auto", 100) == expected


def test_plan_workers_with_one_gpu_each() -> None:
    assert plan_workers(machines(16, 16, gpus=4), 8, "auto", 100) == WorkerPool(8, 1, 1, 8)
    assert plan_workers(machines(4, gpus=4), 8, "cuda", 100).actors == 3
    assert plan_workers(machines(16, gpus=4), 4, "cpu", 100) == WorkerPool(4, 3, 0, 4)


@pytest.mark.parametrize("nodes", [[], machines(1), machines(0, 1), machines(1, gpus=1)])
def test_cluster_without_a_free_cpu_is_an_error(nodes: list[dict[str, float]]) -> None:
    with pytest.raises(BadInput, match="expected at least 2"):
        plan_workers(nodes, 4, "auto", 100)


def test_worker_pool_as_text() -> None:
    assert str(WorkerPool(1, 1, 0, 2)) == "1 actor, 2 threads each"
    assert str(WorkerPool(3, 1, 1, 2)) == "3 actors, a GPU each"


def test_missing_gpu_is_an_error() -> None:
    with pytest.raises(BadInput, match="no machine of the Ray cluster has a GPU"):
        plan_workers(machines(8), 4, "cuda", 100)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 12), st.integers(1, 30))
def test_plan_workers_leaves_one_cpu_free(cpus: list[int], threads: int, maximum: int) -> None:
    if sum(cpus) < 2:
        return
    pool = plan_workers(machines(*cpus), threads, "auto", maximum)
    assert 1 <= pool.actors <= maximum
    assert pool.actors * pool.cpus <= sum(cpus) - 1
    assert pool.actors * pool.threads <= sum(cpus)
    assert sum(count // pool.cpus for count in cpus) >= pool.actors  # every actor fits on a machine


@given(st.integers(1, 500), st.integers(1, 40))
def test_groups_are_small_and_numerous(shards: int, actors: int) -> None:
    groups = WorkerPool(actors, 1, 0, 1).groups(shards)
    assert 1 <= groups <= shards <= 8 * groups
    assert groups >= min(shards, 4 * actors)
