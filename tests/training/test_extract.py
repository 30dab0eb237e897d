"""Extraction: once and for all, resumed where it stopped, and never mixed with anything else."""

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
from bertvision.store import writer as site
from bertvision.store.store import MANIFEST, Store
from bertvision.tasks.task import Task, read_task
from bertvision.training import extract as extracting
from bertvision.training.extract import STARTED, extract
from bertvision.training.inputs import encoder_hash, split_windows

SMALL: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}


pytestmark = pytest.mark.usefixtures("small_shards")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamps(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def without_seconds(files: dict[str, bytes]) -> dict[str, Any]:
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def refusal(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(BadInput) as error:
        extract(*arguments, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_doing_it_twice_does_nothing(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    first = extract(span_encoder, span_task, tmp_path / "store", **SMALL)
    before = stamps(tmp_path)
    again = extract(span_encoder, span_task, tmp_path / "store", **SMALL)
    assert stamps(tmp_path) == before
    assert first.id == again.id
    assert not (tmp_path / "store" / STARTED).exists()


def test_a_saved_and_loaded_encoder_is_the_same(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    span_encoder.save_pretrained(tmp_path / "encoder")
    loaded = load_encoder(str(tmp_path / "encoder"))
    extract(span_encoder, span_task, tmp_path / "store", **SMALL)
    before = stamps(tmp_path / "store")
    extract(loaded, span_task, tmp_path / "store", **SMALL)
    assert stamps(tmp_path / "store") == before


def test_a_saved_task_comes_back(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    store = extract(span_encoder, span_task, tmp_path / "store", **SMALL)
    assert read_task(store.folder / "task") == span_task


class Interrupted(Exception):
    pass


def interrupted(patch: pytest.MonkeyPatch, shards: int, encoder: Encoder, task: Task, to: Path) -> None:
    """An extraction that ends when it writes one more than that many shards."""
    real, written = site.write_shard, []

    def write(shard: Any, path: Path) -> str:
        if len(written) == shards:
            raise Interrupted
        written.append(path)
        return real(shard, path)

    patch.setattr(site, "write_shard", write)
    with pytest.raises(Interrupted):
        extract(encoder, task, to, **SMALL)
    patch.setattr(site, "write_shard", real)


@pytest.mark.parametrize("shards", [0, 1, 4])
def test_an_interrupted_extraction_goes_on_and_ends_the_same(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    extract(span_encoder, span_task, tmp_path / "whole", **SMALL)
    target = tmp_path / "resumed"
    interrupted(monkeypatch, shards, span_encoder, span_task, target)
    kept = {name: stamp for name, stamp in stamps(target).items() if name.endswith(".safetensors")}
    assert len(kept) == shards
    assert not (target / MANIFEST).exists()
    with pytest.raises(BadInput, match="no finished store"):
        Store(target)
    extract(span_encoder, span_task, target, **SMALL)
    assert {name: stamps(target)[name] for name in kept} == kept
    assert without_seconds(contents(target)) == without_seconds(contents(tmp_path / "whole"))


def test_what_another_extraction_began_is_refused(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, 1, tiny_encoder, label_task, tmp_path / "store")
    before = contents(tmp_path)
    text = refusal(tiny_encoder, label_task, tmp_path / "store", **SMALL, dtype="f32")
    assert "dtype is f16 there and f32 here" in text
    assert contents(tmp_path) == before
    (tmp_path / "store" / STARTED).write_text("{")
    assert "cannot be read" in refusal(tiny_encoder, label_task, tmp_path / "store", **SMALL)


def test_a_beginning_without_a_shard_may_be_anyones(
    tiny_encoder: Encoder, label_task: Task, span_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, 0, tiny_encoder, span_task, tmp_path / "store")
    store = extract(tiny_encoder, label_task, tmp_path / "store", **SMALL, dtype="f32")
    fresh = extract(tiny_encoder, label_task, tmp_path / "fresh", **SMALL, dtype="f32")
    assert without_seconds(contents(store.folder)) == without_seconds(contents(fresh.folder))


def test_the_manifest_is_written_last(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = extracting.write_json, []

    def write(path: Path, content: Any) -> None:
        seen.append((path.name, len(list(tmp_path.rglob("*.safetensors")))))
        real(path, content)

    monkeypatch.setattr(extracting, "write_json", write)
    store = extract(tiny_encoder, label_task, tmp_path / "store", **SMALL)
    shards = sum(len(store.manifest["splits"][split]["shards"]) for split in SPLITS)
    assert shards > 3
    assert seen == [(STARTED, 0), (MANIFEST, shards)]


def by_window(store: Store) -> dict[int, torch.Tensor]:
    """States (tokens, layers, width) of dev."""
    return {
        window: batch.hidden[row, : int(batch.mask[row].sum())]
        for batch in store["dev"].batches(4)
        for row, window in enumerate(batch.windows.tolist())
    }


def test_some_layers_only(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    """The own head looks at the last layer, which is not among the stored ones."""
    whole = extract(span_encoder, span_task, tmp_path / "whole", **SMALL)
    part = extract(span_encoder, span_task, tmp_path / "part", **SMALL, layers="first2")
    assert (part.layers, part.shape.layers) == ((0, 1), 2)
    everything, some = by_window(whole), by_window(part)
    assert len(some) == len(part["dev"])
    assert all(torch.equal(everything[number][:, :2], states) for number, states in some.items())
    for found, expected in zip(part["dev"].native_logits() or [], whole["dev"].native_logits() or [], strict=True):
        assert found.tolist() == expected.tolist()


def test_f32_keeps_every_bit_and_f16_rounds(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    full = extract(tiny_encoder, label_task, tmp_path / "full", dtype="f32", batch_tokens=96)
    half = extract(tiny_encoder, label_task, tmp_path / "half", dtype="f16", batch_tokens=96)
    pairs = list(zip(full["dev"].shards(), half["dev"].shards(), strict=True))
    for one, two in pairs:
        assert (one["hidden"].dtype, two["hidden"].dtype) == (torch.float32, torch.float16)
        assert torch.equal(one["hidden"].half(), two["hidden"])
        assert not torch.equal(one["hidden"], two["hidden"].float())


def test_an_encoder_that_was_not_tuned_and_has_no_pooler(
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


def test_values_are_stored_at_the_scale_they_are_learned_at(
    tiny_encoder: Encoder, value_task: Task, tmp_path: Path
) -> None:
    store = extract(tiny_encoder, value_task, tmp_path / "store")
    targets = store["train"].table().targets[:, 0]
    assert targets.mean() == pytest.approx(0, abs=1e-6)
    assert targets.std() == pytest.approx(1, abs=1e-6)
    expected = [(float(e.label or 0) - value_task.center) / value_task.spread for e in value_task["dev"]]
    assert store["dev"].table().targets[:, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_extraction_changes_neither_the_encoder_nor_the_random_state(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    before, state = encoder_hash(tiny_encoder), torch.get_rng_state()
    extract(tiny_encoder, label_task, tmp_path / "store")
    assert encoder_hash(tiny_encoder) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_hashes_do_not_depend_on_use(tiny_encoder: Encoder, span_task: Task) -> None:
    """A tokenizer remembers how it last cut; that is not what it is."""
    before = tokenizer_hash(tiny_encoder.tokenizer)
    split_windows(span_task, "dev", tiny_encoder)
    assert tokenizer_hash(tiny_encoder.tokenizer) == before
