"""Tuning that stops and goes on, in pieces, frozen in part, or on several processes, comes to the same."""

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
from bertvision.training import tuner as tuning_module
from bertvision.training.tune import tune
from bertvision.training.tuner import Tuner

SETTINGS: dict[str, Any] = {"epochs": 4, "lr": 3e-3, "batch": 4}


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    assert encoder.own is not None
    return {**encoder.model.state_dict(), **{f"own.{key}": value for key, value in encoder.own.state.items()}}


def assert_equal(one: Encoder, other: Encoder) -> None:
    for key, value in weights(one).items():
        assert torch.equal(value, weights(other)[key]), key


def assert_close(one: Encoder, other: Encoder, within: float) -> None:
    """A bias of the keys moves all scores of a query alike, so its gradient is rounding, which Adam blows up."""
    for key, value in weights(one).items():
        if not key.endswith("key.bias"):
            torch.testing.assert_close(value, weights(other)[key], rtol=0, atol=within)


@pytest.fixture
def dropping(tiny_encoder: Encoder) -> Encoder:
    """With dropout, so that the random state matters."""
    encoder = tiny_encoder.copy()
    for module in encoder.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    return encoder


class Stop(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize(
    ("stops", "head"), [((1,), None), ((3, 7, 8), None), ((23,), None), ((5,), "xception:scale=0.05")]
)
def test_an_interrupted_run_ends_as_if_it_had_never_stopped(
    dropping: Encoder,
    label_task: Task,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stops: tuple[int, ...],
    head: str | None,
) -> None:
    settings = {**SETTINGS, "head": head}
    whole = tune(dropping, label_task, **settings)
    real = Tuner.step

    def killed(self: Tuner, batch: Any) -> None:
        if self.steps_done in left:
            left.remove(self.steps_done)
            raise Stop
        real(self, batch)

    left = list(stops)
    monkeypatch.setattr(Tuner, "step", killed)
    for _ in stops:
        with pytest.raises(Stop):
            tune(dropping, label_task, saved=tmp_path / "state.safetensors", save_minutes=0, **settings)
        assert (tmp_path / "state.safetensors").exists()
    resumed = tune(dropping, label_task, saved=tmp_path / "state.safetensors", save_minutes=0, **settings)
    assert_equal(whole, resumed)
    assert resumed.record["tune"]["steps"] == whole.record["tune"]["steps"] == 24
    assert not list(tmp_path.iterdir())


def test_a_state_made_from_something_else_is_not_taken_up(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state.safetensors"
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    tune(tiny_encoder, label_task, saved=state, save_minutes=0, **SETTINGS)
    monkeypatch.undo()
    other = {**SETTINGS, "seed": 1}
    assert state.exists()
    assert_equal(tune(tiny_encoder, label_task, saved=state, **other), tune(tiny_encoder, label_task, **other))


def test_ctrl_c_writes_the_state_down_first(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, state = Tuner.step, tmp_path / "state.safetensors"

    def pressed(self: Tuner, batch: Any) -> None:
        real(self, batch)
        if self.steps_done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Tuner, "step", pressed)
    with pytest.raises(KeyboardInterrupt):
        tune(tiny_encoder, label_task, saved=state, **SETTINGS)
    monkeypatch.undo()
    assert_equal(tune(tiny_encoder, label_task, saved=state, **SETTINGS), tune(tiny_encoder, label_task, **SETTINGS))


def test_pieces_and_recomputed_states_come_to_the_same(tiny_encoder: Encoder, label_task: Task) -> None:
    plain = tune(tiny_encoder, label_task, **SETTINGS)
    assert_close(plain, tune(tiny_encoder, label_task, accumulate=3, **SETTINGS), 1e-4)
    again = tune(tiny_encoder, label_task, checkpointing=True, **SETTINGS)
    assert_close(plain, again, 1e-5)
    assert not again.model.is_gradient_checkpointing, "the next tuning is not to compute states again"


def test_out_of_memory_says_what_to_set(
    tiny_encoder: Encoder, label_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ...")

    monkeypatch.setattr(tuning_module, "hidden_states", full)
    with pytest.raises(MemoryError, match=r"4 texts of up to \d+ tokens.*--set tune.accumulate=2"):
        tune(tiny_encoder, label_task, **SETTINGS)


def test_a_rising_loss_is_told(
    tiny_encoder: Encoder, label_task: Task, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_module, "LOSS_WINDOW", 4)
    tune(tiny_encoder, label_task, epochs=5, lr=3.0, batch=4, decay="constant", clip=1e9)
    assert "tune: the loss rose from" in capsys.readouterr().err


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_what_is_frozen_stays_and_the_rest_moves(tiny_encoder: Encoder, span_task: Task, k: int, norms: bool) -> None:
    method = f"freeze:k={k},norms={str(norms).lower()}"
    tuned = tune(tiny_encoder, span_task, method=method, **SETTINGS)
    before, after = tiny_encoder.model.state_dict(), tuned.model.state_dict()
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    layers = {key for key in before if any(key.startswith(f"encoder.layer.{i}.") for i in range(k, 2))}
    wanted = layers | {key for key in before if "LayerNorm" in key and norms}
    silent = {key for key in wanted if key.endswith("attention.self.key.bias")}  # softmax does not feel it
    assert moved | silent == wanted | silent
    assert all(parameter.requires_grad for parameter in tuned.model.parameters())


@pytest.mark.parametrize(
    ("shape", "norms_and_head", "layer"), [("base", 39_938, 7_084_800), ("large", 102_402, 12_592_128)]
)
def test_counts_are_the_paper_s(shape: str, norms_and_head: int, layer: int) -> None:
    width, depth = {"base": (768, 12), "large": (1024, 24)}[shape]
    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    with torch.device("meta"):
        model = transformers.BertModel(config)
        head = build_head("probe:layers=last1", Shape(depth + 1, width, 384, 2, "span"))
    for above in range(depth + 1):
        prepare(model, f"freeze:k={depth - above},norms=true", needs_pooler=False)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad) + head.num_parameters
        assert trained == norms_and_head + above * layer


def test_bad_methods_are_named(tiny_encoder: Encoder, label_task: Task) -> None:
    for method, reason in (
        ("freeze:k=3", "this encoder has 2 layers; expected 0 to 2"),
        ("freeze:depth=1", "no option named 'depth'"),
        ("freeze:k=true", "k: got True, expected a whole number"),
        ("frieze", "Did you mean 'freeze'"),
    ):
        with pytest.raises(BadInput, match=reason):
            tune(tiny_encoder, label_task, method=method)
    assert list(METHODS) == ["full", "freeze", "adapters", "bitfit", "lora"]


TOGETHER = """
import sys
from pathlib import Path
from bertvision.encoders.loading import load_encoder
from bertvision.training.tune import tune
from bertvision.tasks.task import read_task
import os
for place, method in enumerate(sys.argv[4:]):
    settings = {"method": method, "epochs": 3, "lr": 3e-3, "batch": 5}
    tuned = tune(load_encoder(sys.argv[1]), read_task(Path(sys.argv[2])), **settings)
    tuned.save_pretrained(f"{sys.argv[3]}-{place}-{os.environ['RANK']}")
"""


def test_two_processes_come_to_what_one_comes_to(
    tiny_encoder: Encoder, tiny_encoder_folder: Path, label_task: Task, tmp_path: Path
) -> None:
    from bertvision.tasks.task import save_task

    save_task(label_task, tmp_path / "task")
    (tmp_path / "together.py").write_text(TOGETHER, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    words = [str(tmp_path / "together.py"), str(tiny_encoder_folder), str(tmp_path / "task"), str(tmp_path / "out")]
    methods = ["full", "adapters:size=4,share=2"]
    done = subprocess.run([*launch, *words, *methods], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for place, method in enumerate(methods):
        alone = tune(tiny_encoder, label_task, method=method, epochs=3, lr=3e-3, batch=5)
        for rank in (0, 1):
            assert_close(alone, load_encoder(str(tmp_path / f"out-{place}-{rank}")), 1e-4)
