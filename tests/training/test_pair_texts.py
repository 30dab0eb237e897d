"""Texts of pairs that are encoded apart: each distinct text once, as it is when encoded alone; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertvision.core.config import ExtractConfig, Recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import hashed_fields
from bertvision.core.records import SPLITS, Example
from bertvision.core.summaries import summarise
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.store import writer
from bertvision.store.batching import plan_shards
from bertvision.store.store import MANIFEST, Store, find_damage
from bertvision.tasks.task import Task
from bertvision.tasks.windows import windows_of_texts
from bertvision.training import disk_space, pair_texts, shard_builder
from bertvision.training.disk_space import store_bytes
from bertvision.training.estimate import measure, plan, plan_text
from bertvision.training.extract import extract, extract_share, finalize, repair
from bertvision.training.extract_ray import ray_extract
from bertvision.training.fit import fit
from bertvision.training.live_states import LiveStates
from bertvision.training.predict import predict
from bertvision.training.shard_builder import ExtractionPlan
from bertvision.training.tune import tune

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}
HEADS = ("ridge:read=difference+product", "probe:layers=last1,read=first+second")
STEP = {"f32": 1e-6, "f16": 2**-10, "int8": 2**-10}  # relative, of one rounding

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    """Shards of a few windows, also where a window has only the means of two texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shard_builder, "plan_shards", lambda batches, lengths, per, mb: plan_shards(batches, lengths, per * 800, mb)
        )
        yield


