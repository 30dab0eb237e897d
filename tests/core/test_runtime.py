"""The machine's part: whole files, seeds, devices, rates, the log."""

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


def fail_within(path: Path) -> None:
    with atomic_open(path) as file:
        file.write("half of it")
        file.flush()
        raise Stop


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(Stop):
        fail_within(path)
    assert list(path.parent.iterdir()) == []
    with atomic_open(path) as file:
        file.write("é\n")
        assert not path.exists()
    assert path.read_bytes() == b"\xc3\xa9\n"
    with pytest.raises(Stop):
        fail_within(path)
    assert path.read_text(encoding="utf-8") == "é\n"
    assert [child.name for child in path.parent.iterdir()] == ["file.txt"]


def test_an_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "below.json", tmp_path / "folder"):
        with pytest.raises(BadInput, match="cannot write"):
            write_json(path, {})
    assert sorted(child.name for child in tmp_path.iterdir()) == ["file", "folder"]


def test_json_is_written_and_what_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"b": [1, "é"]})
    before = path.read_bytes()
    assert json.loads(before) == {"b": [1, "é"]}
    assert before.endswith(b"\n")
    with pytest.raises(TypeError):
        write_json(path, {"b": object()})
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_seeded_repeats_and_restores() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1):
        one = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(1):
        again = torch.rand(3)
    with seeded(2):
        other = torch.rand(3)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def fail_seeded() -> None:
    with seeded(1):
        torch.rand(3)
        raise Stop


def test_seeded_restores_after_an_error_too() -> None:
    state = torch.get_rng_state()
    with pytest.raises(Stop):
        fail_seeded()
    assert torch.equal(torch.get_rng_state(), state)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cuda", "mps", "cpu")
    for name in ("abacus", "", "cpu:x"):
        with pytest.raises(BadInput, match=r"unknown device .*; expected auto, .*cpu"):
            choose_device(name)
    with pytest.raises(BadInput, match=r"device .xpu. is not available; expected auto, .*cpu"):
        choose_device("xpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_an_unavailable_device_is_rejected_early() -> None:
    with pytest.raises(BadInput, match="device 'cuda:1' is not available"):
        choose_device("cuda:1")


@QUICK
@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from(["linear", "constant"]))
def test_the_rate_rises_to_its_peak_and_falls_to_nothing(steps: int, warmup: float, decay: str) -> None:
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


def test_messages_and_progress_stay_off_stdout(
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
def test_a_stop_is_gentle_the_first_time_or_at_once_and_never_forgotten(number: signal.Signals) -> None:
    with graceful_interrupt() as asked:
        assert not asked()
        signal.raise_signal(number)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    with graceful_interrupt(at_once=True) as asked:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert asked(), "though a callback swallowed it"


def test_no_text_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log_line("label \x1b]0;title\x07 \u202eturned\u202c\r\x9b31m\x00 \ud800 kept: \t\n\u05d0 \U0001f600")
    told = capsys.readouterr().err
    assert told == "label \\x1b]0;title\\x07 \\u202eturned\\u202c\\r\\x9b31m\\x00 \\ud800 kept: \t\n\u05d0 \U0001f600\n"


@pytest.mark.parametrize("wanted", ["0", None])
def test_progress_is_silent_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    if wanted is not None:
        monkeypatch.setenv("BERTVISION_PROGRESS", wanted)
    assert list(progress(range(3), "count", 3)) == [0, 1, 2]
    with progress_bar("bar", 3, "step") as advance:
        advance(3)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_progress_is_a_line_now_and_then_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    monkeypatch.setattr("bertvision.core.progress.LINE_SECONDS", 0.0)
    assert list(progress(range(2), "tune", 2, "step")) == [0, 1]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["tune: 1 of 2 steps, about 0 min left", "tune: 2 of 2 steps, about 0 min left"]


def test_sizes_hashes_and_time(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "two").write_bytes(b"678")
    assert folder_bytes(tmp_path) == 8
    assert file_sha256(tmp_path / "a" / "one") == hashlib.sha256(b"12345").hexdigest()
    timer = Timer()
    assert 0 <= timer.seconds <= timer.seconds < 60


QUIET, BUSY = "0.81 1.62 1.88 1/78 2965\n", "0.81 1.62 1.88 3/80 3019\n"


@pytest.mark.parametrize(
    ("chosen", "load", "policy"),
    [
        ({}, BUSY, "PASSIVE"),
        ({}, QUIET, None),
        ({}, "what is this", "PASSIVE"),
        ({}, None, "PASSIVE"),
        ({"GOMP_SPINCOUNT": "7"}, BUSY, None),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, BUSY, "ACTIVE"),
    ],
)
def test_threads_sleep_at_barriers_on_busy_machines_unless_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: dict[str, str], load: str | None, policy: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that what is there after the test is what was there before
        monkeypatch.delenv(name)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(runtime, "LOADAVG", tmp_path / "loadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: len(os.sched_getaffinity(0)))
    if load is not None:
        (tmp_path / "loadavg").write_text(load)
    set_omp_wait_policy()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_processors_that_our_threads_leave_may_be_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text(BUSY)  # two others
    monkeypatch.setattr(runtime, "LOADAVG", tmp_path / "loadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for threads, wanted in {"6": False, "7": True}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert cpus_contended() == wanted
