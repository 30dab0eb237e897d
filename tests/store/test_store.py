"""Reading a store: states equal the encoder's, are unpadded on disk and padded in batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertvision.core.errors import BadInput
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.store.store import MANIFEST, Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.inputs import native_head, split_windows

KINDS = ("span", "label", "value")
CPU = torch.device("cpu")
MAPS = Path("/proc/self/maps")
HALF_STEP = 2**-11  # largest relative error of rounding to f16


@pytest.fixture(scope="module")
def stores(
    small_shards: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Store, Task, Encoder]]:
    """One f16 store of several shards for each kind of task, with what it was made from."""
    stores = {}
    for kind in KINDS:
        task, encoder = request.getfixturevalue(f"{kind}_task"), request.getfixturevalue(f"{kind}_encoder")
        store = extract(encoder, task, tmp_path_factory.mktemp(kind) / "store", batch_tokens=96, shard_mb=1)
        stores[kind] = store, task, encoder
    return stores


def window_states(encoder: Encoder, window: Window) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(states (tokens, layers, width), pooled) of a window that is encoded alone, without padding."""
    batch = collate([window], encoder.tokenizer.pad_token_id, CPU)
    with torch.inference_mode():
        states = hidden_states(encoder.model, batch, range(encoder.layers))
    return states.stacked()[0], None if states.pooled is None else states.pooled[0]


def nearly_equal(stored: torch.Tensor, computed: torch.Tensor) -> bool:
    return bool(((stored - computed).abs() <= HALF_STEP * computed.abs() + 2e-5).all())


def read_rows(store: Store, split: str, batch_size: int = 5, seed: int | None = None) -> dict[int, dict[str, Any]]:
    """All values of a split's batches by window, without padding."""
    rows: dict[int, dict[str, Any]] = {}
    for batch in store[split].batches(batch_size, seed):
        for i, window in enumerate(batch.windows.tolist()):
            size = int(batch.mask[i].sum())
            assert window not in rows
            rows[window] = {
                "hidden": batch.hidden[i, :size],
                "target": batch.targets[i],
                "pooled": None if batch.pooled is None else batch.pooled[i],
                "logits": None if batch.logits is None else batch.logits[i],
                "size": size,
            }
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ["train", "inner", "dev"])
def test_stored_states_equal_the_encoders(stores: dict[str, Any], kind: str, split: str) -> None:
    store, task, encoder = stores[kind]
    windows, rows = split_windows(task, split, encoder), read_rows(store, split)
    assert sorted(rows) == list(range(len(windows))) == list(range(len(store[split])))
    for number, window in enumerate(windows):
        states, pooled = window_states(encoder, window)
        assert rows[number]["hidden"].shape == (len(window), encoder.layers, encoder.width)
        assert nearly_equal(rows[number]["hidden"], states)
        assert pooled is not None
        assert nearly_equal(rows[number]["pooled"], pooled)


def test_state_0_is_the_embedding_output(stores: dict[str, Any]) -> None:
    store, task, encoder = stores["span"]
    window = split_windows(task, "dev", encoder)[0]
    ids, types = torch.tensor(window.input_ids)[None].long(), torch.tensor(window.token_types)[None].long()
    with torch.inference_mode():
        embedded = encoder.model.embeddings(input_ids=ids, token_type_ids=types)[0]
    assert nearly_equal(read_rows(store, "dev")[0]["hidden"][:, 0], embedded)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_targets_and_native_logits(stores: dict[str, Any], kind: str) -> None:
    store, task, encoder = stores[kind]
    head = native_head(encoder)
    assert head is not None
    rows = read_rows(store, "inner")
    for number, window in enumerate(split_windows(task, "inner", encoder)):
        target = rows[number]["target"]
        assert target.tolist() == (list(window.target) if kind == "span" else pytest.approx(window.target[0]))
        states, pooled = window_states(encoder, window)
        with torch.inference_mode():
            expected = head(states[None], torch.ones(1, len(window), dtype=torch.bool), pooled[None])[0]
        logits = rows[number]["logits"]
        torch.testing.assert_close(logits[: len(window)] if kind == "span" else logits, expected, atol=1e-5, rtol=1e-5)


def test_batch_is_padded_with_zeros_to_its_longest_window(stores: dict[str, Any]) -> None:
    store, _, encoder = stores["span"]
    uneven = 0
    for batch in store["train"].batches(7):
        count, tokens = batch.mask.shape
        sizes = batch.mask.sum(1)
        uneven += int(sizes.min() < tokens)
        assert sizes.max() == tokens
        assert torch.equal(batch.mask, torch.arange(tokens)[None] < sizes[:, None])
        assert batch.hidden.shape == (count, tokens, encoder.layers, encoder.width)
        assert {batch.hidden.dtype, batch.pooled.dtype, batch.logits.dtype, batch.targets.dtype} == {torch.float32}
        assert (batch.hidden[~batch.mask] == 0).all()
        assert (batch.logits[~batch.mask] == 0).all()
        assert batch.targets.shape == (count, 2)
        assert batch.pooled.shape == (count, encoder.width)
    assert uneven
    label = next(stores["label"][0]["train"].batches(2))
    assert label.targets.shape == (2,)
    assert label.logits.shape == (2, 3)