@pytest.fixture(scope="module")
def stores(
    small_shards: None, value_encoder: Encoder, pair_task: Task, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Store]:
    folder = tmp_path_factory.mktemp("pairs")
    return {
        pairs: extract(value_encoder, pair_task, folder / pairs, pairs=pairs, **SMALL_SHARDS)
        for pairs in ("together", "apart", "both")
    }


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The tokens of every text that is encoded by itself while a test runs."""
    texts: list[bytes] = []
    original = pair_texts.mean_states

    def count(model: Any, windows: Any, *arguments: Any) -> Tensor:
        texts.extend(window.input_ids.tobytes() for window in windows)
        return original(model, windows, *arguments)

    monkeypatch.setattr(pair_texts, "mean_states", count)
    return texts


def distinct_texts(task: Task) -> set[str]:
    return {text for split in SPLITS for e in task[split] for text in (e.text, e.pair or "")}


def alone(encoder: Encoder, text: str, max_length: int) -> Tensor:
    """The mean over the tokens of a text, encoded without any other: (layers, width)."""
    window = windows_of_texts([text], encoder.tokenizer, max_length)
    batch = collate(window, encoder.tokenizer.pad_token_id, torch.device("cpu"))
    with torch.inference_mode():
        states = hidden_states(encoder.model, batch, range(encoder.layers))
        return summarise(states.stacked(), batch.mask, "mean")[0]


def by_window(store: Any, split: str) -> dict[int, Tensor]:
    found = {}
    for batch in store[split].batches(5, seed=1):
        assert batch.apart is not None
        found.update(zip(batch.windows.tolist(), batch.apart, strict=True))
    return found


@pytest.mark.parametrize("pairs", ["apart", "both"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "int8"])
def test_stored_texts_equal_those_encoded_alone(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, pairs: str, dtype: str
) -> None:
    if (pairs, dtype) == ("apart", "int8"):
        pytest.skip("refused")
    store = extract(tiny_encoder, pair_task, tmp_path / "store", pairs=pairs, dtype=dtype, **SMALL_SHARDS)
    for split in SPLITS:
        table, found = store[split].table(), by_window(store, split)
        assert len(found) == len(store[split])
        for window, apart in found.items():
            example = pair_task[split][table.example[window]]
            expected = torch.stack([alone(tiny_encoder, text, 16) for text in (example.text, example.pair or "")])
            torch.testing.assert_close(apart, expected, rtol=STEP[dtype], atol=1e-6)


@pytest.mark.parametrize("pairs", ["apart", "both"])
def test_every_distinct_text_is_encoded_once(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, pairs: str, encoded: list[bytes]
) -> None:
    store = extract(tiny_encoder, pair_task, tmp_path / "store", pairs=pairs, **SMALL_SHARDS)
    assert sum(len(store[split].sizes) for split in SPLITS) > 3
    texts = distinct_texts(pair_task)
    windows = windows_of_texts(sorted(texts), tiny_encoder.tokenizer, pair_task.max_length)
    assert sorted(encoded) == sorted(window.input_ids.tobytes() for window in windows)
    assert len(texts) < sum(2 * len(pair_task[split]) for split in SPLITS)


def test_nothing_is_encoded_together_for_texts_apart(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a pair was encoded as one input")

    monkeypatch.setattr("bertvision.training.shard_builder.hidden_states", refuse)
    store = extract(tiny_encoder, pair_task, tmp_path / "store", pairs="apart")
    assert {split["tokens"] for split in store.manifest["splits"].values()} == {0}
    batch = next(store["dev"].batches(4))
    assert batch.hidden.shape == (4, 0, 3, 16)
    assert (batch.pooled, batch.logits, store.manifest["own"]) == (None, None, None)
    assert (store.tokens, store.pairs) == ("none", "apart")


def test_stores_together_do_not_mention_pairs_and_both_holds_the_same_states(stores: dict[str, Store]) -> None:
    together, both = stores["together"], stores["both"]
    assert "pairs" not in together.manifest
    assert "pairs" not in together.manifest["fingerprint"]
    assert both.manifest["fingerprint"] == {**together.manifest["fingerprint"], "pairs": "both"}
    for split in SPLITS:
        files = zip(together[split].shards(), both[split].shards(), strict=False)
        assert all("apart" not in shard and "apart" in other for shard, other in files)
        expected, got = (
            {
                window: tensors
                for batch in store[split].batches(1)
                for window, *tensors in [(int(batch.windows), batch.hidden, batch.pooled, batch.logits)]
            }
            for store in (together, both)
        )
        assert expected.keys() == got.keys()
        assert all(torch.equal(a, b) for w in expected for a, b in zip(expected[w], got[w], strict=True))


def test_default_settings_hash_as_before() -> None:
    assert "pairs" not in hashed_fields(ExtractConfig())
    assert hashed_fields(ExtractConfig(pairs="both"))["pairs"] == "both"


@pytest.mark.parametrize("pairs", ["apart", "both"])
def test_live_texts_equal_stored_ones(
    value_encoder: Encoder, pair_task: Task, stores: dict[str, Store], pairs: str, encoded: list[bytes]
) -> None:
    live = LiveStates(value_encoder, pair_task, pairs=pairs, **SMALL_SHARDS)
    assert live.id == stores[pairs].id
    for _ in range(2):
        for split in SPLITS:
            expected = by_window(stores[pairs], split)
            got = by_window(live, split)
            assert all(torch.equal(got[window], expected[window]) for window in expected)
    assert len(encoded) == len(distinct_texts(pair_task))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("shards", [0, 2])
def test_interrupted_extraction_resumes_to_the_same_bytes(
    value_encoder: Encoder,
    pair_task: Task,
    stores: dict[str, Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
) -> None:
    original, written = writer.write_shard, []

    def write(shard: Any, path: Path) -> str:
        if len(written) == shards:
            raise Interrupted
        written.append(path)
        return original(shard, path)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_shard", write)
        with pytest.raises(Interrupted):
            extract(value_encoder, pair_task, tmp_path / "store", pairs="both", **SMALL_SHARDS)
    extract(value_encoder, pair_task, tmp_path / "store", pairs="both", **SMALL_SHARDS)
    assert files(tmp_path / "store") == files(stores["both"].folder)


@pytest.mark.parametrize("pairs", ["apart", "both"])
def test_store_of_changed_data_holds_the_texts_of_its_own_pairs(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, pairs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pair that is cut to one window may be the same window as before, with another end of its second text."""
    extract(tiny_encoder, pair_task, tmp_path / "store", pairs=pairs, **SMALL_SHARDS)
    first, *others = pair_task["dev"]
    changed = [replace(first, pair=f"{first.pair} of Rome"), *others[1:], replace(others[0], text="the bad old town")]
    task = replace(pair_task, splits={**pair_task.splits, "dev": tuple(changed)})
    capsys.readouterr()
    store = extract(tiny_encoder, task, tmp_path / "store", pairs=pairs, **SMALL_SHARDS)
    assert f"{len(distinct_texts(task))} texts of pairs, each by itself" in capsys.readouterr().err
    table, found = store["dev"].table(), by_window(store, "dev")
    for window, apart in found.items():
        example = task["dev"][table.example[window]]
        expected = torch.stack([alone(tiny_encoder, text, 16) for text in (example.text, example.pair or "")])
        torch.testing.assert_close(apart, expected, rtol=STEP["f16"], atol=1e-6)


