"""After rows were added, removed or relabelled, extraction runs the encoder on new windows only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.files import file_sha256, write_json
from bertvision.core.records import SPLITS, Example
from bertvision.encoders.loading import Encoder
from bertvision.store import previous, writer
from bertvision.store.lock import is_locked, writing
from bertvision.store.shard_file import Shard, read_shard, write_shard
from bertvision.store.store import MANIFEST, Store, find_damage, recorded
from bertvision.tasks.task import Task, read_task
from bertvision.training import extract as extract_module
from bertvision.training import shard_builder
from bertvision.training.extract import extract, extract_share, finalize, repair

pytestmark = pytest.mark.usefixtures("small_shards")

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}
STATES = ("hidden", "scales", "pooled", "logits", "mean", "spread")
HALF_STEP = 2**-10
"""The distance of neighbouring f16 numbers, relative to their size."""


class Passes(list[int]):
    """The number of windows in each forward pass of the encoder."""


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    counted, run = Passes(), shard_builder.hidden_states

    def hidden_states(model: Any, batch: Any, layers: Any) -> Any:
        counted.append(len(batch.input_ids))
        return run(model, batch, layers)

    monkeypatch.setattr(shard_builder, "hidden_states", hidden_states)
    return counted


def edited(task: Task) -> Task:
    """A task without its second training row, with its first in dev, the last relabelled, and other texts in train."""
    first, _, *others, last = task["train"]
    label = {"label": 1.0 - float(last.label)} if last.label is not None else {"answers": ()}
    new = [replace(row, id=f"new-{row.id}", text=f"good {row.text}") for row in others[:2]]
    splits = {**task.splits, "train": (*new, *others, replace(last, **label)), "dev": (*task["dev"], first)}
    return replace(task, splits=splits)


def shards_of(store: Store) -> Iterator[tuple[str, Shard]]:
    for split in SPLITS:
        for number, shard in enumerate(store[split].shards()):
            yield f"{split} {number}", shard


def assert_nearly_equal(got: torch.Tensor, wanted: torch.Tensor, steps: float = 1.0) -> None:
    got, wanted = got.float(), wanted.float()
    assert bool(((got - wanted).abs() <= steps * (HALF_STEP * wanted.abs() + 2e-5)).all())


def assert_same_store(store: Store, fresh: Store) -> None:
    """Equal windows in equal order, and states up to rounding."""
    assert read_task(store.folder / "task") == read_task(fresh.folder / "task")
    assert store.id == fresh.id
    assert not find_damage(store)
    pairs = list(zip(shards_of(store), shards_of(fresh), strict=True))
    for (name, shard), (fresh_name, expected) in pairs:
        assert name == fresh_name
        assert list(shard) == list(expected)
        for key in shard.keys() - set(STATES):
            assert torch.equal(shard[key], expected[key]), key
        for key in shard.keys() & {"pooled", "logits"}:
            assert_nearly_equal(shard[key], expected[key])
        if store.manifest["dtype"] != "int8":
            assert_nearly_equal(shard["hidden"], expected["hidden"])
    if store.manifest["dtype"] == "int8":
        for split in SPLITS:
            for batch, other in zip(store[split].batches(4), fresh[split].batches(4), strict=True):
                assert float((batch.hidden - other.hidden).abs().max()) < 0.05, "two roundings to 127 steps"


def keys_by_split(store: Store) -> dict[str, set[tuple[int, ...]]]:
    return {
        split: {tuple(key) for shard in store[split].shards() for key in shard["keys"].tolist()} for split in SPLITS
    }


def new_windows(old: Store, new: Store) -> int:
    """Windows of a store whose keys the other does not have."""
    stored = set().union(*keys_by_split(old).values())
    return sum(tuple(key) not in stored for _, shard in shards_of(new) for key in shard["keys"].tolist())


CASES = [
    ("span", {}),
    ("span", {"tokens": "context"}),
    ("span", {"layers": "first2", "dtype": "f32"}),
    ("span", {"dtype": "int8"}),
    ("label", {}),
    ("label", {"tokens": "cls+mean+max"}),
    ("label", {"tokens": "cls", "dtype": "int8"}),
    ("value", {"tokens": "mean", "dtype": "f32"}),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_only_new_windows_are_encoded(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    passes: Passes,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    options: dict[str, Any],
) -> None:
    encoder, task = (request.getfixturevalue(f"{kind}_{what}") for what in ("encoder", "task"))
    fresh = extract(encoder, edited(task), tmp_path / "fresh", **SMALL_SHARDS, **options)
    old = extract(encoder, task, tmp_path / "old", **SMALL_SHARDS, **options)
    expected = new_windows(old, fresh)
    assert 0 < expected < len(fresh["train"])
    shutil.copytree(tmp_path / "old", tmp_path / "store")
    passes.clear()
    capsys.readouterr()
    store = extract(encoder, edited(task), tmp_path / "store", **SMALL_SHARDS, **options)
    assert sum(passes) == expected
    total = sum(len(fresh[split]) for split in SPLITS)
    what = "windows" if kind == "span" else "texts"
    line = f"extract: {total - expected} of {total} {what} are already stored; the encoder runs on {expected}"
    assert line in capsys.readouterr().err.splitlines()
    assert_same_store(store, fresh)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "old", "store"]
    assert {path.relative_to(store.folder) for path in store.folder.rglob("*")} == {
        path.relative_to(fresh.folder) for path in fresh.folder.rglob("*")
    }


def texts_of(numbers: list[int], split: str, label: int) -> tuple[Example, ...]:
    return tuple(
        Example(f"{split}-{n}-{i}", f"the old town {'and ' * (n % 7)}{n}", label=float((n + label) % 3))
        for i, n in enumerate(numbers)
    )


@pytest.fixture(scope="module")
def numbered_task(label_task: Task) -> Task:
    """Different texts; the states of equal ones may differ by rounding."""
    splits = {split: texts_of(list(range(20 * i, 20 * i + 20)), split, 0) for i, split in enumerate(SPLITS)}
    return replace(label_task, splits=splits)


def relabelled(task: Task) -> Task:
    rows = tuple(replace(row, label=2.0 - float(row.label or 0)) for row in task["train"])
    return replace(task, splits={**task.splits, "train": rows})


@pytest.mark.parametrize("options", [{}, {"dtype": "int8"}, {"tokens": "cls+mean+max"}])
def test_new_labels_need_no_encoder(
    label_encoder: Encoder, numbered_task: Task, tmp_path: Path, passes: Passes, options: dict[str, Any]
) -> None:
    extract(label_encoder, numbered_task, tmp_path / "store", **SMALL_SHARDS, **options)
    states = {name: shard["hidden"].clone() for name, shard in shards_of(Store(tmp_path / "store"))}
    passes.clear()
    task = relabelled(numbered_task)
    store = extract(label_encoder, task, tmp_path / "store", **SMALL_SHARDS, **options)
    assert passes == []
    assert store["train"].table().targets[:, 0].tolist() == [row.label for row in task["train"]]
    assert all(torch.equal(shard["hidden"], states[name]) for name, shard in shards_of(store))
    again = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    extract(label_encoder, task, tmp_path / "store", **SMALL_SHARDS, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == again


def test_few_new_rows_need_few_forward_passes(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, passes: Passes
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "store", batch_tokens=48)
    batches = len(passes)
    rows = [replace(row, text=f"old {row.text}", id=f"new-{row.id}") for row in label_task["train"][:3]]
    task = replace(label_task, splits={**label_task.splits, "train": (*label_task["train"], *rows)})
    passes.clear()
    store = extract(tiny_encoder, task, tmp_path / "store", batch_tokens=48)
    shards = len(store["train"].sizes)
    assert len(passes) <= shards + 1 < batches / 2


numbered = st.lists(st.integers(0, 25), min_size=1, max_size=18)
tables = st.fixed_dictionaries(dict.fromkeys(SPLITS, numbered))


@given(old=tables, new=tables, label=st.integers(0, 2))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_of_rows_gives_the_store_of_a_fresh_extraction(
    label_encoder: Encoder, label_task: Task, old: dict[str, list[int]], new: dict[str, list[int]], label: int
) -> None:
    before = replace(label_task, splits={split: texts_of(rows, split, 0) for split, rows in old.items()})
    after = replace(label_task, splits={split: texts_of(rows, split, label) for split, rows in new.items()})
    with TemporaryDirectory() as folder:
        fresh = extract(label_encoder, after, Path(folder) / "fresh", **SMALL_SHARDS)
        extract(label_encoder, before, Path(folder) / "store", **SMALL_SHARDS)
        assert_same_store(extract(label_encoder, after, Path(folder) / "store", replace=True, **SMALL_SHARDS), fresh)


class Killed(Exception):
    pass


def kill_at(patch: pytest.MonkeyPatch, module: Any, name: str, call: int, after: bool = False) -> None:
    """Raise before, or right after, the given call of a function."""
    original, calls = getattr(module, name), []

    def raising(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) != call:
            return original(*arguments, **options)
        if after:
            original(*arguments, **options)
        raise Killed

    patch.setattr(module, name, raising)


STAGES: dict[str, tuple[Any, str, int, bool]] = {
    "before the mark": (previous, "write_json", 1, False),
    "after the mark": (previous, "write_json", 1, True),
    "after the move": (os, "rename", 1, True),
    "before the fingerprint": (extract_module, "write_json", 1, False),
    "after the fingerprint": (extract_module, "write_json", 1, True),
    "before the task": (extract_module, "save_task", 1, False),
    "before the statistics or first shard": (writer, "write_shard", 1, False),
    "at the second shard": (writer, "write_shard", 2, False),
    "after the third shard": (writer, "write_shard", 3, True),
    "before the manifest": (extract_module, "write_json", 2, False),
    "after the manifest": (extract_module, "write_json", 2, True),
    "in the tidying": (extract_module, "record_name", 2, False),
    "before the deletion": (previous, "delete", 1, False),
    "after the deletion": (previous, "delete", 1, True),
}


def contents(folder: Path) -> dict[str, Any]:
    files: dict[str, Any] = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


@pytest.fixture(scope="module")
def old_store(
    small_shards: None, label_encoder: Encoder, label_task: Task, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("old") / "store"
    return extract(label_encoder, label_task, folder, dtype="int8", **SMALL_SHARDS).folder


@pytest.fixture(scope="module")
def edited_store(
    old_store: Path, label_encoder: Encoder, label_task: Task, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Made from the old store without an interruption."""
    folder = shutil.copytree(old_store, tmp_path_factory.mktemp("edited") / "store")
    return extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS).folder


