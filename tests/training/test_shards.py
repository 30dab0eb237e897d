"""Several processes, nobody to direct them, one store: the same as one process makes."""

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
from bertvision.training import shard_builder as shard_maker
from bertvision.training.extract import extract, extract_share, finalize
from bertvision.training.shard_builder import ExtractionPlan, make_shards

SMALL: dict[str, Any] = {"batch_tokens": 48, "shard_mb": 1, "dtype": "int8"}


@pytest.fixture(autouse=True, scope="module")
def many_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_maker, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 100, mb))
        yield


@pytest.fixture(scope="module")
def alone(many_shards: None, span_encoder: Encoder, span_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract(span_encoder, span_task, tmp_path_factory.mktemp("alone") / "store", **SMALL).folder


def contents(folder: Path) -> dict[str, Any]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def at_once(*work: Callable[[], object]) -> list[int]:
    """Exit codes of child processes that ran side by side."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a thread of the test runner's does not matter here
        children = [multiprocessing.get_context("fork").Process(target=one) for one in work]
        for child in children:
            child.start()
    for child in children:
        child.join()
    return [int(child.exitcode or 0) for child in children]


def test_three_processes_make_the_store_of_one(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, alone: Path
) -> None:
    target = tmp_path / "store"

    def share(part: int) -> Callable[[], object]:
        return lambda: extract_share(span_encoder, span_task, target, (part, 3), **SMALL)

    assert at_once(share(1), share(2), share(3)) == [0, 0, 0]
    assert not (target / MANIFEST).exists()
    with pytest.raises(BadInput, match="no finished store"):
        Store(target)
    finalize(span_encoder, span_task, target, **SMALL)
    assert contents(target) == contents(alone)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert finalize(span_encoder, span_task, target, **SMALL).id == Store(alone).id
    assert extract_share(span_encoder, span_task, target, (1, 3), **SMALL) == 0
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_what_is_missing_is_named(span_encoder: Encoder, span_task: Task, tmp_path: Path, alone: Path) -> None:
    target = tmp_path / "store"
    total = sum(len(split["shards"]) for split in Store(alone).manifest["splits"].values())
    made = extract_share(span_encoder, span_task, target, (1, 2), **SMALL)
    assert made == -(-total // 2) > 2
    missing = f"has {total - made} of {total} shards missing"
    line = rf"{missing}, the first is train/shard-00001.safetensors; rerun extract --shard"
    with pytest.raises(BadInput, match=line):
        finalize(span_encoder, span_task, target, **SMALL)
    extract(span_encoder, span_task, target, **SMALL)  # one process may as well end it
    assert contents(target) == contents(alone)


def test_a_share_is_made_by_one_and_a_whole_by_nobody_else(
    span_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    target = tmp_path / "store"
    with writing(target, shared=True), writing(target, "lock.1-of-2"):
        for work in (
            lambda: extract_share(span_encoder, span_task, target, (1, 2), **SMALL),
            lambda: extract(span_encoder, span_task, target, **SMALL),
            lambda: finalize(span_encoder, span_task, target, **SMALL),
        ):
            with pytest.raises(BadInput, match="is being written by"):
                work()
        assert extract_share(span_encoder, span_task, target, (2, 2), **SMALL) > 0


@pytest.mark.parametrize("share", [(0, 2), (3, 2)])
def test_a_share_that_there_is_not(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, share: tuple[int, int]
) -> None:
    with pytest.raises(BadInput, match="expected i/n with i from 1 to n"):
        extract_share(span_encoder, span_task, tmp_path / "store", share, **SMALL)


def test_any_shards_of_the_plan_into_any_folder(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, alone: Path
) -> None:
    """What a cluster's worker does: it knows numbers, and a folder of its own."""
    work = ExtractionPlan(span_encoder, span_task, ExtractConfig(**SMALL))
    entries = make_shards(work, [4, 1], tmp_path / "worker")
    assert [entry["file"] for entry in entries] == [work.jobs[4].name, work.jobs[1].name]
    for entry in entries:
        assert (tmp_path / "worker" / entry["file"]).read_bytes() == (alone / entry["file"]).read_bytes()
