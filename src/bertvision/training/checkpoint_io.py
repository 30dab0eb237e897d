"""Checkpoints of unfinished steps: tensors and JSON metadata in one safetensors file."""

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

METADATA_KEY = "bertvision"
"""The only metadata key: safetensors writes several keys in arbitrary order."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], made_from: str, **metadata: Any) -> None:
    """Write tensors and metadata atomically; ``made_from`` identifies the inputs they depend on."""
    text = json.dumps({"made_from": made_from, **metadata})
    with atomic_path(path) as part:
        save_file({key: value.detach().contiguous() for key, value in tensors.items()}, part, {METADATA_KEY: text})


def read_checkpoint(path: Path, made_from: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and metadata of a checkpoint; None without one, or if it was made from other inputs."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt", device="cpu") as file:
            metadata = json.loads(file.metadata()[METADATA_KEY])
            if metadata["made_from"] != made_from:
                return None
            return {key: file.get_tensor(key) for key in file.keys()}, metadata  # noqa: SIM118, not a mapping
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged ({error}); delete it and rerun the same command") from error
