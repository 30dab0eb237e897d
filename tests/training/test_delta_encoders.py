"""Smaller stores: int8 and token subsets, which equal the live states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertvision.core.errors import BadInput
from bertvision.core.records import NO_OFFSET
from bertvision.encoders.loading import Encoder
from bertvision.model import Model, QuestionAnswerer
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.inputs import check_heads, split_windows
from bertvision.training.live_states import LiveStates
from bertvision.training.predict import predict, predict_own
from bertvision.training.shard_builder import STATISTICS

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}
STORAGE_OPTIONS = [
    ("span", {"dtype": "int8"}),
    ("span", {"tokens": "context"}),
    ("span", {"tokens": "context", "dtype": "int8", "layers": "last2"}),
    ("label", {"dtype": "int8"}),
    ("label", {"tokens": "cls"}),
    ("label", {"tokens": "mean", "dtype": "int8"}),
    ("value", {"tokens": "mean", "dtype": "f32"}),
    ("label", {"tokens": "cls+mean+max"}),
]

pytestmark = pytest.mark.usefixtures("small_shards")


def by_window(states: Any, split: str = "dev") -> dict[int, torch.Tensor]:
    return {
        window: batch.hidden[row, : int(batch.mask[row].sum())]
        for batch in states[split].batches(4)
        for row, window in enumerate(batch.windows.tolist())
    }


@pytest.mark.parametrize(("kind", "storage"), STORAGE_OPTIONS)
def test_live_states_equal_stored_ones_for_all_storage_options(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, storage: dict[str, Any], assert_same: Callable[..., None]
) -> None:
    encoder, task = request.getfixturevalue(f"{kind}_encoder"), request.getfixturevalue(f"{kind}_task")
    store = extract(encoder, task, tmp_path / "store", **SMALL_SHARDS, **storage)
    live = LiveStates(encoder, task, **SMALL_SHARDS, **storage)
    assert (live.id, live.tokens) == (store.id, storage.get("tokens", "all"))
    for split in ("train", "dev"):
        for stored_batch, live_batch in zip(
            store[split].batches(5, seed=3), live[split].batches(5, seed=3), strict=True
        ):
            for name in ("hidden", "mask", "targets", "windows", "pooled", "logits"):
                assert torch.equal(getattr(stored_batch, name), getattr(live_batch, name)), name
        stored_table, live_table = store[split].table(), live[split].table()
        assert np.array_equal(stored_table.cls, live_table.cls)
        assert np.array_equal(stored_table.targets, live_table.targets)
        assert all(np.array_equal(a, b) for a, b in zip(stored_table.offsets, live_table.offsets, strict=True))
        assert live.manifest["splits"][split]["tokens"] == store.manifest["splits"][split]["tokens"]
    spec = "probe:read=mean" if storage.get("tokens") == "mean" else "learned-pool"
    stored_head, live_head = (fit([spec], states, epochs=1, batch=8)[0] for states in (store, live))
    assert_same(stored_head, live_head)
    assert stored_head.tokens == storage.get("tokens", "all")


def test_int8_is_close_to_f32_and_half_the_size_of_f16(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    stores = {
        name: extract(span_encoder, span_task, tmp_path / name, **SMALL_SHARDS, dtype=name) for name in ("f32", "int8")
    }
    exact, approximate = (by_window(store) for store in stores.values())
    error = sum(float((approximate[i] - exact[i]).square().sum()) for i in exact)
    assert 0 < error / sum(float(exact_states.square().sum()) for exact_states in exact.values()) < 0.02**2
    shard = next(stores["int8"]["dev"].shards())
    tokens, layers, width = shard["hidden"].shape
    assert shard["hidden"].nbytes + shard["scales"].nbytes == tokens * layers * (width + 2)
    int8_logits, exact_logits = (predict_own(store["dev"]).logits for store in stores.values())
    assert all(np.array_equal(a, b) for a, b in zip(int8_logits, exact_logits, strict=True))


def test_int8_statistics_are_written_before_the_first_shard(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS, dtype="int8")
    statistics = load_file(store.folder / STATISTICS)
    assert statistics["mean"].shape == statistics["spread"].shape == (3, 16)
    for split in ("train", "inner", "dev"):
        for shard in store[split].shards():
            assert all(torch.equal(shard[name], statistics[name]) for name in ("mean", "spread"))
    shards = [path for path in store.folder.rglob("*.safetensors") if path.name != STATISTICS]
    assert (store.folder / STATISTICS).stat().st_mtime_ns < min(path.stat().st_mtime_ns for path in shards)


def test_context_store_keeps_cls_and_context_tokens(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    whole_store = extract(span_encoder, span_task, tmp_path / "whole", **SMALL_SHARDS)
    context_store = extract(span_encoder, span_task, tmp_path / "part", **SMALL_SHARDS, tokens="context")
    all_states, context_states, windows = (
        by_window(whole_store),
        by_window(context_store),
        split_windows(span_task, "dev", span_encoder),
    )
    all_logits, table, context_logits = (
        whole_store["dev"].native_logits(),
        context_store["dev"].table(),
        context_store["dev"].native_logits(),
    )
    assert all_logits is not None
    assert context_logits is not None
    for number, window in enumerate(windows):
        kept = [t for t in range(len(window)) if t == window.cls or window.offsets[t, 0] != NO_OFFSET]
        assert 1 < len(kept) < len(window)
        assert torch.equal(context_states[number], all_states[number][kept])
        assert np.array_equal(context_logits[number], all_logits[number][kept])
        assert [kept[int(position)] for position in table.targets[number]] == [
            int(position) for position in window.target
        ]
        assert np.array_equal(table.input_ids[number], window.input_ids[kept])
        assert kept[table.cls[number]] == window.cls


@pytest.mark.parametrize("spec", ["compress:size=4", "bilstm:size=4"])
def test_model_gives_a_head_the_tokens_it_was_fitted_on(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, spec: str
) -> None:
    """A sequence head that was fitted without question tokens gives other answers if it sees them."""
    store = extract(span_encoder, span_task, tmp_path / "store", dtype="f32", tokens="context")
    head = fit([spec], store, epochs=1, batch=8)[0]
    save_fitted(head, tmp_path / "head", "here")
    assert load_fitted(tmp_path / "head")[0].tokens == "context"
    stored = predict(head, store["dev"])[0].logits
    for members, combine in ((head, None), ([head, "encoder"], "mean")):
        model = Model(span_encoder, members, span_task, combine, threshold=0.0)  # type: ignore[arg-type]
        model.save_pretrained(tmp_path / "model")
        again = QuestionAnswerer.from_pretrained(tmp_path / "model")
        logits, table = again.outputs(span_task["dev"])
        assert [len(row) for row in logits] == [len(row) for row in stored]
        assert all(np.array_equal(a, b) for a, b in zip(table.offsets, store["dev"].table().offsets, strict=True))
        if combine is None:
            assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(logits, stored, strict=True))


def test_summary_stores_hold_the_vectors_of_each_text(label_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    whole, cls, mean = (
        extract(label_encoder, label_task, tmp_path / name, dtype="f32", tokens=name) for name in ("all", "cls", "mean")
    )
    all_states, cls_states, mean_states = by_window(whole), by_window(cls), by_window(mean)
    for number, states in all_states.items():
        assert torch.equal(cls_states[number], states[:1])
        torch.testing.assert_close(mean_states[number][0], states.mean(0))
    assert cls.manifest["splits"]["dev"]["tokens"] == len(label_task["dev"])
    several = extract(label_encoder, label_task, tmp_path / "several", dtype="f32", tokens="cls+last+mean+max")
    for number, summaries in by_window(several).items():
        states = all_states[number]
        wanted = [states[0], states[-1], states.mean(0), states.amax(0)]
        torch.testing.assert_close(summaries, torch.stack(wanted))
    stores = {"cls": cls, "mean": mean, "mean+max": several, "cls+first_last": several}
    for name, store in stores.items():
        head = fit([f"probe:read={name}"], store, epochs=2, batch=8)[0]
        stored_logits, whole_logits = (predict(head, states["dev"])[0].logits for states in (store, whole))
        assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(stored_logits, whole_logits, strict=True))


@pytest.mark.parametrize(
    ("tokens", "spec", "needed"),
    [
        ("cls", "probe:read=mean", "mean"),
        ("mean", "probe", "cls"),
        ("cls", "bilstm", "all"),
        ("mean", "flatten", "all"),
    ],
)
def test_head_that_needs_other_tokens_is_an_error(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, tokens: str, spec: str, needed: str
) -> None:
    store = extract(tiny_encoder, label_task, tmp_path / "store", tokens=tokens)
    for use in (
        lambda: fit([spec], store),
        lambda: check_heads([spec], label_task, tiny_encoder, "all", tokens),
    ):
        with pytest.raises(BadInput, match=rf"--tokens {tokens}.*bertvision extract TASK ... --tokens {needed} --to"):
            use()
    serving = check_heads(["all"], label_task, tiny_encoder, "all", tokens)
    assert ("learned-pool" in serving) == (tokens == "cls")
    assert spec not in serving
    assert check_heads(["probe:read=pooled"], label_task, tiny_encoder, "all", tokens)
    assert isinstance(fit([f"probe:read={tokens}"], store, epochs=1)[0], FittedHead)


def test_unsuitable_token_subset_is_an_error(
    tiny_encoder: Encoder, span_task: Task, label_task: Task, tmp_path: Path
) -> None:
    for task, tokens, reason in (
        (span_task, "cls", "answers are spans of tokens; use all or context"),
        (label_task, "context", "for questions with a context"),
        (label_task, "some", "expected all, context, or one or more of cls, last, mean, max in this order"),
        (label_task, "mean+cls", r"'mean\+cls', in the wrong order; expected cls\+mean"),
        (label_task, "cls+cls", "expected all, context, or one or more of"),
    ):
        with pytest.raises(BadInput, match=reason):
            extract(tiny_encoder, task, tmp_path / "store", tokens=tokens)
    assert not list(tmp_path.iterdir())


def test_existing_store_with_another_token_subset_is_an_error(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "store")
    with pytest.raises(BadInput, match="tokens is all there and cls here"):
        extract(tiny_encoder, label_task, tmp_path / "store", tokens="cls")


def test_fingerprint_of_all_tokens_has_no_tokens_field(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    store = extract(tiny_encoder, label_task, tmp_path / "store")
    assert "tokens" not in store.manifest["fingerprint"]
    same_task = replace(label_task)
    assert extract(tiny_encoder, same_task, tmp_path / "store", tokens="all").id == store.id
    assert Store(store.folder).tokens == "all"