@pytest.mark.parametrize("stage", STAGES)
def test_killed_replacement_continues(
    label_encoder: Encoder,
    label_task: Task,
    tmp_path: Path,
    passes: Passes,
    old_store: Path,
    edited_store: Path,
    stage: str,
) -> None:
    folder, task = shutil.copytree(old_store, tmp_path / "store"), edited(label_task)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, *STAGES[stage])
        with pytest.raises(Killed):
            extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS)
    finished = [path for path in (folder, tmp_path / "store.previous") if (path / MANIFEST).exists()]
    assert finished, "one store is finished at every moment"
    assert not find_damage(Store(finished[0]))
    assert not any(is_locked(path) for path in finished)
    passes.clear()
    extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS)
    assert sum(passes) <= new_windows(Store(old_store), Store(edited_store))
    assert contents(folder) == contents(edited_store)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("files", [1, 4, 9])
def test_killed_deletion_continues(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path, edited_store: Path, files: int
) -> None:
    """And a half-deleted store is no source of states."""
    folder, task, unlink = shutil.copytree(old_store, tmp_path / "store"), edited(label_task), Path.unlink
    deleted = []

    def unlink_some(path: Path, missing_ok: bool = False) -> None:
        if path.is_relative_to(tmp_path / "store.previous"):
            deleted.append(path)
            if len(deleted) > files:
                raise Killed
        unlink(path, missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_some)
        with pytest.raises(Killed):
            extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS)
    assert (tmp_path / "store.previous" / MANIFEST).exists()
    again = tmp_path / "again"
    again.mkdir()
    shutil.copytree(tmp_path / "store", again / "store")
    shutil.copytree(tmp_path / "store.previous", again / "store.previous")
    extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS)
    assert contents(folder) == contents(edited_store)
    assert not (tmp_path / "store.previous").exists()
    extract(label_encoder, relabelled(task), again / "store", dtype="int8", **SMALL_SHARDS)
    assert [path.name for path in again.iterdir()] == ["store"]


