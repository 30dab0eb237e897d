"""Kills, full disks, damage and concurrent writers: a store ends intact, or with a one-line error."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.batching import plan_shards
from bertvision.store.lock import LOCK, is_locked, writing
from bertvision.store.store import MANIFEST, Store, find_damage
from bertvision.store.writer import record_name
from bertvision.tasks.task import Task
from bertvision.training import shard_builder
from bertvision.training.extract import STARTED, extract, repair
from bertvision.training.shard_builder import STATISTICS

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 48, "shard_mb": 1}
KILLS = 50 if os.environ.get("BERTVISION_SLOW") else 3
"""More with BERTVISION_SLOW=1."""

UNPRIVILEGED_USER = 65534


@pytest.fixture(autouse=True)
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every batch becomes its own shard."""
    monkeypatch.setattr(
        shard_builder, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 200, mb)
    )


def contents(folder: Path) -> dict[str, Any]:
    """All files of a store, without the seconds in the manifest."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def run_in_child(work: Callable[[], object], error_file: Path | None = None) -> int:
    """Run ``work`` in a child process; its exit code is 0, or 2 with the error in ``error_file``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test runner do not matter here
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BadInput as error:
        code = 2
        if error_file is not None:
            error_file.write_text(str(error))
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def intact(span_encoder: Encoder, span_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An undamaged int8 store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_builder, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 200, mb))
        return extract(
            span_encoder, span_task, tmp_path_factory.mktemp("whole") / "store", dtype="int8", **SMALL_SHARDS
        )


def test_extraction_survives_kills_at_random_moments(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store
) -> None:
    target, random_times = tmp_path / "store", random.Random(0)

    def work() -> None:
        extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)

    started = time.perf_counter()
    extract(span_encoder, span_task, tmp_path / "timed", dtype="int8", **SMALL_SHARDS)
    duration, kills = time.perf_counter() - started, 0
    while kills < KILLS:
        child = run_in_child(work)
        time.sleep(random_times.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        kills += exit_code(child) == -signal.SIGKILL
        if (target / MANIFEST).exists():
            # A process that is killed at the very end leaves files to clean up.
            assert exit_code(run_in_child(work)) == 0
            assert contents(target) == contents(intact.folder)
            shutil.rmtree(target)
    assert exit_code(run_in_child(work)) == 0
    assert contents(target) == contents(intact.folder)
    assert len(intact.manifest["splits"]["train"]["shards"]) > 5


def test_full_disk_is_an_error_and_extraction_resumes(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store
) -> None:
    target = tmp_path / "store"
    largest = max(path.stat().st_size for path in intact.folder.rglob("shard-*"))

    def work(limit: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)

    assert exit_code(run_in_child(lambda: work(largest - 1), tmp_path / "error.txt")) == 2
    message = (tmp_path / "error.txt").read_text()
    assert "cannot write shard" in message
    assert "free some space or choose another folder" in message
    assert not (target / MANIFEST).exists()
    assert exit_code(run_in_child(lambda: work(resource.RLIM_INFINITY))) == 0
    assert contents(target) == contents(intact.folder)


def test_unwritable_folder_is_an_error(span_encoder: Encoder, span_task: Task) -> None:
    folder = Path(tempfile.mkdtemp())
    error_file = folder / "error.txt"
    error_file.touch()
    error_file.chmod(0o666)
    (folder / "closed").mkdir(mode=0o555)
    folder.chmod(0o755)

    def work() -> None:
        if os.geteuid() == 0:  # root can write everywhere
            os.setuid(UNPRIVILEGED_USER)
        extract(span_encoder, span_task, folder / "closed" / "store", **SMALL_SHARDS)

    assert exit_code(run_in_child(work, error_file)) == 2
    assert "cannot write a store at" in error_file.read_text()
    assert "Permission denied" in error_file.read_text()
    shutil.rmtree(folder)


def test_second_writer_is_an_error(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    target = tmp_path / "store"
    with writing(target):
        with pytest.raises(BadInput, match=rf"{target} is being written by process {os.getpid()} on .*; wait for it"):
            extract(span_encoder, span_task, target, **SMALL_SHARDS)
        assert is_locked(target)
    assert not is_locked(target)
    extract(span_encoder, span_task, target, **SMALL_SHARDS)
    assert not (target / LOCK).exists()


def test_lock_of_a_dead_process_is_taken_over(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store
) -> None:
    target = tmp_path / "store"

    def die() -> None:
        with writing(target):
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(run_in_child(die)) == -signal.SIGKILL
    assert (target / LOCK).exists()
    extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)
    assert contents(target) == contents(intact.folder)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "deleted", "no entry"])
