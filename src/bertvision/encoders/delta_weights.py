"""Delta weights: encoders saved as the weights that differ from a base, with the name and hash of the base.

These are all weights that tuning changed or added (adapters, LoRA, norms, biases, unfrozen layers), by name. A loaded
encoder shares all other weights with its base, so any number of encoders on one base need it in memory only once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import atomic_path, hash_json, hash_tensors
from bertvision.encoders.architectures import truncate_layers
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.methods import inject, injected, injected_names

WEIGHTS = "small.safetensors"

IGNORED_CONFIG_KEYS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Config entries that do not affect the outputs of a model."""


@dataclass(frozen=True)
class BaseRef:
    """The base encoder of delta weights."""

    name: str
    hash: str
    source: str | None = None  # where it can be loaded from; None if it was changed since
    cut: int | None = None  # number of its lowest layers that are used; None: all
    tokenizer: str | None = None  # hash of its tokenizer


@dataclass(frozen=True)
class DeltaWeights:
    """The base, and the names of the weights that differ from it."""

    base: BaseRef
    names: tuple[str, ...] = ()


def functional_settings(model: Any) -> dict[str, Any]:
    """The config entries that affect the outputs of a model."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    return {key: value for key, value in config.items() if key not in IGNORED_CONFIG_KEYS}


def model_hash(model: Any) -> str:
    """Hash of all weights and of the config entries that affect the outputs."""
    return hash_json([hash_tensors(model.state_dict().items()), functional_settings(model)])


def save_delta(model: Any, delta: DeltaWeights, folder: Path) -> dict[str, Any]:
    """Write the delta weights and return the entry of bertvision.json that :func:`load_delta` needs."""
    check_base_location(delta.base, folder)
    parameters = dict(model.named_parameters())
    tensors = {name: parameters[name].detach().cpu().contiguous() for name in delta.names}
    with atomic_path(folder / WEIGHTS) as part:
        save_file(tensors, part)
    return {"base": asdict(delta.base), "put_in": injected(model)}


def check_base_location(base: BaseRef, folder: Path) -> None:
    """Reject saving delta weights whose base is not saved, or is saved in the same folder."""
    if base.source is None:
        raise BadInput(
            f"the base of this encoder ({base.name}) was tuned and has not been saved; save it with "
            "save_pretrained(FOLDER), load it from there, and tune the loaded one"
        )
    if Path(base.source).resolve() == folder.resolve():
        raise BadInput(f"{folder} contains the base of this encoder and cannot be overwritten; choose another folder")


def load_delta(base_model: Any, tokenizer: Any, saved: Mapping[str, Any], folder: Path) -> tuple[Any, DeltaWeights]:
    """Apply the delta weights of a folder to a new model that shares all other weights with the base."""
    base = BaseRef(**saved["base"])
    hashes = {"hash": (base.hash, model_hash(base_model))}
    if base.tokenizer is not None:
        hashes["tokenizer"] = (base.tokenizer, tokenizer_hash(tokenizer))
    for what, (expected, actual) in hashes.items():
        if expected != actual:
            raise BadInput(
                f"{folder} belongs to another base: {base.name} with {what} {expected[:12]}..., got {actual[:12]}...; "
                "pass the encoder that it was tuned from"
            )
    model = clone_sharing_weights(base_model)
    if base.cut is not None:
        truncate_layers(model, base.cut)
    inject(model, saved["put_in"])
    path = folder / WEIGHTS
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {shorten(str(error))}; tune again") from error
    parameters = dict(model.named_parameters())
    for name in [*tensors, *injected_names(model)]:
        if name not in parameters or name not in tensors or parameters[name].shape != tensors[name].shape:
            raise BadInput(f"{path}: the weights of {shorten(name)} do not match its bertvision.json; tune again")
    for name, tensor in tensors.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, nn.Parameter(tensor))
    return model.eval(), DeltaWeights(base, tuple(sorted(tensors)))


def clone_sharing_weights(model: Any) -> Any:
    """Copy the modules of a model without copying its weights and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def clone_to_meta(model: Any) -> Any:
    """Copy a model to the meta device, for dry runs that need no memory."""
    copies = {}
    for weight in model.parameters():
        copies[id(weight)] = nn.Parameter(weight.detach().to("meta"), requires_grad=weight.requires_grad)
    return copy.deepcopy(model, copies)
