"""Checkpoints: read only if made from the same inputs; damage is a one-line error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint


def test_checkpoint_is_read_only_with_the_same_made_from(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    assert read_checkpoint(path, "me") is None
    write_checkpoint(path, {"a": torch.arange(3)}, made_from="me", step=7)
    assert read_checkpoint(path, "another") is None
    tensors, note = read_checkpoint(path, "me") or ({}, {})
    assert tensors["a"].tolist() == [0, 1, 2]
    assert note["step"] == 7


def test_damaged_checkpoint_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"a": torch.arange(3)}, made_from="me")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match=r"state\.safetensors is damaged \(.+\); delete it and rerun"):
        read_checkpoint(path, "me")
