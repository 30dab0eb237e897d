"""Several independent processes make the same store as one process."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.batching import plan_shards
from bertvision.store.lock import writing
from bertvision.store.store import MANIFEST, Store
from bertvision.tasks.task import Task
from bertvision.training import shard_builder
from bertvision.training.extract import extract, extract_share, finalize
from bertvision.training.shard_builder import ExtractionPlan, make_shards

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 48, "shard_mb": 1, "dtype": "int8"}


@pytest.fixture(autouse=True, scope="module")
def many_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_builder, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 100, mb))
        yield


@pytest.fixture(scope="module")
def single_process_store(
    many_shards: None, span_encoder: Encoder, span_task: Task, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return extract(span_encoder, span_task, tmp_path_factory.mktemp("alone") / "store", **SMALL_SHARDS).folder


def contents(folder: Path) -> dict[str, Any]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def run_in_parallel(*functions: Callable[[], object]) -> list[int]:
    """Run functions in parallel child processes; return their exit codes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test runner do not matter here
        children = [multiprocessing.get_context("fork").Process(target=target) for target in functions]
        for child in children:
            child.start()
    for child in children:
        child.join()
    return [int(child.exitcode or 0) for child in children]


def test_three_processes_make_the_same_store_as_one(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, single_process_store: Path
) -> None:
    target = tmp_path / "store"

    def share(part: int) -> Callable[[], object]:
        return lambda: extract_share(span_encoder, span_task, target, (part, 3), **SMALL_SHARDS)

    assert run_in_parallel(share(1), share(2), share(3)) == [0, 0, 0]
    assert not (target / MANIFEST).exists()
    with pytest.raises(BadInput, match="no finished store"):
        Store(target)
    finalize(span_encoder, span_task, target, **SMALL_SHARDS)
    assert contents(target) == contents(single_process_store)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert finalize(span_encoder, span_task, target, **SMALL_SHARDS).id == Store(single_process_store).id
    assert extract_share(span_encoder, span_task, target, (1, 3), **SMALL_SHARDS) == 0
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_missing_shards_are_an_error(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, single_process_store: Path
) -> None:
    target = tmp_path / "store"
    total = sum(len(split["shards"]) for split in Store(single_process_store).manifest["splits"].values())
    shards_made = extract_share(span_encoder, span_task, target, (1, 2), **SMALL_SHARDS)
    assert shards_made == -(-total // 2) > 2
    missing = f"has {total - shards_made} of {total} shards missing"
    line = rf"{missing}, the first is train/shard-00001.safetensors; rerun extract --shard"
    with pytest.raises(BadInput, match=line):
        finalize(span_encoder, span_task, target, **SMALL_SHARDS)
    extract(span_encoder, span_task, target, **SMALL_SHARDS)  # a single process can finish the store
    assert contents(target) == contents(single_process_store)


def test_concurrent_writers_of_a_share_are_an_error(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    target = tmp_path / "store"
    with writing(target, shared=True), writing(target, "lock.1-of-2"):
        for work in (
            lambda: extract_share(span_encoder, span_task, target, (1, 2), **SMALL_SHARDS),
            lambda: extract(span_encoder, span_task, target, **SMALL_SHARDS),
            lambda: finalize(span_encoder, span_task, target, **SMALL_SHARDS),
        ):
            with pytest.raises(BadInput, match="is being written by"):
                work()
        assert extract_share(span_encoder, span_task, target, (2, 2), **SMALL_SHARDS) > 0


@pytest.mark.parametrize("share", [(0, 2), (3, 2)])
def test_invalid_share_is_an_error(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, share: tuple[int, int]
) -> None:
    with pytest.raises(BadInput, match="expected i/n with i from 1 to n"):
        extract_share(span_encoder, span_task, tmp_path / "store", share, **SMALL_SHARDS)


def test_make_shards_writes_any_shards_into_any_folder(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, single_process_store: Path
) -> None:
    """As a worker in a cluster does, with shard numbers and its own folder."""
    plan = ExtractionPlan(span_encoder, span_task, ExtractConfig(**SMALL_SHARDS))
    entries = make_shards(plan, [4, 1], tmp_path / "worker")
    assert [entry["file"] for entry in entries] == [plan.jobs[4].name, plan.jobs[1].name]
    for entry in entries:
        assert (tmp_path / "worker" / entry["file"]).read_bytes() == (single_process_store / entry["file"]).read_bytes()
