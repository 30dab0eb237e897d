"""Resumed, accumulated, checkpointed and multi-process tuning give the same weights; freezing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.encoders.methods import METHODS, prepare
from bertvision.heads.base import build_head
from bertvision.tasks.task import Task
from bertvision.training import tuner as tuner_module
from bertvision.training.tune import tune
from bertvision.training.tuner import Tuner

SETTINGS: dict[str, Any] = {"epochs": 4, "lr": 3e-3, "batch": 4}


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    assert encoder.own is not None
    return {**encoder.model.state_dict(), **{f"own.{key}": value for key, value in encoder.own.state.items()}}


def assert_equal(first: Encoder, second: Encoder) -> None:
    for key, value in weights(first).items():
        assert torch.equal(value, weights(second)[key]), key


def assert_close(first: Encoder, second: Encoder, tolerance: float) -> None:
    """The key bias shifts all scores of a query equally, so its gradient is a rounding error, which Adam amplifies."""
    for key, value in weights(first).items():
        if not key.endswith("key.bias"):
            torch.testing.assert_close(value, weights(second)[key], rtol=0, atol=tolerance)


@pytest.fixture
def encoder_with_dropout(tiny_encoder: Encoder) -> Encoder:
    """An encoder with dropout, so that the random state matters."""
    encoder = tiny_encoder.copy()
    for module in encoder.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    return encoder


class Interruption(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize(
    ("interruptions", "head"), [((1,), None), ((3, 7, 8), None), ((23,), None), ((5,), "xception:scale=0.05")]
)
def test_interrupted_tuning_resumes_bit_exactly(
    encoder_with_dropout: Encoder,
    label_task: Task,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruptions: tuple[int, ...],
    head: str | None,
) -> None:
    settings = {**SETTINGS, "head": head}
    whole = tune(encoder_with_dropout, label_task, **settings)
    original = Tuner.step

    def interrupted_step(self: Tuner, batch: Any) -> None:
        if self.steps_done in remaining:
            remaining.remove(self.steps_done)
            raise Interruption
        original(self, batch)

    remaining = list(interruptions)
    monkeypatch.setattr(Tuner, "step", interrupted_step)
    for _ in interruptions:
        with pytest.raises(Interruption):
            tune(encoder_with_dropout, label_task, saved=tmp_path / "state.safetensors", save_minutes=0, **settings)
        assert (tmp_path / "state.safetensors").exists()
    resumed = tune(encoder_with_dropout, label_task, saved=tmp_path / "state.safetensors", save_minutes=0, **settings)
    assert_equal(whole, resumed)
    assert resumed.record["tune"]["steps"] == whole.record["tune"]["steps"] == 24
    assert not list(tmp_path.iterdir())


def test_checkpoint_of_another_tuning_is_ignored(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "state.safetensors"
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    tune(tiny_encoder, label_task, saved=checkpoint, save_minutes=0, **SETTINGS)
    monkeypatch.undo()
    other_settings = {**SETTINGS, "seed": 1}
    assert checkpoint.exists()
    assert_equal(
        tune(tiny_encoder, label_task, saved=checkpoint, **other_settings),
        tune(tiny_encoder, label_task, **other_settings),
    )


def test_ctrl_c_saves_a_checkpoint(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, checkpoint = Tuner.step, tmp_path / "state.safetensors"

    def step_with_ctrl_c(self: Tuner, batch: Any) -> None:
        original(self, batch)
        if self.steps_done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Tuner, "step", step_with_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        tune(tiny_encoder, label_task, saved=checkpoint, **SETTINGS)
    monkeypatch.undo()
    assert_equal(
        tune(tiny_encoder, label_task, saved=checkpoint, **SETTINGS), tune(tiny_encoder, label_task, **SETTINGS)
    )


def test_gradient_accumulation_and_checkpointing_give_the_same_weights(tiny_encoder: Encoder, label_task: Task) -> None:
    plain = tune(tiny_encoder, label_task, **SETTINGS)
    assert_close(plain, tune(tiny_encoder, label_task, accumulate=3, **SETTINGS), 1e-4)
    checkpointed = tune(tiny_encoder, label_task, checkpointing=True, **SETTINGS)
    assert_close(plain, checkpointed, 1e-5)
    assert not checkpointed.model.is_gradient_checkpointing, "gradient checkpointing is switched off again"


def test_out_of_memory_error_suggests_accumulation(
    tiny_encoder: Encoder, label_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ...")

    monkeypatch.setattr(tuner_module, "hidden_states", out_of_memory)
    with pytest.raises(MemoryError, match=r"4 texts of up to \d+ tokens.*--set tune.accumulate=2"):
        tune(tiny_encoder, label_task, **SETTINGS)


def test_rising_loss_gives_a_warning(
    tiny_encoder: Encoder, label_task: Task, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner_module, "LOSS_WINDOW", 4)
    tune(tiny_encoder, label_task, epochs=5, lr=3.0, batch=4, decay="constant", clip=1e9)
    assert "tune: the loss rose from" in capsys.readouterr().err


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_freeze_changes_only_the_trainable_weights(tiny_encoder: Encoder, span_task: Task, k: int, norms: bool) -> None:
    method = f"freeze:k={k},norms={str(norms).lower()}"
    tuned = tune(tiny_encoder, span_task, method=method, **SETTINGS)
    before, after = tiny_encoder.model.state_dict(), tuned.model.state_dict()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    layers = {key for key in before if any(key.startswith(f"encoder.layer.{i}.") for i in range(k, 2))}
    trainable = layers | {key for key in before if "LayerNorm" in key and norms}
    # Softmax is invariant to the key bias.
    without_gradient = {key for key in trainable if key.endswith("attention.self.key.bias")}
    assert changed | without_gradient == trainable | without_gradient
    assert all(parameter.requires_grad for parameter in tuned.model.parameters())


@pytest.mark.parametrize(
    ("shape", "norms_and_head", "per_layer"), [("base", 39_938, 7_084_800), ("large", 102_402, 12_592_128)]
)
def test_trained_parameters_equal_the_papers(shape: str, norms_and_head: int, per_layer: int) -> None:
    width, depth = {"base": (768, 12), "large": (1024, 24)}[shape]
    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    with torch.device("meta"):
        model = transformers.BertModel(config)
        head = build_head("probe:layers=last1", Shape(depth + 1, width, 384, 2, "span"))
    for layers_trained in range(depth + 1):
        prepare(model, f"freeze:k={depth - layers_trained},norms=true", needs_pooler=False)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad) + head.num_parameters
        assert trained == norms_and_head + layers_trained * per_layer


def test_invalid_methods_are_errors(tiny_encoder: Encoder, label_task: Task) -> None:
    for method, reason in (
        ("freeze:k=3", "this encoder has 2 layers; expected 0 to 2"),
        ("freeze:depth=1", "no option named 'depth'"),
        ("freeze:k=true", "k: got True, expected a whole number"),
        ("frieze", "Did you mean 'freeze'"),
    ):
        with pytest.raises(BadInput, match=reason):
            tune(tiny_encoder, label_task, method=method)
    assert list(METHODS) == ["full", "freeze", "adapters", "bitfit", "lora"]


DISTRIBUTED_SCRIPT = """
import sys
from pathlib import Path
from bertvision.encoders.loading import load_encoder
from bertvision.training.tune import tune
from bertvision.tasks.task import read_task
import os
for index, method in enumerate(sys.argv[4:]):
    settings = {"method": method, "epochs": 3, "lr": 3e-3, "batch": 5}
    tuned = tune(load_encoder(sys.argv[1]), read_task(Path(sys.argv[2])), **settings)
    tuned.save_pretrained(f"{sys.argv[3]}-{index}-{os.environ['RANK']}")
"""


def test_two_processes_give_the_same_weights_as_one(
    tiny_encoder: Encoder, tiny_encoder_folder: Path, label_task: Task, tmp_path: Path
) -> None:
    from bertvision.tasks.task import save_task

    save_task(label_task, tmp_path / "task")
    (tmp_path / "together.py").write_text(DISTRIBUTED_SCRIPT, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    arguments = [str(tmp_path / "together.py"), str(tiny_encoder_folder), str(tmp_path / "task"), str(tmp_path / "out")]
    methods = ["full", "adapters:size=4,share=2"]
    finished = subprocess.run(
        [*launch, *arguments, *methods], capture_output=True, text=True, timeout=300, env=environment
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    for index, method in enumerate(methods):
        alone = tune(tiny_encoder, label_task, method=method, epochs=3, lr=3e-3, batch=5)
        for rank in (0, 1):
            assert_close(alone, load_encoder(str(tmp_path / f"out-{index}-{rank}")), 1e-4)
