"""Tuning that is killed repeatedly gives the same weights as uninterrupted tuning; run with BERTVISION_SLOW=1."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

import bertvision

KILLS = 10
pytestmark = pytest.mark.skipif(not os.environ.get("BERTVISION_SLOW"), reason="takes minutes: set BERTVISION_SLOW=1")


def tune_command(table: Path, encoder: Path, out: Path) -> list[str]:
    data = ["--train", str(table), "--text-column", "text", "--label-column", "label", "--encoder", str(encoder)]
    settings = [
        f"--set={setting}"
        for setting in ("tune.epochs=60", "tune.save_minutes=0", "tune.batch=4", "data.max_length=32")
    ]
    return [sys.executable, "-m", "bertvision", "tune", "text", *data, *settings, "--out", str(out)]


def start(command: list[str]) -> subprocess.Popen[bytes]:
    source = str(Path(bertvision.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def kill_after_checkpoint(process: subprocess.Popen[bytes], checkpoint: Path, moment: float) -> bool:
    """SIGKILL ``moment`` seconds after the process first saves; False if it had finished by then."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
        time.sleep(0.005)
    time.sleep(moment)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


def test_killed_tuning_resumes_bit_exactly(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'good' if n % 2 else 'bad'} text number {n},{n % 2}" for n in range(120)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    whole, killed = (tune_command(table, tiny_encoder_folder, tmp_path / name) for name in ("whole", "killed"))
    assert start(whole).wait() == 0
    random_delays, kills = random.Random(0), 0
    for _ in range(KILLS):
        kills += kill_after_checkpoint(
            start(killed), tmp_path / "killed" / "tuning.safetensors", random_delays.uniform(0, 0.4)
        )
    assert kills >= KILLS // 2, "tuning finished too fast to be killed"
    assert start(killed).wait() == 0
    whole_weights, killed_weights = (
        load_file(tmp_path / name / "encoder" / "model.safetensors") for name in ("whole", "killed")
    )
    assert all((whole_weights[key] == killed_weights[key]).all() for key in whole_weights)
