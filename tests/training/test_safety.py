"""Whatever happens while a store is written, or to it afterwards: it ends whole, or the reason is said in one line."""

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
from bertvision.training import shard_builder as shard_maker
from bertvision.training.extract import STARTED, extract, repair
from bertvision.training.shard_builder import STATISTICS

SMALL: dict[str, Any] = {"batch_tokens": 48, "shard_mb": 1}
KILLS = 50 if os.environ.get("BERTVISION_SLOW") else 3
"""BERTVISION_SLOW=1 is the long version."""

NOBODY = 65534


@pytest.fixture(autouse=True)
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every batch a shard of its own."""
    monkeypatch.setattr(shard_maker, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 200, mb))


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a store but how long it took."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def forked(work: Callable[[], object], told: Path | None = None) -> int:
    """Do something in a child process; it ends with 0, or with 2 and its one line in ``told``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a thread of the test runner's does not matter here
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BadInput as error:
        code = 2
        if told is not None:
            told.write_text(str(error))
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def whole(span_encoder: Encoder, span_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An int8 store that nothing happened to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_maker, "plan_shards", lambda b, lengths, per, mb: plan_shards(b, lengths, per * 200, mb))
        return extract(span_encoder, span_task, tmp_path_factory.mktemp("whole") / "store", dtype="int8", **SMALL)


def test_kills_at_random_moments_leave_the_same_store(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store
) -> None:
    target, draw = tmp_path / "store", random.Random(0)

    def work() -> None:
        extract(span_encoder, span_task, target, dtype="int8", **SMALL)

    began = time.perf_counter()
    extract(span_encoder, span_task, tmp_path / "timed", dtype="int8", **SMALL)
    usual, kills = time.perf_counter() - began, 0
    while kills < KILLS:
        child = forked(work)
        time.sleep(draw.uniform(0, usual))
        os.kill(child, signal.SIGKILL)
        kills += ended(child) == -signal.SIGKILL
        if (target / MANIFEST).exists():
            assert ended(forked(work)) == 0  # whoever is killed at the very end leaves something to tidy up
            assert contents(target) == contents(whole.folder)
            shutil.rmtree(target)
    assert ended(forked(work)) == 0
    assert contents(target) == contents(whole.folder)
    assert len(whole.manifest["splits"]["train"]["shards"]) > 5


def test_a_full_disk_is_said_and_more_room_ends_it(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store
) -> None:
    target = tmp_path / "store"
    largest = max(path.stat().st_size for path in whole.folder.rglob("shard-*"))

    def work(limit: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        extract(span_encoder, span_task, target, dtype="int8", **SMALL)

    assert ended(forked(lambda: work(largest - 1), tmp_path / "told")) == 2
    said = (tmp_path / "told").read_text()
    assert "cannot write shard" in said
    assert "free some space or choose another folder" in said
    assert not (target / MANIFEST).exists()
    assert ended(forked(lambda: work(resource.RLIM_INFINITY))) == 0
    assert contents(target) == contents(whole.folder)


def test_a_folder_that_may_not_be_written(span_encoder: Encoder, span_task: Task) -> None:
    place = Path(tempfile.mkdtemp())
    told = place / "told"
    told.touch()
    told.chmod(0o666)
    (place / "closed").mkdir(mode=0o555)
    place.chmod(0o755)

    def work() -> None:
        if os.geteuid() == 0:  # who may write everywhere
            os.setuid(NOBODY)
        extract(span_encoder, span_task, place / "closed" / "store", **SMALL)

    assert ended(forked(work, told)) == 2
    assert "cannot write a store at" in told.read_text()
    assert "Permission denied" in told.read_text()
    shutil.rmtree(place)


def test_of_two_writers_one_wins(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    target = tmp_path / "store"
    with writing(target):
        with pytest.raises(BadInput, match=rf"{target} is being written by process {os.getpid()} on .*; wait for it"):
            extract(span_encoder, span_task, target, **SMALL)
        assert is_locked(target)
    assert not is_locked(target)
    extract(span_encoder, span_task, target, **SMALL)
    assert not (target / LOCK).exists()


def test_the_lock_of_a_dead_process_is_taken_over(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store
) -> None:
    target = tmp_path / "store"

    def die() -> None:
        with writing(target):
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die)) == -signal.SIGKILL
    assert (target / LOCK).exists()
    extract(span_encoder, span_task, target, dtype="int8", **SMALL)
    assert contents(target) == contents(whole.folder)


