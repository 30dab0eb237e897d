"""LoRA by the ``peft`` library: low-rank terms beside the maps of queries and values.

An adapter folder that peft wrote can be read as an encoder too; what it adds is merged into the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.encoders.architectures import FAMILIES

PEFT_CONFIG = "adapter_config.json"
IN_PEFT = "base_model.model."
"""Before the names of all weights that peft saves."""
MARK = ".lora_"
"""In the names of all weights that LoRA adds."""


def insert_lora(model: Any, r: int, alpha: int, dropout: float) -> None:
    """W h + alpha / r B A h at every chosen map; B begins at zero. Seed torch first."""
    peft = _peft()
    targets = list(FAMILIES[model.config.model_type].lora)
    config = peft.LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    peft.inject_adapter_in_model(config, model)
    for parameter, was in trained:  # peft freezes them, and they may be those of a base that others use
        parameter.requires_grad_(was)


def base_of(folder: Path) -> str:
    """What a folder that peft wrote says it belongs to."""
    try:
        named = json.loads((folder / PEFT_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / PEFT_CONFIG} cannot be read: {shorten(str(error))}") from error
    if not isinstance(named, str):
        raise BadInput(f"{folder / PEFT_CONFIG} names no base_model_name_or_path; load it with base=ENCODER")
    return named


def merged(model: Any, folder: Path) -> Any:
    """A model with what peft trained added to its weights; the given one is changed.

    Folders of task models (``bert.encoder...`` beside ``classifier``) are read too: their heads stay behind.
    """
    peft = _peft()
    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.task_type, config.modules_to_save = None, _there(model, config.modules_to_save)
        adapted = peft.get_peft_model(model, config)
        tensors = without_task_model(peft.load_peft_weights(str(folder), device="cpu"), model.base_model_prefix)
        found = peft.set_peft_model_state_dict(adapted, tensors)
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError, SafetensorError) as error:
        reason = shorten(str(error).split("\n")[0], 160)
        raise BadInput(
            f"{folder}: what peft saved there cannot be merged into {type(model).__name__}: {reason}"
        ) from error
    lost = [name for name in found.missing_keys if MARK in name] + list(found.unexpected_keys)
    if lost:
        raise BadInput(
            f"{folder}: {len(lost)} weights that peft saved do not fit {type(model).__name__}, the first is "
            f"{shorten(lost[0], 100)}; give the encoder that it was trained on"
        )
    return adapted.merge_and_unload()


def _there(model: Any, modules: Sequence[str] | None) -> list[str] | None:
    """Of the modules that were trained whole those that an encoder has; heads of a task model are not."""
    names = [name for name, _ in model.named_modules()]
    return [one for one in modules or () if any(name.split(".")[-1] == one for name in names)] or None


def without_task_model(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Names as the encoder alone has them; what lies beside the encoder in a task model is left out."""
    before = f"{IN_PEFT}{prefix}."
    if not prefix or not any(name.startswith(before) for name in tensors):
        return dict(tensors)
    return {IN_PEFT + name[len(before) :]: one for name, one in tensors.items() if name.startswith(before)}


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise missing_extra("peft", "peft") from error
    return peft