def files(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    manifest = json.loads(found[MANIFEST])
    manifest.pop("seconds")
    return {**found, MANIFEST: manifest}


def test_repair_makes_the_same_shard_and_encodes_only_its_batches(
    value_encoder: Encoder, pair_task: Task, tmp_path: Path, encoded: list[bytes]
) -> None:
    store = extract(value_encoder, pair_task, tmp_path / "store", pairs="apart", **SMALL_SHARDS)
    before = files(store.folder)
    damaged = store.folder / store.manifest["splits"]["dev"]["shards"][0]["file"]
    damaged.write_bytes(b"")
    encoded.clear()
    assert len(repair(store.folder, value_encoder)) == 1
    assert not find_damage(store)
    assert files(store.folder) == before
    assert len(encoded) == len(set(encoded)) <= len(distinct_texts(pair_task))


@pytest.mark.parametrize(("pairs", "dtype"), [("apart", "f16"), ("apart", "f32"), ("both", "f16"), ("both", "int8")])
def test_estimated_bytes_equal_those_of_the_store(
    tiny_encoder: Encoder, value_encoder: Encoder, pair_task: Task, tmp_path: Path, pairs: str, dtype: str
) -> None:
    for encoder in (tiny_encoder, value_encoder):
        config = ExtractConfig(pairs=pairs, dtype=dtype)
        store = extract(encoder, pair_task, tmp_path / str(encoder is tiny_encoder), config)
        expected = store_bytes(ExtractionPlan(encoder, pair_task, config))
        statistics = 3 * 2 * 4 * 3 * 16 if dtype == "int8" else 0
        actual = sum(split["bytes"] for split in store.manifest["splits"].values())
        assert expected + statistics <= actual <= expected + statistics + 3 * 1600


def test_disk_space_includes_the_temporary_file(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extraction = ExtractionPlan(tiny_encoder, pair_task, ExtractConfig(pairs="apart"))
    assert extraction.texts is not None
    assert extraction.texts.bytes == len(distinct_texts(pair_task)) * 3 * 16 * 2
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: store_bytes(extraction) + 1)
    with pytest.raises(BadInput, match="the store needs"):
        extract(tiny_encoder, pair_task, tmp_path / "store", pairs="apart")


@pytest.mark.parametrize("pairs", ["apart", "both"])
def test_plan_counts_the_texts(tiny_encoder: Encoder, pair_task: Task, tmp_path: Path, pairs: str) -> None:
    recipe = Recipe(task="text", extract=ExtractConfig(pairs=pairs))
    extraction = ExtractionPlan(tiny_encoder, pair_task, recipe.extract)
    assert extraction.texts is not None
    assert measure(extraction).tokens_per_second > 0
    document = plan(recipe, tiny_encoder, pair_task, [HEADS[0]], tmp_path)
    whole = sum(len(window) for windows in extraction.windows.values() for window in windows)
    texts = sum(map(len, extraction.texts.texts.windows))
    assert document["tokens"] == texts + whole * (pairs == "both")
    assert all(row["serves"] for row in document["rows"])
    assert {row["tokens"] for row in document["rows"]} >= {"none" if pairs == "apart" else "mean"}
    assert "recommended: --dtype f16" in plan_text(document)


def test_heads_fit_and_predict_on_texts_apart(stores: dict[str, Store], pair_task: Task) -> None:
    apart, both = (
        predict(fit(HEADS, stores[pairs], epochs=2, batch=8), stores[pairs]["dev"]) for pairs in ("apart", "both")
    )
    for left, right in zip(apart, both, strict=True):
        assert len(left.logits) == len(pair_task["dev"])
        if left.spec.startswith("ridge"):  # solved, so the order of batches does not matter
            np.testing.assert_allclose(left.logits, right.logits, atol=1e-4)


def test_heads_that_read_what_is_not_there_are_refused(stores: dict[str, Store]) -> None:
    for spec, pairs, expected in (
        (HEADS[0], "together", "reads each text of a pair by itself, but .* --pairs both"),
        ("probe", "apart", "reads both texts of a pair as one input, but .* --pairs both"),
        ("probe:read=mean+product", "apart", "reads both texts of a pair as one input"),
        ("probe:pooled=true,read=product", "apart", "reads both texts of a pair as one input"),
        ("bilstm:size=4", "apart", "reads both texts of a pair as one input"),
    ):
        with pytest.raises(BadInput, match=expected):
            fit([spec], stores[pairs])


def test_tuning_with_a_head_on_texts_apart_is_refused(tiny_encoder: Encoder, pair_task: Task) -> None:
    with pytest.raises(BadInput, match="tuning reads both as one input"):
        tune(tiny_encoder, pair_task, head=HEADS[0])


def error_of(function: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(BadInput) as error:
        function(*arguments, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def no_traces(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    assert not list(tmp_path.iterdir())


def test_tasks_without_pairs_are_refused(
    tiny_encoder: Encoder, span_task: Task, label_task: Task, pair_task: Task, no_traces: Path
) -> None:
    text = error_of(extract, tiny_encoder, span_task, no_traces, pairs="both")
    assert "questions and contexts are read together" in text
    assert "is a single text" in error_of(extract, tiny_encoder, label_task, no_traces, pairs="apart")
    first, *others = pair_task["dev"]
    mixed = replace(pair_task, splits={**pair_task.splits, "dev": (replace(first, pair=None), *others)})
    assert f"example {first.id} of dev is a single text" in error_of(
        extract, tiny_encoder, mixed, no_traces, pairs="both"
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pairs": "apart", "tokens": "mean"}, "leave --tokens mean out"),
        ({"pairs": "apart", "dtype": "int8"}, "use --dtype f16 or f32"),
        ({"pairs": "beside"}, "extract.pairs is 'beside'; expected auto, together, apart or both"),
        ({"tokens": "none"}, "extract.tokens is 'none'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tiny_encoder: Encoder, pair_task: Task, no_traces: Path, settings: dict[str, str], expected: str
) -> None:
    assert expected in error_of(extract, tiny_encoder, pair_task, no_traces, **settings)


def test_several_processes_are_refused(tiny_encoder: Encoder, pair_task: Task, no_traces: Path) -> None:
    for make, arguments, option in (
        (extract_share, ((1, 2),), "--shard 1/2"),
        (finalize, (), "--finalize"),
        (ray_extract, (), "--engine ray"),
    ):
        text = error_of(make, tiny_encoder, pair_task, no_traces, *arguments, pairs="both")
        assert text.startswith(option)
        assert f"leave {option} out" in text


def test_store_with_other_pairs_is_refused(tiny_encoder: Encoder, pair_task: Task, tmp_path: Path) -> None:
    extract(tiny_encoder, pair_task, tmp_path / "store")
    text = error_of(extract, tiny_encoder, pair_task, tmp_path / "store", pairs="both")
    assert "pairs is together there and both here" in text


def test_symmetric_pairs_have_equal_differences_and_products(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path
) -> None:
    first, *_ = pair_task["dev"]
    swapped = Example("swapped", first.pair or "", first.text, label=first.label)
    task = replace(pair_task, splits={**pair_task.splits, "dev": (first, swapped)})
    store = extract(tiny_encoder, task, tmp_path / "store", pairs="apart", **SMALL_SHARDS)
    head = fit([HEADS[0]], store)[0].head
    rows = {int(batch.windows): head.select_inputs(batch) for batch in store["dev"].batches(1)}
    assert torch.equal(rows[0], rows[1])
    assert bool(rows[0].abs().sum() > 0)
