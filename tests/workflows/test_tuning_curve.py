"""A tuning curve: scored checkpoints of one tuning, resumable, each loadable as an encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertvision.core.config import TuneConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.tune import tune
from bertvision.training.tuner import Tuner
from bertvision.workflows.tuning_curve import checkpoint_path, tune_curve

CONFIG = TuneConfig(lr=3e-3, batch=4)
EPOCHS = (0, 0.5, 1, 2)


def results(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["epochs"], row["steps"], row["scores"], row["inner"]) for row in document["rows"]]


@pytest.fixture(scope="module")
def curve(
    tiny_encoder: Encoder, label_task: Task, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("curve")
    return folder, tune_curve(tiny_encoder, label_task, CONFIG, EPOCHS, folder)


def test_curve_has_the_requested_points(curve: tuple[Path, dict[str, Any]]) -> None:
    folder, document = curve
    assert [(row["epochs"], row["steps"]) for row in document["rows"]] == [(0, 0), (0.5, 3), (1, 6), (2, 12)]
    seconds = [row["seconds"] for row in document["rows"]]
    assert seconds == sorted(seconds)
    assert json.loads((folder / "curve.json").read_text(encoding="utf-8")) == document
    picture = (folder / "curve.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg xmlns=")
    assert "accuracy by epochs of tuning" in picture
    assert not (folder / "tuning.safetensors").exists()


def test_checkpoints_equal_prefixes_of_one_tuning(
    curve: tuple[Path, dict[str, Any]], tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    folder, _ = curve
    last = load_encoder(str(checkpoint_path(folder, 2)))
    whole = tune(tiny_encoder, label_task, CONFIG, epochs=2, decay="constant")
    for key, value in whole.model.state_dict().items():
        assert torch.equal(last.model.state_dict()[key], value), key
    assert last.record["tune"]["schedule"] == "curve"
    assert len(extract(last, label_task, tmp_path / "store")["dev"]) == len(label_task["dev"])
    start = load_encoder(str(checkpoint_path(folder, 0)))
    assert all(torch.equal(v, tiny_encoder.model.state_dict()[k]) for k, v in start.model.state_dict().items())


def test_finished_curve_is_not_recomputed(
    curve: tuple[Path, dict[str, Any]], tiny_encoder: Encoder, label_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, document = curve
    monkeypatch.setattr(Tuner, "step", lambda *_: pytest.fail("tuned again"))
    assert tune_curve(tiny_encoder, label_task, CONFIG, EPOCHS, folder) == document


def test_interrupted_curve_resumes(
    curve: tuple[Path, dict[str, Any]],
    tiny_encoder: Encoder,
    label_task: Task,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, steps = Tuner.step, []

    def counting_step(self: Tuner, batch: Any) -> None:
        steps.append(self.steps_done)
        if steps.count(8) == 1 and self.steps_done == 8:
            raise KeyboardInterrupt
        original(self, batch)

    monkeypatch.setattr(Tuner, "step", counting_step)
    with pytest.raises(KeyboardInterrupt):
        tune_curve(tiny_encoder, label_task, CONFIG, EPOCHS, tmp_path)
    document = tune_curve(tiny_encoder, label_task, CONFIG, EPOCHS, tmp_path)
    assert results(document) == results(curve[1])
    assert steps == [*range(9), *range(6, 12)]


def test_empty_and_negative_epochs_are_errors(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    for epochs in ((), (-1, 2)):
        with pytest.raises(BadInput, match="expected epochs of 0 or more"):
            tune_curve(tiny_encoder, label_task, CONFIG, epochs, tmp_path)
