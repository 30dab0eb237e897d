"""Tuning from stored states equals tuning with frozen layers, without running these layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.tune import tune
from bertvision.training.tune_from_store import tune_from_store
from bertvision.training.tuner import Tuner

METHOD = "freeze:k=1"
SETTINGS: dict[str, Any] = {"method": METHOD, "epochs": 2, "lr": 3e-3, "batch": 4}
KINDS = ("span", "label", "value")
ROUNDING_ONLY = ("key.bias", "layer.1.output.LayerNorm.bias", "own.body.dense.bias")
"""Softmax is invariant to shifts of all inputs, so these gradients are rounding errors, which Adam amplifies."""


def tensors(encoder: Encoder) -> dict[str, torch.Tensor]:
    assert encoder.own is not None
    return {**encoder.model.state_dict(), **{f"own.{key}": value for key, value in encoder.own.state.items()}}


@pytest.mark.parametrize("kind", KINDS)
def test_tune_from_store_equals_tuning_with_frozen_layers(
    request: pytest.FixtureRequest, kind: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    task = request.getfixturevalue(f"{kind}_task")
    store = extract(tiny_encoder, task, tmp_path / "store", dtype="f32")
    assert len(store["train"].sizes) == 1
    from_store = tune_from_store(tiny_encoder, task, tmp_path / "store", **SETTINGS)
    ordinary = tune(tiny_encoder, task, **SETTINGS)
    for key, value in tensors(ordinary).items():
        if not key.endswith(ROUNDING_ONLY):
            torch.testing.assert_close(tensors(from_store)[key], value, rtol=0, atol=1e-5, msg=key)
    assert from_store.record["tune"] == ordinary.record["tune"]
    assert from_store.layers == tiny_encoder.layers
    before = tiny_encoder.model.state_dict()
    changed = {key for key, value in from_store.model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.startswith(("encoder.layer.1.", "pooler.")) for key in changed)


@pytest.mark.parametrize("remote", [False, True], ids=["folder", "URL"])
def test_store_of_the_needed_state_is_written_once_and_reused(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    monkeypatch.setenv("BERTVISION_CACHE", str(tmp_path / "cache"))
    location = f"memory://bucket/{tmp_path.name}" if remote else tmp_path / "store"
    first = tune_from_store(tiny_encoder, label_task, location, **SETTINGS)
    assert Store(location).layers == (1,)
    monkeypatch.setattr("bertvision.training.tune_from_store.extract", lambda *_: pytest.fail("written again"))
    again = tune_from_store(tiny_encoder, label_task, location, **SETTINGS)
    assert all(torch.equal(value, tensors(again)[key]) for key, value in tensors(first).items())


def test_interrupted_tune_from_store_resumes(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune_from_store(tiny_encoder, label_task, tmp_path / "store", **SETTINGS)
    original, checkpoint = Tuner.step, tmp_path / "state.safetensors"

    def interrupted_step(self: Tuner, batch: Any) -> None:
        if self.steps_done == 7:
            raise KeyboardInterrupt
        original(self, batch)

    monkeypatch.setattr(Tuner, "step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        tune_from_store(tiny_encoder, label_task, tmp_path / "store", saved=checkpoint, save_minutes=0, **SETTINGS)
    monkeypatch.undo()
    resumed = tune_from_store(tiny_encoder, label_task, tmp_path / "store", saved=checkpoint, **SETTINGS)
    assert all(torch.equal(value, tensors(resumed)[key]) for key, value in tensors(whole).items())
    assert not checkpoint.exists()


def test_unsuitable_methods_and_stores_are_errors(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    def tune_error(encoder: Encoder, **settings: Any) -> str:
        with pytest.raises(BadInput) as error:
            tune_from_store(encoder, label_task, tmp_path / "store", **{**SETTINGS, **settings})
        return str(error.value)

    assert "use --method freeze:k=K" in tune_error(tiny_encoder, method="full")
    assert "use --method freeze:k=K" in tune_error(tiny_encoder, method="freeze:k=1,norms=true")
    extract(tiny_encoder, label_task, tmp_path / "store", layers="last1")
    assert "holds states [2], expected 1 among them" in tune_error(tiny_encoder)
    assert "was made from other inputs" in tune_error(label_encoder)
    assert "reads states of frozen layers" in _mean_pool_error(tiny_encoder, label_task, tmp_path)


def _mean_pool_error(encoder: Encoder, task: Task, tmp_path: Path) -> str:
    with pytest.raises(BadInput) as error:
        tune_from_store(encoder, task, tmp_path / "other", head="mean-pool", **SETTINGS)
    return str(error.value)
