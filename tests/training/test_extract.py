"""Extraction: done once, resumed after interruption, and never mixed with other inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertvision.core.errors import BadInput
from bertvision.core.records import SPLITS
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.store import writer
from bertvision.store.store import MANIFEST, Store
from bertvision.tasks.task import Task, read_task
from bertvision.training import extract as extract_module
from bertvision.training.extract import STARTED, extract
from bertvision.training.inputs import encoder_hash, split_windows

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}


pytestmark = pytest.mark.usefixtures("small_shards")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def modification_times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def without_seconds(files: dict[str, bytes]) -> dict[str, Any]:
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def extract_error(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(BadInput) as error:
        extract(*arguments, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_second_extraction_writes_nothing(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    first = extract(span_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path)
    again = extract(span_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    assert modification_times(tmp_path) == before
    assert first.id == again.id
    assert not (tmp_path / "store" / STARTED).exists()


def test_saved_and_loaded_encoder_matches_the_store(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    span_encoder.save_pretrained(tmp_path / "encoder")
    loaded = load_encoder(str(tmp_path / "encoder"))
    extract(span_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path / "store")
    extract(loaded, span_task, tmp_path / "store", **SMALL_SHARDS)
    assert modification_times(tmp_path / "store") == before


def test_store_contains_the_task(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    store = extract(span_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    assert read_task(store.folder / "task") == span_task


class Interrupted(Exception):
    pass


def interrupt_extraction(patch: pytest.MonkeyPatch, shards: int, encoder: Encoder, task: Task, to: Path) -> None:
    """Interrupt an extraction after it has written ``shards`` shards."""
    original, written = writer.write_shard, []

    def write(shard: Any, path: Path) -> str:
        if len(written) == shards:
            raise Interrupted
        written.append(path)
        return original(shard, path)

    patch.setattr(writer, "write_shard", write)
    with pytest.raises(Interrupted):
        extract(encoder, task, to, **SMALL_SHARDS)
    patch.setattr(writer, "write_shard", original)


@pytest.mark.parametrize("shards", [0, 1, 4])
def test_interrupted_extraction_resumes_to_the_same_store(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    extract(span_encoder, span_task, tmp_path / "whole", **SMALL_SHARDS)
    target = tmp_path / "resumed"
    interrupt_extraction(monkeypatch, shards, span_encoder, span_task, target)
    times_before = {name: stamp for name, stamp in modification_times(target).items() if name.endswith(".safetensors")}
    assert len(times_before) == shards
    assert not (target / MANIFEST).exists()
    with pytest.raises(BadInput, match="no finished store"):
        Store(target)
    extract(span_encoder, span_task, target, **SMALL_SHARDS)
    assert {name: modification_times(target)[name] for name in times_before} == times_before
    assert without_seconds(contents(target)) == without_seconds(contents(tmp_path / "whole"))


def test_resuming_with_other_settings_is_an_error(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_extraction(monkeypatch, 1, tiny_encoder, label_task, tmp_path / "store")
    before = contents(tmp_path)
    text = extract_error(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS, dtype="f32")
    assert "dtype is f16 there and f32 here" in text
    assert contents(tmp_path) == before
    (tmp_path / "store" / STARTED).write_text("{")
    assert "cannot be read" in extract_error(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)


def test_interrupted_extraction_without_shards_is_replaced(
    tiny_encoder: Encoder, label_task: Task, span_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_extraction(monkeypatch, 0, tiny_encoder, span_task, tmp_path / "store")
    store = extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS, dtype="f32")
    fresh = extract(tiny_encoder, label_task, tmp_path / "fresh", **SMALL_SHARDS, dtype="f32")
    assert without_seconds(contents(store.folder)) == without_seconds(contents(fresh.folder))


def test_manifest_is_written_last(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, writes = extract_module.write_json, []

    def write(path: Path, content: Any) -> None:
        writes.append((path.name, len(list(tmp_path.rglob("*.safetensors")))))
        original(path, content)

    monkeypatch.setattr(extract_module, "write_json", write)
    store = extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)
    shards = sum(len(store.manifest["splits"][split]["shards"]) for split in SPLITS)
    assert shards > 3
    assert writes == [(STARTED, 0), (MANIFEST, shards)]


def by_window(store: Store) -> dict[int, torch.Tensor]:
    """States (tokens, layers, width) of dev."""
    return {
        window: batch.hidden[row, : int(batch.mask[row].sum())]
        for batch in store["dev"].batches(4)
        for row, window in enumerate(batch.windows.tolist())
    }


def test_extraction_of_some_layers(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    """The native head reads the last layer, which is not stored here."""
    whole = extract(span_encoder, span_task, tmp_path / "whole", **SMALL_SHARDS)
    partial = extract(span_encoder, span_task, tmp_path / "part", **SMALL_SHARDS, layers="first2")
    assert (partial.layers, partial.shape.layers) == ((0, 1), 2)
    all_states, partial_states = by_window(whole), by_window(partial)
    assert len(partial_states) == len(partial["dev"])
    assert all(torch.equal(all_states[number][:, :2], states) for number, states in partial_states.items())
    for logits, expected in zip(partial["dev"].native_logits() or [], whole["dev"].native_logits() or [], strict=True):
        assert logits.tolist() == expected.tolist()


def test_f32_is_exact_and_f16_is_rounded(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    full = extract(tiny_encoder, label_task, tmp_path / "full", dtype="f32", batch_tokens=96)
    half = extract(tiny_encoder, label_task, tmp_path / "half", dtype="f16", batch_tokens=96)
    pairs = list(zip(full["dev"].shards(), half["dev"].shards(), strict=True))
    for exact, rounded in pairs:
        assert (exact["hidden"].dtype, rounded["hidden"].dtype) == (torch.float32, torch.float16)
        assert torch.equal(exact["hidden"].half(), rounded["hidden"])
        assert not torch.equal(exact["hidden"], rounded["hidden"].float())


def test_store_of_an_untuned_encoder_without_pooler(
    tiny_encoder_folder: Path, label_task: Task, tmp_path: Path
) -> None:
    bare = transformers.BertModel.from_pretrained(tiny_encoder_folder, add_pooling_layer=False)
    bare.save_pretrained(tmp_path / "bare")
    transformers.AutoTokenizer.from_pretrained(tiny_encoder_folder).save_pretrained(tmp_path / "bare")
    store = extract(load_encoder(str(tmp_path / "bare")), label_task, tmp_path / "store")
    batch = next(store["dev"].batches(4))
    assert batch.pooled is None
    assert batch.logits is None
    assert store["dev"].native_logits() is None
    assert store.manifest["own"] is None


def test_regression_targets_are_stored_standardised(tiny_encoder: Encoder, value_task: Task, tmp_path: Path) -> None:
    store = extract(tiny_encoder, value_task, tmp_path / "store")
    targets = store["train"].table().targets[:, 0]
    assert targets.mean() == pytest.approx(0, abs=1e-6)
    assert targets.std() == pytest.approx(1, abs=1e-6)
    expected = [(float(e.label or 0) - value_task.center) / value_task.spread for e in value_task["dev"]]
    assert store["dev"].table().targets[:, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_extraction_changes_neither_encoder_nor_random_state(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    before, state = encoder_hash(tiny_encoder), torch.get_rng_state()
    extract(tiny_encoder, label_task, tmp_path / "store")
    assert encoder_hash(tiny_encoder) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_tokenizer_hash_does_not_depend_on_use(tiny_encoder: Encoder, span_task: Task) -> None:
    """A tokenizer's state includes the last truncation, which must not affect the hash."""
    before = tokenizer_hash(tiny_encoder.tokenizer)
    split_windows(span_task, "dev", tiny_encoder)
    assert tokenizer_hash(tiny_encoder.tokenizer) == before