def test_shard_damaged_between_attempts_is_recomputed(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store, damage: str
) -> None:
    target = tmp_path / "store"
    shutil.copytree(intact.folder, target)
    manifest = json.loads((target / MANIFEST).read_text())
    for split in manifest["splits"].values():
        for entry in split["shards"]:
            (target / record_name(entry["file"])).write_text(json.dumps({**entry, "seconds": 0.0}))
    (target / STARTED).write_text(json.dumps(manifest["fingerprint"]))
    (target / MANIFEST).unlink()
    victim = target / manifest["splits"]["train"]["shards"][2]["file"]
    damage_file(victim, damage)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("shard-*.safetensors") if path != victim}
    extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)
    assert contents(target) == contents(intact.folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def damage_file(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "deleted":
        path.unlink()
    elif damage == "no entry":
        Path(record_name(str(path))).unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-7])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "deleted"])
def test_damaged_shard_is_found_and_repaired(span_encoder: Encoder, tmp_path: Path, intact: Store, damage: str) -> None:
    target = Path(shutil.copytree(intact.folder, tmp_path / "store"))
    assert find_damage(Store(target)) == []
    name = intact.manifest["splits"]["train"]["shards"][1]["file"]
    damage_file(target / name, damage)
    damaged = find_damage(Store(target))
    assert [entry.file for entry in damaged] == [name]
    assert {"truncated": "bytes", "flipped": "changed", "deleted": "missing"}[damage] in str(damaged[0])
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*.safetensors") if path != target / name}
    assert repair(target, span_encoder) == damaged
    assert contents(target) == contents(intact.folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert repair(target, span_encoder) == []


def test_damaged_statistics_are_found_and_repaired(span_encoder: Encoder, tmp_path: Path, intact: Store) -> None:
    target = Path(shutil.copytree(intact.folder, tmp_path / "store"))
    damage_file(target / STATISTICS, "flipped")
    assert [damage.file for damage in find_damage(Store(target))] == [STATISTICS]
    repair(target, span_encoder)
    assert contents(target) == contents(intact.folder)


def test_repair_with_another_encoder_is_an_error(tiny_encoder: Encoder, tmp_path: Path, intact: Store) -> None:
    target = Path(shutil.copytree(intact.folder, tmp_path / "store"))
    with pytest.raises(
        BadInput, match=r"encoder is .* there and .* here; give the encoder that made it with --encoder"
    ):
        repair(target, tiny_encoder)


def test_repaired_shard_with_other_rounding_updates_the_manifest(
    span_encoder: Encoder, tmp_path: Path, intact: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on another machine, where sums are computed in another order."""
    target = Path(shutil.copytree(intact.folder, tmp_path / "store"))
    manifest = json.loads((target / MANIFEST).read_text())
    entry = manifest["splits"]["dev"]["shards"][0]
    digest, entry["sha256"] = entry["sha256"], "0" * 64
    (target / MANIFEST).write_text(json.dumps(manifest))
    assert [damage.file for damage in repair(target, span_encoder)] == [entry["file"]]
    assert "equal up to rounding" in capsys.readouterr().err
    assert find_damage(Store(target)) == []
    assert Store(target).manifest["splits"]["dev"]["shards"][0]["sha256"] == digest


def test_other_format_version_is_an_error(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store
) -> None:
    target = Path(shutil.copytree(intact.folder, tmp_path / "store"))
    manifest = json.loads((target / MANIFEST).read_text())
    (target / MANIFEST).write_text(json.dumps({**manifest, "format": 9}))
    for use in (lambda: Store(target), lambda: extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)):
        with pytest.raises(BadInput, match="is of format 9, expected format 1"):
            use()


def test_statistics_of_another_extraction_are_not_used(
    span_encoder: Encoder, tiny_encoder: Encoder, span_task: Task, tmp_path: Path, intact: Store
) -> None:
    other = extract(tiny_encoder, span_task, tmp_path / "other", dtype="int8", **SMALL_SHARDS)
    target = tmp_path / "store"
    target.mkdir()
    (target / STARTED).write_text(json.dumps(other.manifest["fingerprint"]))
    shutil.copy(other.folder / STATISTICS, target)
    extract(span_encoder, span_task, target, dtype="int8", **SMALL_SHARDS)
    assert contents(target) == contents(intact.folder)