def test_data_may_change_again_before_the_replacement_is_finished(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, passes: Passes, old_store: Path
) -> None:
    folder = shutil.copytree(old_store, tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, writer, "write_shard", 3)
        with pytest.raises(Killed):
            extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS)
    passes.clear()
    store = extract(label_encoder, relabelled(label_task), folder, dtype="int8", **SMALL_SHARDS)
    assert passes == []
    assert store["train"].table().targets[:, 0].tolist() == [
        float(row.label) for row in relabelled(label_task)["train"]
    ]
    assert not find_damage(store)
    assert not (tmp_path / "store.previous").exists()


def interrupted(encoder: Encoder, task: Task, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, os, "rename", 1, after=True)
        with pytest.raises(Killed):
            extract(encoder, task, folder, dtype="int8", **SMALL_SHARDS)


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as error:
        work()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_interrupted_replacement_refuses_other_settings(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path
) -> None:
    folder = shutil.copytree(old_store, tmp_path / "store")
    interrupted(label_encoder, edited(label_task), folder)
    line = refused(lambda: extract(label_encoder, label_task, folder, dtype="f16", **SMALL_SHARDS))
    assert "dtype is int8 there and f16 here" in line
    assert "repeat the command that was interrupted" in line
    assert not find_damage(Store(tmp_path / "store.previous"))


