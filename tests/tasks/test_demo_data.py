"""The demo files: identical bytes on every machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bertvision.tasks.demo_data import write
from bertvision.tasks.task import load_task

SHA256 = {
    "train.json": "284cb413eca71d21b4e63a06f6ca68a7081138dc7100839df608635028f14c90",
    "dev.json": "1930ed76ee2fa288871db7d52fa353bc8adf18333794f50d30503cc811db52f5",
}


def test_demo_files_never_change(tmp_path: Path) -> None:
    paths = write(tmp_path / "data")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths} == SHA256


def test_demo_files_load_as_a_task(tmp_path: Path) -> None:
    train, dev = write(tmp_path)
    task = load_task("squad2", train=train, dev=dev)
    assert len(task["train"]) + len(task["inner"]) == 1500
    assert len(task["dev"]) == 250
