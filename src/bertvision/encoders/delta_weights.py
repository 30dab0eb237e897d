"""Delta weights: encoders saved as the weights that differ from a base, with the base's name and hash.

These are all weights that tuning changed or added (adapters, LoRA, norms, biases, unfrozen layers), by name. A
loaded encoder shares all other weights with its base, so any number of encoders on one base need it in memory once.
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
"""Config entries about the origin of a model, which do not affect its outputs."""


@dataclass(frozen=True)
class BaseRef:
    """The base encoder of delta weights."""

    name: str
    hash: str
    source: str | None = None  # what it was loaded from; None if it was changed since
    cut: int | None = None  # layers that were kept of it
    tokenizer: str | None = None  # its hash: weights are useless with another tokenizer


@dataclass(frozen=True)
class DeltaWeights:
    """The base, and the names of the weights that differ from it."""

    base: BaseRef
    names: tuple[str, ...] = ()


def functional_settings(model: Any) -> dict[str, Any]:
    """The config entries that affect a model's outputs."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    return {key: value for key, value in config.items() if key not in IGNORED_CONFIG_KEYS}


def model_hash(model: Any) -> str:
    """Hash of all weights and of the config entries that affect outputs."""
    return hash_json([hash_tensors(model.state_dict().items()), functional_settings(model)])


def save_delta(model: Any, delta: DeltaWeights, folder: Path) -> dict[str, Any]:
    """Write the delta weights; the result is the entry of bertvision.json that :func:`load_delta` needs."""
    check_base_location(delta.base, folder)
    parameters = dict(model.named_parameters())
    tensors = {name: parameters[name].detach().cpu().contiguous() for name in delta.names}
    with atomic_path(folder / WEIGHTS) as part:
        save_file(tensors, part)
    return {"base": asdict(delta.base), "put_in": injected(model)}


def check_base_location(base: BaseRef, folder: Path) -> None:
    """Delta weights need their base, which must be saved in another folder."""
    if base.source is None:
        raise BadInput(
            f"the base of this encoder ({base.name}) was tuned and is nowhere saved; save it with "
            "save_pretrained(FOLDER), load it from there, and tune that"
        )
    if Path(base.source).resolve() == folder.resolve():
        raise BadInput(f"{folder} holds the base of this encoder, which must stay; choose another folder")


def load_delta(base_model: Any, tokenizer: Any, saved: Mapping[str, Any], folder: Path) -> tuple[Any, DeltaWeights]:
    """The base with the delta weights of a folder, as a new model that shares all other weights with the base."""
    base = BaseRef(**saved["base"])
    hashes = {"hash": (base.hash, model_hash(base_model))}
    cuts_text = tokenizer_hash(tokenizer)
    hashes["tokenizer"] = (base.tokenizer or cuts_text, cuts_text)
    for what, (expected, found) in hashes.items():
        if expected != found:
            raise BadInput(
                f"{folder} belongs to another base: {base.name} with {what} {expected[:12]}..., got {found[:12]}...; "
                "give the encoder that it was tuned from"
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
            raise BadInput(f"{path}: the weights of {shorten(name)} do not fit what is inside; tune again")
    for name, tensor in tensors.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, nn.Parameter(tensor))
    return model.eval(), DeltaWeights(base, tuple(sorted(tensors)))


def clone_sharing_weights(model: Any) -> Any:
    """A copy of the modules that shares all weights."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def clone_to_meta(model: Any) -> Any:
    """A copy of the modules whose weights are on the meta device, to try things without using memory."""
    empty = {}
    for weight in model.parameters():
        empty[id(weight)] = nn.Parameter(weight.detach().to("meta"), requires_grad=weight.requires_grad)
    return copy.deepcopy(model, empty)
