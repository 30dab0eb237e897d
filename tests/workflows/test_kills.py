"""A tuning that is killed again and again ends with the weights of one that never was; set BERTVISION_SLOW=1."""

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


def words(table: Path, encoder: Path, out: Path) -> list[str]:
    data = ["--train", str(table), "--text-column", "text", "--label-column", "label", "--encoder", str(encoder)]
    settings = [
        f"--set={one}" for one in ("tune.epochs=60", "tune.save_minutes=0", "tune.batch=4", "data.max_length=32")
    ]
    return [sys.executable, "-m", "bertvision", "tune", "text", *data, *settings, "--out", str(out)]


def started(command: list[str]) -> subprocess.Popen[bytes]:
    source = str(Path(bertvision.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def kill_once_it_saves(process: subprocess.Popen[bytes], saved: Path, moment: float) -> bool:
    """SIGKILL ``moment`` seconds after the state was first written by this process; False if it was done before."""
    before = saved.stat().st_mtime_ns if saved.exists() else 0
    while process.poll() is None and (not saved.exists() or saved.stat().st_mtime_ns == before):
        time.sleep(0.005)
    time.sleep(moment)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


def test_ten_kills_change_no_weight(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'good' if n % 2 else 'bad'} text number {n},{n % 2}" for n in range(120)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    whole, killed = (words(table, tiny_encoder_folder, tmp_path / name) for name in ("whole", "killed"))
    assert started(whole).wait() == 0
    draw, kills = random.Random(0), 0
    for _ in range(KILLS):
        kills += kill_once_it_saves(started(killed), tmp_path / "killed" / "tuning.safetensors", draw.uniform(0, 0.4))
    assert kills >= KILLS // 2, "it was too fast to be killed"
    assert started(killed).wait() == 0
    one, other = (load_file(tmp_path / name / "encoder" / "model.safetensors") for name in ("whole", "killed"))
    assert all((one[key] == other[key]).all() for key in one)
