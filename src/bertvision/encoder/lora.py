"""LoRA by the ``peft`` library: low-rank terms beside the maps of queries and values.

An adapter folder that peft wrote can be read as an encoder too; what it adds is merged into the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertvision.encoder.families import FAMILIES
from bertvision.errors import BadInput, missing_extra, shorten

PEFT_CONFIG = "adapter_config.json"
MARK = ".lora_"
"""In the names of all weights that LoRA adds."""


def insert_lora(model: Any, r: int, alpha: int, dropout: float) -> None:
    """W h + alpha / r B A h at every chosen map; B begins at zero. Seed torch first."""
    peft = _peft()
    targets = list(FAMILIES[model.config.model_type].lora)
    config = peft.LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)
    peft.inject_adapter_in_model(config, model)


def base_of(folder: Path) -> str:
    """What a folder that peft wrote says it belongs to."""
    try:
        return str(json.loads((folder / PEFT_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / PEFT_CONFIG} cannot be read: {shorten(str(error))}") from error


def merged(model: Any, folder: Path) -> Any:
    """A model with what peft trained added to its weights; the given one is changed."""
    peft = _peft()
    try:
        return peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        reason = shorten(str(error).split("\n")[0], 160)
        raise BadInput(
            f"{folder}: what peft saved there cannot be merged into {type(model).__name__}: {reason}"
        ) from error


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise missing_extra("peft", "peft") from error
    return peft
