"""Tensors with a note: only for those who made them, and damage is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint


def test_what_was_written_is_read_by_who_made_it(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    assert read_checkpoint(path, "me") is None
    write_checkpoint(path, {"a": torch.arange(3)}, made_from="me", step=7)
    assert read_checkpoint(path, "another") is None
    tensors, note = read_checkpoint(path, "me") or ({}, {})
    assert tensors["a"].tolist() == [0, 1, 2]
    assert note["step"] == 7


def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"a": torch.arange(3)}, made_from="me")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match=r"state\.safetensors is damaged \(.+\); delete it and rerun"):
        read_checkpoint(path, "me")
