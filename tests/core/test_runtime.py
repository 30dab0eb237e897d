"""Atomic files, seeds, devices, the learning-rate schedule, progress, signals and threads."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core import runtime
from bertvision.core.errors import BadInput
from bertvision.core.files import atomic_open, file_sha256, folder_bytes, write_json
from bertvision.core.progress import Timer, log_line, progress, progress_bar
from bertvision.core.runtime import (
    choose_device,
    cpus_contended,
    graceful_interrupt,
    seeded,
    set_omp_wait_policy,
)
from bertvision.training.schedule import lr_factor

QUICK = settings(max_examples=100, deadline=None, derandomize=True)


class Stop(Exception):
    pass


def write_and_fail(path: Path) -> None:
    with atomic_open(path) as file:
        file.write("half of it")
        file.flush()
        raise Stop


def test_atomic_open_writes_the_whole_file_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(Stop):
        write_and_fail(path)
    assert list(path.parent.iterdir()) == []
    with atomic_open(path) as file:
        file.write("é\n")
        assert not path.exists()
    assert path.read_bytes() == b"\xc3\xa9\n"
    with pytest.raises(Stop):
        write_and_fail(path)
    assert path.read_text(encoding="utf-8") == "é\n"
    assert [child.name for child in path.parent.iterdir()] == ["file.txt"]


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "below.json", tmp_path / "folder"):
        with pytest.raises(BadInput, match="cannot write"):
            write_json(path, {})
    assert sorted(child.name for child in tmp_path.iterdir()) == ["file", "folder"]


def test_write_json_keeps_the_old_file_if_the_content_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"b": [1, "é"]})
    before = path.read_bytes()
    assert json.loads(before) == {"b": [1, "é"]}
    assert before.endswith(b"\n")
    with pytest.raises(TypeError):
        write_json(path, {"b": object()})
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_seeded_repeats_draws_and_restores_the_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(1):
        again = torch.rand(3)
    with seeded(2):
        other = torch.rand(3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def draw_and_fail() -> None:
    with seeded(1):
        torch.rand(3)
        raise Stop


def test_seeded_restores_the_state_after_an_error() -> None:
    state = torch.get_rng_state()
    with pytest.raises(Stop):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), state)


def test_choose_device_refuses_unknown_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cuda", "mps", "cpu")
    for name in ("abacus", "", "cpu:x"):
        with pytest.raises(BadInput, match=r"unknown device .*; expected auto, .*cpu"):
            choose_device(name)
    with pytest.raises(BadInput, match=r"device .xpu. is not available; expected auto, .*cpu"):
        choose_device("xpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_unavailable_device_is_rejected_early() -> None:
    with pytest.raises(BadInput, match="device 'cuda:1' is not available"):
        choose_device("cuda:1")


@QUICK
@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from(["linear", "constant"]))
def test_learning_rate_rises_to_its_peak_and_decays_to_zero(steps: int, warmup: float, decay: str) -> None:
    rates = [lr_factor(step, steps, warmup, decay) for step in range(steps)]
    rise = max(1, round(warmup * steps))
    assert all(0 < rate <= 1 for rate in rates)
    assert max(rates) == 1.0
    assert rates[:rise] == sorted(rates[:rise])
    assert rates[rise:] == sorted(rates[rise:], reverse=True)
    if decay == "constant":
        assert set(rates[rise:]) <= {1.0}
    elif rise < steps:
        assert rates[-1] == pytest.approx(1 / (steps - rise))
    assert lr_factor(steps, steps, warmup, "linear") == 0.0


def test_messages_and_progress_go_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTVISION_PROGRESS", "1")
    log_line("hello")
    assert list(progress(range(3), "count", 3)) == [0, 1, 2]
    with progress_bar("bar", 3, "step") as advance:
        advance(3)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("hello\n")
    assert "count" in shown.err
    assert "bar" in shown.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_requests_a_stop_and_the_second_interrupts(number: signal.Signals) -> None:
    with graceful_interrupt() as stop_requested:
        assert not stop_requested()
        signal.raise_signal(number)
        assert stop_requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    with graceful_interrupt(at_once=True) as stop_requested:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert stop_requested(), "still set if a callback swallowed the interrupt"


def test_log_line_escapes_terminal_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    log_line("label \x1b]0;title\x07 \u202eturned\u202c\r\x9b31m\x00 \ud800 kept: \t\n\u05d0 \U0001f600")
    shown = capsys.readouterr().err
    expected = "label \\x1b]0;title\\x07 \\u202eturned\\u202c\\r\\x9b31m\\x00 \\ud800 kept: \t\n\u05d0 \U0001f600\n"
    assert shown == expected


@pytest.mark.parametrize("setting", ["0", None])
def test_progress_is_silent_if_disabled_or_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    if setting is not None:
        monkeypatch.setenv("BERTVISION_PROGRESS", setting)
    assert list(progress(range(3), "count", 3)) == [0, 1, 2]
    with progress_bar("bar", 3, "step") as advance:
        advance(3)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_progress_prints_lines_at_intervals_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    monkeypatch.setattr("bertvision.core.progress.LINE_SECONDS", 0.0)
    assert list(progress(range(2), "tune", 2, "step")) == [0, 1]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["tune: 1 of 2 steps, about 0 min left", "tune: 2 of 2 steps, about 0 min left"]


def test_folder_size_file_hash_and_timer(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "two").write_bytes(b"678")
    assert folder_bytes(tmp_path) == 8
    assert file_sha256(tmp_path / "a" / "one") == hashlib.sha256(b"12345").hexdigest()
    timer = Timer()
    assert 0 <= timer.seconds <= timer.seconds < 60


QUIET, BUSY = "0.81 1.62 1.88 1/78 2965\n", "0.81 1.62 1.88 3/80 3019\n"


@pytest.mark.parametrize(
    ("environment", "load", "policy"),
    [
        ({}, BUSY, "PASSIVE"),
        ({}, QUIET, None),
        ({}, "what is this", "PASSIVE"),
        ({}, None, "PASSIVE"),
        ({"GOMP_SPINCOUNT": "7"}, BUSY, None),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, BUSY, "ACTIVE"),
    ],
)
def test_omp_wait_policy_is_passive_on_busy_machines_unless_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], load: str | None, policy: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it afterwards
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(runtime, "LOADAVG", tmp_path / "loadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: len(os.sched_getaffinity(0)))
    if load is not None:
        (tmp_path / "loadavg").write_text(load)
    set_omp_wait_policy()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_cpus_are_contended_if_other_processes_need_those_of_our_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "loadavg").write_text(BUSY)  # two other processes are running
    monkeypatch.setattr(runtime, "LOADAVG", tmp_path / "loadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for threads, contended in {"6": False, "7": True}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert cpus_contended() == contended