@pytest.mark.parametrize("harm", ["truncated", "flipped", "deleted", "no entry"])
def test_a_shard_harmed_between_two_attempts_is_made_again(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store, harm: str
) -> None:
    target = tmp_path / "store"
    shutil.copytree(whole.folder, target)
    manifest = json.loads((target / MANIFEST).read_text())
    for split in manifest["splits"].values():
        for entry in split["shards"]:
            (target / record_name(entry["file"])).write_text(json.dumps({**entry, "seconds": 0.0}))
    (target / STARTED).write_text(json.dumps(manifest["fingerprint"]))
    (target / MANIFEST).unlink()
    victim = target / manifest["splits"]["train"]["shards"][2]["file"]
    harmed(victim, harm)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("shard-*.safetensors") if path != victim}
    extract(span_encoder, span_task, target, dtype="int8", **SMALL)
    assert contents(target) == contents(whole.folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def harmed(path: Path, harm: str) -> None:
    content = bytearray(path.read_bytes())
    if harm == "deleted":
        path.unlink()
    elif harm == "no entry":
        Path(record_name(str(path))).unlink()
    elif harm == "truncated":
        path.write_bytes(content[:-7])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("harm", ["truncated", "flipped", "deleted"])
def test_verify_names_the_shard_and_repair_makes_it_again(
    span_encoder: Encoder, tmp_path: Path, whole: Store, harm: str
) -> None:
    target = Path(shutil.copytree(whole.folder, tmp_path / "store"))
    assert find_damage(Store(target)) == []
    name = whole.manifest["splits"]["train"]["shards"][1]["file"]
    harmed(target / name, harm)
    found = find_damage(Store(target))
    assert [damage.file for damage in found] == [name]
    assert {"truncated": "bytes", "flipped": "changed", "deleted": "missing"}[harm] in str(found[0])
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*.safetensors") if path != target / name}
    assert repair(target, span_encoder) == found
    assert contents(target) == contents(whole.folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert repair(target, span_encoder) == []


def test_statistics_are_verified_too(span_encoder: Encoder, tmp_path: Path, whole: Store) -> None:
    target = Path(shutil.copytree(whole.folder, tmp_path / "store"))
    harmed(target / STATISTICS, "flipped")
    assert [damage.file for damage in find_damage(Store(target))] == [STATISTICS]
    repair(target, span_encoder)
    assert contents(target) == contents(whole.folder)


def test_repair_wants_the_encoder_that_made_the_store(tiny_encoder: Encoder, tmp_path: Path, whole: Store) -> None:
    target = Path(shutil.copytree(whole.folder, tmp_path / "store"))
    with pytest.raises(
        BadInput, match=r"encoder is .* there and .* here; give the encoder that made it with --encoder"
    ):
        repair(target, tiny_encoder)


def test_a_shard_that_comes_out_otherwise_is_recorded_as_it_is(
    span_encoder: Encoder, tmp_path: Path, whole: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on another machine, where sums are taken in another order."""
    target = Path(shutil.copytree(whole.folder, tmp_path / "store"))
    manifest = json.loads((target / MANIFEST).read_text())
    entry = manifest["splits"]["dev"]["shards"][0]
    good, entry["sha256"] = entry["sha256"], "0" * 64
    (target / MANIFEST).write_text(json.dumps(manifest))
    assert [damage.file for damage in repair(target, span_encoder)] == [entry["file"]]
    assert "equal up to rounding" in capsys.readouterr().err
    assert find_damage(Store(target)) == []
    assert Store(target).manifest["splits"]["dev"]["shards"][0]["sha256"] == good


def test_another_format_is_named(span_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store) -> None:
    target = Path(shutil.copytree(whole.folder, tmp_path / "store"))
    manifest = json.loads((target / MANIFEST).read_text())
    (target / MANIFEST).write_text(json.dumps({**manifest, "format": 9}))
    for use in (lambda: Store(target), lambda: extract(span_encoder, span_task, target, dtype="int8", **SMALL)):
        with pytest.raises(BadInput, match="is of format 9, expected format 1"):
            use()


def test_statistics_of_another_beginning_are_not_used(
    span_encoder: Encoder, tiny_encoder: Encoder, span_task: Task, tmp_path: Path, whole: Store
) -> None:
    other = extract(tiny_encoder, span_task, tmp_path / "other", dtype="int8", **SMALL)
    target = tmp_path / "store"
    target.mkdir()
    (target / STARTED).write_text(json.dumps(other.manifest["fingerprint"]))
    shutil.copy(other.folder / STATISTICS, target)
    extract(span_encoder, span_task, target, dtype="int8", **SMALL)
    assert contents(target) == contents(whole.folder)