def test_part_of_a_store_is_not_made_from_another(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path
) -> None:
    task, settings = edited(label_task), {"dtype": "int8", **SMALL_SHARDS}
    for work in (
        lambda: extract_share(label_encoder, task, old_store, (1, 2), **settings),
        lambda: finalize(label_encoder, task, old_store, **settings),
    ):
        assert "was made from other inputs: data is" in refused(work)
    folder = shutil.copytree(old_store, tmp_path / "store")
    interrupted(label_encoder, task, folder)
    extract_share(label_encoder, task, folder, (1, 1), **settings)
    finalize(label_encoder, task, folder, **settings)
    extract(label_encoder, task, folder, **settings)  # deletes what is left
    assert not find_damage(Store(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_other_statistics_make_states_unusable(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, passes: Passes, old_store: Path
) -> None:
    """A part that was extracted in between has computed them from the new data."""
    task, folder = edited(label_task), shutil.copytree(old_store, tmp_path / "store")
    fresh = extract(label_encoder, task, tmp_path / "fresh", dtype="int8", **SMALL_SHARDS)
    interrupted(label_encoder, task, folder)
    extract_share(label_encoder, task, folder, (1, 4), dtype="int8", **SMALL_SHARDS)
    extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS)
    assert contents(folder) == contents(fresh.folder)


def test_store_of_another_table_is_refused_unless_it_may_be_replaced(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)
    before = contents(tmp_path / "store")
    other = {split: tuple(replace(row, text=f"{row.text} x") for row in label_task[split]) for split in SPLITS}
    task = replace(label_task, splits={**other, "dev": label_task["dev"]})
    line = refused(lambda: extract(tiny_encoder, task, tmp_path / "store", **SMALL_SHARDS))
    assert "was made from other inputs: data is" in line
    assert contents(tmp_path / "store") == before
    store = extract(tiny_encoder, task, tmp_path / "store", replace=True, **SMALL_SHARDS)
    assert_same_store(store, extract(tiny_encoder, task, tmp_path / "fresh", **SMALL_SHARDS))


@pytest.mark.parametrize("unfinished", [False, True])
def test_store_of_another_encoder_may_be_replaced(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, tmp_path: Path, unfinished: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if unfinished:
            kill_at(patch, writer, "write_shard", 2)
            with pytest.raises(Killed):
                extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)
        else:
            extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)
    refused(lambda: extract(label_encoder, label_task, tmp_path / "store", **SMALL_SHARDS))
    store = extract(label_encoder, label_task, tmp_path / "store", replace=True, **SMALL_SHARDS)
    fresh = extract(label_encoder, label_task, tmp_path / "fresh", **SMALL_SHARDS)
    assert contents(store.folder) == contents(fresh.folder)


