"""Fitted heads on disk, and the predictions of fitted and native heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.states import ShardedSplit
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import (
    SPLIT_OUTPUTS,
    FittedHead,
    load_fitted,
    load_outputs,
    save_fitted,
    save_outputs,
)
from bertvision.training.predict import predict, predict_own
from bertvision.training.tune import tune

AssertSame = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 8}
SPECS = ["probe:layers=last1", "learned-pool", "compress:size=4,skip=true"]


@pytest.mark.parametrize("kind", ["span", "label", "value"])
def test_saved_and_loaded_head_is_equal(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, assert_same: AssertSame
) -> None:
    store = request.getfixturevalue(f"{kind}_store")
    for number, head in enumerate(fit(SPECS, store, seeds=[3], **QUICK)):
        save_fitted(head, tmp_path / str(number), made_from="abc")
        loaded, made_from = load_fitted(tmp_path / str(number))
        assert made_from == "abc"
        assert loaded.seconds == head.seconds
        assert_same(loaded, head)
        for a, b in zip(
            *(predict(loaded_or_not, store["dev"])[0].logits for loaded_or_not in (head, loaded)), strict=True
        ):
            assert np.array_equal(a, b)
    assert {path.suffix for path in tmp_path.rglob("*.*")} == {".json", ".safetensors"}


def test_saved_outputs_are_reused(span_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fit(["learned-pool", "compress:size=4"], span_store, **QUICK)
    expected = [predictions.logits for predictions in predict([first, second], span_store["dev"])]
    save_fitted(first, tmp_path, made_from="x")
    for heads in ([load_fitted(tmp_path)[0]], [second, load_fitted(tmp_path)[0]]):
        logits = {predictions.spec: predictions.logits for predictions in predict(heads, span_store["dev"])}
        assert all(map(np.array_equal, logits[first.spec], expected[0]))
    assert all(map(np.array_equal, logits[second.spec], expected[1]))
    monkeypatch.setattr(ShardedSplit, "batches", None)
    (again,) = predict(load_fitted(tmp_path)[0], span_store["dev"])
    assert all(map(np.array_equal, again.logits, expected[0]))


def test_saved_outputs_of_other_states_or_heads_are_not_used(
    span_store: Store, span_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    first, second = fit(["learned-pool"], span_store, seeds=[0, 1], **QUICK)
    saved = save_fitted(first, tmp_path / "head", made_from="x")
    expected = [predict(head, span_store["dev"])[0].logits[0] for head in (saved, second)]
    rounded_store = extract(span_encoder, span_task, tmp_path / "store", dtype="f16")
    assert not np.array_equal(predict(saved, rounded_store["dev"])[0].logits[0], expected[0])
    replaced = save_fitted(second, tmp_path / "head", made_from="x")
    assert np.array_equal(predict(replaced, span_store["dev"])[0].logits[0], expected[1])


@pytest.mark.parametrize("broken", [b"", b"no safetensors at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_damaged_outputs_are_recomputed(broken: bytes, label_store: Store, tmp_path: Path) -> None:
    saved = save_fitted(fit(["learned-pool"], label_store, **QUICK)[0], tmp_path, made_from="x")
    expected = predict(saved, label_store["dev"])[0].logits
    path = tmp_path / SPLIT_OUTPUTS.format("dev")
    content = path.read_bytes()
    path.write_bytes(broken)
    assert np.array_equal(predict(saved, label_store["dev"])[0].logits, expected)
    assert path.read_bytes() == content


def test_head_predicts_without_a_writable_folder(label_store: Store, tmp_path: Path) -> None:
    saved = save_fitted(fit(["learned-pool"], label_store, **QUICK)[0], tmp_path / "head", made_from="x")
    expected = predict(saved, label_store["dev"])[0].logits
    (tmp_path / "head").rename(tmp_path / "moved")
    (tmp_path / "head").write_text("a file where the folder was: nothing can be written below it")
    assert np.array_equal(predict(saved, label_store["dev"])[0].logits, expected)


def test_head_json_is_self_contained(label_store: Store, tmp_path: Path) -> None:
    (head,) = fit(["learned-pool:layers=last2"], label_store, **QUICK)
    save_fitted(head, tmp_path, made_from="x")
    facts = json.loads((tmp_path / "head.json").read_text())
    assert facts["shape"] == asdict(head.head.shape)
    assert (facts["layers"], facts["states"]) == ([1, 2], [0, 1, 2])
    assert sum(facts["layer_weights"]) == pytest.approx(1.0)
    assert [entry["epoch"] for entry in facts["history"]] == [1, 2, 3]


@pytest.mark.parametrize("rows", [[(3, 2), (1, 2), (4, 2)], [(3,), (3,)], [(1,)]])
def test_outputs_survive_saving(rows: list[tuple[int, ...]], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    outputs = [random.normal(size=size).astype(np.float32) for size in rows]
    save_outputs(outputs, tmp_path / "out.safetensors")
    loaded = load_outputs(tmp_path / "out.safetensors")
    assert [row.shape for row in loaded] == rows
    assert all(np.array_equal(a, b) for a, b in zip(outputs, loaded, strict=True))


def test_predictions_on_inner_equal_those_of_the_fit(span_store: Store) -> None:
    (head,) = fit(["compress:size=4"], span_store, **QUICK)
    (again,) = predict(head, span_store["inner"])
    assert [len(row) for row in again.logits] == [len(offsets) for offsets in again.table.offsets]
    for a, b in zip(again.logits, head.inner, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_predict_own_applies_the_native_head(span_store: Store, span_encoder: Encoder) -> None:
    native = predict_own(span_store["dev"])
    assert (native.name, native.spec, native.kind, native.seed) == ("encoder", "probe:layers=last1", "encoder", None)
    assert native.parameters == span_encoder.parameters + 2 * (16 + 1)
    assert native.inner is not None
    assert native.inner.split == "inner"
    state = span_encoder.own.state if span_encoder.own else {}
    for batch in span_store["dev"].batches(4):
        expected = batch.hidden[:, :, -1] @ state["body.dense.weight"].T + state["body.dense.bias"]
        for row, window in enumerate(batch.windows.tolist()):
            size = int(batch.mask[row].sum())
            np.testing.assert_allclose(native.logits[window], expected[row, :size].numpy(), atol=1e-4)


def test_predict_own_of_an_untuned_encoder_is_an_error(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    store = extract(tiny_encoder, label_task, tmp_path / "store")
    with pytest.raises(BadInput, match="was not tuned with a head, so it has no predictions of its own"):
        predict_own(store["dev"])


def test_head_on_a_partial_store_knows_its_states(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    store = extract(span_encoder, span_task, tmp_path / "store", layers="last1")
    (head,) = fit(["probe"], store, **QUICK)
    assert (head.states, head.head.layer_ids, head.head.shape.layers) == ((2,), (0,), 1)
    save_fitted(head, tmp_path / "head", made_from="x")
    assert load_fitted(tmp_path / "head")[0].states == (2,)


def test_native_head_parameters_include_layers_that_are_not_stored(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    tuned = tune(tiny_encoder, span_task, epochs=0.5, lr=1e-3, batch=8, head="probe:layers=0+1+2")
    store = extract(tuned, span_task, tmp_path / "store", layers="last1")
    assert predict_own(store["dev"]).parameters == tuned.parameters + 2 * (3 * 16 + 1)