def test_batch_order_depends_only_on_the_seed(stores: dict[str, Any]) -> None:
    split = stores["span"][0]["train"]
    orders = [[batch.windows.tolist() for batch in split.batches(4, seed)] for seed in (None, None, 1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[2] == orders[3]
    assert orders[2] != orders[4]
    for order in orders:
        assert sorted(window for batch in order for window in batch) == list(range(len(split)))
        assert len(order) == split.batch_count(4)
    assert sum(1 for _ in split.batches(1000)) == split.batch_count(1000) == len(list(split.shards())) > 2


def test_shard_size_has_no_padding(stores: dict[str, Any]) -> None:
    """A shard holds states, ids, types, offsets and native logits by token, and the fields of each window."""
    store, _, encoder = stores["span"]
    for entry in store.manifest["splits"]["train"]["shards"]:
        path = store.folder / entry["file"]
        shard = load_file(path)
        windows, tokens = len(shard["lengths"]), int(shard["lengths"].sum())
        assert shard["hidden"].shape == (tokens, encoder.layers, encoder.width)
        assert shard["hidden"].dtype == torch.float16
        per_token = encoder.layers * encoder.width * 2 + 4 + 1 + 2 * 4 + 2 * 4
        per_window = 4 + 8 + 8 + 4 + 16 + 2 * 4 + encoder.width * 2
        header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        assert path.stat().st_size == entry["bytes"] == header + tokens * per_token + windows * per_window
        assert windows == entry["windows"]


def test_manifest_totals_match_the_shards(stores: dict[str, Any]) -> None:
    for store, task, encoder in stores.values():
        for split, facts in store.manifest["splits"].items():
            windows = split_windows(task, split, encoder)
            assert facts["windows"] == len(windows) == sum(entry["windows"] for entry in facts["shards"])
            assert facts["tokens"] == sum(len(window) for window in windows)
            files = [store.folder / entry["file"] for entry in facts["shards"]]
            assert facts["bytes"] == sum(path.stat().st_size for path in files)
            assert sorted((store.folder / split).iterdir()) == sorted(files)
        assert store.shape.layers == len(store.layers) == encoder.layers
        assert (store.shape.width, store.shape.outputs, store.shape.kind) == (encoder.width, task.outputs, task.kind)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_native_logits_are_in_window_order(stores: dict[str, Any], kind: str) -> None:
    store, task, encoder = stores[kind]
    windows = split_windows(task, "train", encoder)
    table, logits = store["train"].table(), store["train"].native_logits()
    assert len(table) == len(windows) == len(logits)
    assert table.example.tolist() == [window.example for window in windows]
    assert table.cls.tolist() == [window.cls for window in windows]
    assert np.allclose(table.targets, [window.target for window in windows], atol=1e-6)
    rows = read_rows(store, "train")
    for number, window in enumerate(windows):
        assert np.array_equal(table.offsets[number], window.offsets)
        assert np.array_equal(table.input_ids[number], window.input_ids)
        expected = rows[number]["logits"].numpy()
        assert np.array_equal(logits[number], expected[: len(window)] if kind == "span" else expected)
    assert store["train"].table() is table


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux lists what a process has mapped")
@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_native_logits_do_not_keep_shards_mapped(stores: dict[str, Any], kind: str) -> None:
    store = Store(stores[kind][0].folder)
    kept = store["train"].table(), store["train"].native_logits()
    assert all(kept)
    assert str(store.folder) not in MAPS.read_text()


def test_token_types_are_stored(stores: dict[str, Any]) -> None:
    store, task, encoder = stores["value"]
    windows = split_windows(task, "dev", encoder)
    for shard in store["dev"].shards():
        types = shard["token_types"].split(shard["lengths"].tolist())
        for number, row in zip(shard["windows"].tolist(), types, strict=True):
            assert row.tolist() == windows[number].token_types.tolist()
            assert 1 in row


def copy_store(store: Store, to: Path) -> Path:
    return Path(shutil.copytree(store.folder, to / "copy"))


def error_when_read(folder: Path, split: str = "dev") -> str:
    with pytest.raises(BadInput) as error:
        for _ in Store(folder)[split].batches(4):
            pass
    assert "\n" not in str(error.value)
    return str(error.value)


def test_unknown_split_is_an_error(stores: dict[str, Any], tmp_path: Path) -> None:
    assert "has no split 'test'; it has train, inner, dev" in error_when_read(stores["span"][0].folder, "test")


def test_missing_manifest_is_an_error(stores: dict[str, Any], tmp_path: Path) -> None:
    folder = copy_store(stores["span"][0], tmp_path)
    (folder / MANIFEST).unlink()
    for path in (folder, tmp_path / "nowhere", folder / "task" / "task.json"):
        text = error_when_read(path)
        assert f"no finished store at {path}" in text
        assert "bertvision extract" in text


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"7", b"{}", b'{"format": 99}'])
def test_broken_manifest_is_an_error(stores: dict[str, Any], tmp_path: Path, content: bytes) -> None:
    folder = copy_store(stores["span"][0], tmp_path)
    (folder / MANIFEST).write_bytes(content)
    text = error_when_read(folder)
    assert str(folder / MANIFEST) in text
    assert "extract again" in text


@pytest.mark.parametrize("size", [0, 5, 200, -1])
def test_truncated_shard_is_an_error(stores: dict[str, Any], tmp_path: Path, size: int) -> None:
    folder = copy_store(stores["span"][0], tmp_path)
    path = sorted((folder / "dev").iterdir())[0]
    path.write_bytes(path.read_bytes()[:size])
    text = error_when_read(folder)
    assert str(path) in text
    assert "cannot be read" in text
    path.unlink()
    assert str(path) in error_when_read(folder)