def without_keys(folder: Path) -> None:
    """Turn a store into one from before shards had keys."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    for record in recorded({"splits": manifest["splits"]}):
        path = folder / record["file"]
        tensors = {name: tensor.clone() for name, tensor in read_shard(path).items() if name != "keys"}
        write_shard(tensors, path)
        record.update(sha256=file_sha256(path), bytes=path.stat().st_size)
    write_json(folder / MANIFEST, manifest)


def test_old_store_of_all_tokens_is_reused(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, passes: Passes, old_store: Path, edited_store: Path
) -> None:
    folder = shutil.copytree(old_store, tmp_path / "store")
    without_keys(folder)
    passes.clear()
    extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS)
    assert sum(passes) == new_windows(Store(old_store), Store(edited_store))
    assert contents(folder) == contents(edited_store)


def test_old_store_of_summaries_is_refused(label_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    extract(label_encoder, label_task, tmp_path / "store", tokens="mean")
    without_keys(tmp_path / "store")
    line = refused(lambda: extract(label_encoder, relabelled(label_task), tmp_path / "store", tokens="mean"))
    assert "was made from other inputs: data is" in line
    assert not find_damage(Store(tmp_path / "store"))


def test_damaged_shard_is_no_source(
    label_encoder: Encoder, numbered_task: Task, tmp_path: Path, passes: Passes, capsys: pytest.CaptureFixture[str]
) -> None:
    store = extract(label_encoder, numbered_task, tmp_path / "store", **SMALL_SHARDS)
    fresh = extract(label_encoder, relabelled(numbered_task), tmp_path / "fresh", **SMALL_SHARDS)
    record = store.manifest["splits"]["train"]["shards"][0]
    path = store.folder / record["file"]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    passes.clear()
    replaced = extract(label_encoder, relabelled(numbered_task), tmp_path / "store", **SMALL_SHARDS)
    assert 0 < sum(passes) == record["windows"]
    assert f"{record['file']} of the earlier store is damaged" in capsys.readouterr().err
    assert_same_store(replaced, fresh)


def test_store_without_intact_shards_is_no_source(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path
) -> None:
    folder, task = shutil.copytree(old_store, tmp_path / "store"), edited(label_task)
    fresh = extract(label_encoder, task, tmp_path / "fresh", dtype="int8", **SMALL_SHARDS)
    for path in folder.glob("*/shard-*"):
        path.unlink()
    line = refused(lambda: extract(label_encoder, task, folder, dtype="int8", **SMALL_SHARDS))
    assert "was made from other inputs: data is" in line
    extract(label_encoder, task, folder, replace=True, dtype="int8", **SMALL_SHARDS)
    assert contents(folder) == contents(fresh.folder)


def test_folder_in_the_way_is_an_error_and_left_alone(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path
) -> None:
    """Even if it is a store that the user has kept."""
    for name in ("store", "store.previous"):
        shutil.copytree(old_store, tmp_path / name)
    before = contents(tmp_path / "store.previous")
    task = edited(label_task)
    line = refused(lambda: extract(label_encoder, task, tmp_path / "store", dtype="int8", **SMALL_SHARDS))
    assert "cannot be moved to" in line
    assert "remove what is in the way" in line
    assert contents(tmp_path / "store.previous") == before
    assert not find_damage(Store(tmp_path / "store"))
    extract(label_encoder, label_task, tmp_path / "store", dtype="int8", **SMALL_SHARDS)
    assert contents(tmp_path / "store.previous") == before


@pytest.mark.parametrize("kill", [False, True])
def test_linked_store_stays_where_it_is(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path, edited_store: Path, kill: bool
) -> None:
    folder = tmp_path / "run" / "store"
    folder.parent.mkdir()
    folder.symlink_to(shutil.copytree(old_store, tmp_path / "disk" / "states"))
    if kill:
        interrupted(label_encoder, edited(label_task), folder)
    extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS)
    assert folder.is_symlink()
    assert contents(tmp_path / "disk" / "states") == contents(edited_store)
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["states"]


def test_statistics_of_earlier_data_are_recorded_and_repaired(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path, edited_store: Path
) -> None:
    folder = shutil.copytree(edited_store, tmp_path / "store")
    before, statistics = contents(folder), Store(folder).manifest["statistics"]
    old = Store(old_store).manifest
    assert statistics["data"] == old["fingerprint"]["data"] != Store(folder).manifest["fingerprint"]["data"]
    assert statistics["sha256"] == old["statistics"]["sha256"]
    (folder / statistics["file"]).unlink()
    assert [damage.file for damage in repair(folder, label_encoder)] == [statistics["file"]]
    assert contents(folder) == before
    task = edited(label_task)
    store = extract(label_encoder, relabelled(task), folder, dtype="int8", **SMALL_SHARDS)
    assert store.manifest["statistics"] == statistics, "those of the first data"


def test_shards_of_a_store_with_copied_states_are_repaired(
    label_encoder: Encoder, tmp_path: Path, edited_store: Path
) -> None:
    folder = shutil.copytree(edited_store, tmp_path / "store")
    for path in (folder / "train").iterdir():
        path.unlink()
    assert repair(folder, label_encoder)
    assert not find_damage(Store(folder))
    assert_same_store(Store(folder), Store(edited_store))


def test_store_being_replaced_is_locked(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(old_store, tmp_path / "store")
    seen, save = [], extract_module.save_task

    def save_task(*arguments: Any) -> None:
        seen.append((is_locked(folder), is_locked(tmp_path / "store.previous")))
        save(*arguments)

    monkeypatch.setattr(extract_module, "save_task", save_task)
    extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS)
    assert seen == [(True, True)]


def test_store_that_is_being_written_is_not_replaced(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, old_store: Path
) -> None:
    folder = shutil.copytree(old_store, tmp_path / "store")
    with writing(folder):
        line = refused(lambda: extract(label_encoder, edited(label_task), folder, dtype="int8", **SMALL_SHARDS))
    assert "is being written by" in line
    assert contents(folder) == contents(old_store)
