"""Tuning from stored states is freezing the ordinary way, without running what is frozen."""

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
UNFELT = ("key.bias", "layer.1.output.LayerNorm.bias", "own.body.dense.bias")
"""A softmax does not feel what moves all its inputs alike: their gradients are rounding, which Adam blows up."""


def tensors(encoder: Encoder) -> dict[str, torch.Tensor]:
    assert encoder.own is not None
    return {**encoder.model.state_dict(), **{f"own.{key}": value for key, value in encoder.own.state.items()}}


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_one_shard_it_is_ordinary_freezing(
    request: pytest.FixtureRequest, kind: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    task = request.getfixturevalue(f"{kind}_task")
    store = extract(tiny_encoder, task, tmp_path / "store", dtype="f32")
    assert len(store["train"].sizes) == 1
    fed = tune_from_store(tiny_encoder, task, tmp_path / "store", **SETTINGS)
    ordinary = tune(tiny_encoder, task, **SETTINGS)
    for key, value in tensors(ordinary).items():
        if not key.endswith(UNFELT):
            torch.testing.assert_close(tensors(fed)[key], value, rtol=0, atol=1e-5, msg=key)
    assert fed.record["tune"] == ordinary.record["tune"]
    assert fed.layers == tiny_encoder.layers
    before = tiny_encoder.model.state_dict()
    moved = {key for key, value in fed.model.state_dict().items() if not torch.equal(value, before[key])}
    assert moved
    assert all(key.startswith(("encoder.layer.1.", "pooler.")) for key in moved)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["folder", "URL"])
def test_the_store_is_written_once_of_the_one_state_and_read_after_that(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    monkeypatch.setenv("BERTVISION_CACHE", str(tmp_path / "cache"))
    place = f"memory://bucket/{tmp_path.name}" if elsewhere else tmp_path / "store"
    first = tune_from_store(tiny_encoder, label_task, place, **SETTINGS)
    assert Store(place).layers == (1,)
    monkeypatch.setattr("bertvision.training.tune_from_store.extract", lambda *_: pytest.fail("written again"))
    again = tune_from_store(tiny_encoder, label_task, place, **SETTINGS)
    assert all(torch.equal(value, tensors(again)[key]) for key, value in tensors(first).items())


def test_an_interrupted_one_goes_on(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune_from_store(tiny_encoder, label_task, tmp_path / "store", **SETTINGS)
    real, saved = Tuner.step, tmp_path / "state.safetensors"

    def killed(self: Tuner, batch: Any) -> None:
        if self.steps_done == 7:
            raise KeyboardInterrupt
        real(self, batch)

    monkeypatch.setattr(Tuner, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        tune_from_store(tiny_encoder, label_task, tmp_path / "store", saved=saved, save_minutes=0, **SETTINGS)
    monkeypatch.undo()
    resumed = tune_from_store(tiny_encoder, label_task, tmp_path / "store", saved=saved, **SETTINGS)
    assert all(torch.equal(value, tensors(resumed)[key]) for key, value in tensors(whole).items())
    assert not saved.exists()


def test_what_cannot_be_done_is_named(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    def refusal(encoder: Encoder, **settings: Any) -> str:
        with pytest.raises(BadInput) as error:
            tune_from_store(encoder, label_task, tmp_path / "store", **{**SETTINGS, **settings})
        return str(error.value)

    assert "use --method freeze:k=K" in refusal(tiny_encoder, method="full")
    assert "use --method freeze:k=K" in refusal(tiny_encoder, method="freeze:k=1,norms=true")
    extract(tiny_encoder, label_task, tmp_path / "store", layers="last1")
    assert "holds states [2], expected 1 among them" in refusal(tiny_encoder)
    assert "was made from other inputs" in refusal(label_encoder)
    assert "reads states of frozen layers" in _mean_pool_refusal(tiny_encoder, label_task, tmp_path)


def _mean_pool_refusal(encoder: Encoder, task: Task, tmp_path: Path) -> str:
    with pytest.raises(BadInput) as error:
        tune_from_store(encoder, task, tmp_path / "other", head="mean-pool", **SETTINGS)
    return str(error.value)
