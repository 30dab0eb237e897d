"""Tensors and a note in one file: the state of a step that is not done; not a step itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.files import atomic_path

NOTE = "bertvision"
"""The one key of the file's header: several would be written in any order."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], made_from: str, **note: Any) -> None:
    """As data, no pickle; there whole or not at all."""
    text = json.dumps({"made_from": made_from, **note})
    with atomic_path(path) as part:
        save_file({key: value.detach().contiguous() for key, value in tensors.items()}, part, {NOTE: text})


def read_checkpoint(path: Path, made_from: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What :func:`write_noted` wrote, if it is there and was made from the same."""
    if not path.exists():
        return None
    try:
        return _read(path, made_from)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged ({error}); delete it, and what it held is made anew") from error


def _read(path: Path, made_from: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    with safe_open(path, "pt", device="cpu") as file:
        note = json.loads(file.metadata()[NOTE])
        if note["made_from"] != made_from:
            return None
        return {key: file.get_tensor(key) for key in file.keys()}, note  # noqa: SIM118, a file is no mapping
