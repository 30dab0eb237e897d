"""LoRA with the ``peft`` library: low-rank updates of the query and value maps.

Adapter folders written by peft can be loaded as encoders, too; they are merged into the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.encoders.architectures import FAMILIES

PEFT_CONFIG = "adapter_config.json"

PEFT_PREFIX = "base_model.model."
"""Prefix of the names of all weights that peft saves."""

LORA_MARKER = ".lora_"
"""Part of the names of all weights that LoRA adds."""


def insert_lora(model: Any, r: int, alpha: int, dropout: float) -> None:
    """Replace W h by W h + alpha / r B A h in the query and value maps; B starts at zero. Seed torch first."""
    peft = _import_peft()
    targets = list(FAMILIES[model.config.model_type].lora)
    config = peft.LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    peft.inject_adapter_in_model(config, model)
    for parameter, requires_grad in flags:  # peft freezes them, but they may be shared with a base
        parameter.requires_grad_(requires_grad)


def peft_base(folder: Path) -> str:
    """The name of the base model of a peft folder."""
    try:
        name = json.loads((folder / PEFT_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / PEFT_CONFIG} cannot be read: {shorten(str(error))}") from error
    if not isinstance(name, str):
        raise BadInput(f"{folder / PEFT_CONFIG} has no base_model_name_or_path; pass base= to load_encoder")
    return name


def merge_peft(model: Any, folder: Path) -> Any:
    """Merge the adapters of a peft folder into a model, in place.

    Folders of task models (``bert.encoder...`` and ``classifier``) can be merged, too; their heads are dropped.
    """
    peft = _import_peft()
    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.task_type = None
        # Fully trained modules that the encoder does not have are heads of a task model.
        names = {name.split(".")[-1] for name, _ in model.named_modules()}
        config.modules_to_save = [name for name in config.modules_to_save or () if name in names] or None
        adapted = peft.get_peft_model(model, config)
        tensors = drop_task_model(peft.load_peft_weights(str(folder), device="cpu"), model.base_model_prefix)
        loaded = peft.set_peft_model_state_dict(adapted, tensors)
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError, SafetensorError) as error:
        reason = shorten(str(error).split("\n")[0], 160)
        raise BadInput(f"{folder}: the peft adapters cannot be merged into {type(model).__name__}: {reason}") from error
    unmatched = [name for name in loaded.missing_keys if LORA_MARKER in name] + list(loaded.unexpected_keys)
    if unmatched:
        raise BadInput(
            f"{folder}: {len(unmatched)} weights that peft saved do not fit {type(model).__name__}, the first is "
            f"{shorten(unmatched[0], 100)}; pass the encoder that they were trained on"
        )
    return adapted.merge_and_unload()


def drop_task_model(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Select the encoder's weights from those of a task model, under the names of the encoder alone."""
    start = f"{PEFT_PREFIX}{prefix}."
    if not prefix or not any(name.startswith(start) for name in tensors):
        return dict(tensors)
    return {PEFT_PREFIX + name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


def _import_peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise missing_extra("peft", "peft") from error
    return peft
