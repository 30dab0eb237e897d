"""Encoders that are a base and a little more: only the little is saved, with the base's name and hash.

The little is every weight that tuning changed or added (adapters, LoRA, norms, biases, unfrozen
layers), by name. Put back onto the base it lies beside the base's own weights, which are shared and not
copied: any number of small encoders on one base cost the base once.
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
from torch import Tensor, nn

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import atomic_path, hash_json, hash_tensors
from bertvision.encoders.architectures import cut_layers
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.methods import added_names, inject, injected

WEIGHTS = "small.safetensors"

NAMES_ONLY = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Settings of a model that say where it came from, not what it computes."""


@dataclass(frozen=True)
class BaseRef:
    """What a small encoder lies on."""

    name: str
    hash: str
    source: str | None = None  # what it was loaded by; none if it was changed since
    cut: int | None = None  # layers that are left of it
    tokenizer: str | None = None  # its hash: weights mean nothing to text that is cut in another way


@dataclass(frozen=True)
class DeltaWeights:
    """The base, and the names of the weights that are not the base's."""

    base: BaseRef
    names: tuple[str, ...] = ()


def used_settings(model: Any) -> dict[str, Any]:
    """The settings that a model computes with."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    return {key: value for key, value in config.items() if key not in NAMES_ONLY}


def model_hash(model: Any) -> str:
    """Weights by name and the settings that they are used with."""
    return hash_json([hash_tensors(model.state_dict().items()), used_settings(model)])


def save_delta(model: Any, delta: DeltaWeights, folder: Path) -> dict[str, Any]:
    """Write the weights; what is needed to read them again is given back, for the record."""
    check_place(delta.base, folder)
    there = dict(model.named_parameters())
    tensors = {name: there[name].detach().cpu().contiguous() for name in delta.names}
    with atomic_path(folder / WEIGHTS) as part:
        save_file(tensors, part)
    return {"base": asdict(delta.base), "put_in": injected(model)}


def check_place(base: BaseRef, folder: Path) -> None:
    """A small encoder is worth nothing without its base, which must be somewhere, and somewhere else."""
    if base.source is None:
        raise BadInput(
            f"the base of this encoder ({base.name}) was tuned and is nowhere saved; save it with "
            "save_pretrained(FOLDER), load it from there, and tune that"
        )
    if Path(base.source).resolve() == folder.resolve():
        raise BadInput(f"{folder} holds the base of this encoder, which must stay; choose another folder")


def load_delta(base_model: Any, tokenizer: Any, saved: Mapping[str, Any], folder: Path) -> tuple[Any, DeltaWeights]:
    """A model on the base's weights with those of the folder; the base's model is left as it is."""
    base = BaseRef(**saved["base"])
    _check_base(base, model_hash(base_model), tokenizer_hash(tokenizer), folder)
    model = with_same_weights(base_model)
    if base.cut is not None:
        cut_layers(model, base.cut)
    inject(model, saved["put_in"])
    tensors = _read(folder / WEIGHTS)
    _check(model, tensors, folder)
    for name, tensor in tensors.items():
        place, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(place), leaf, nn.Parameter(tensor))
    return model.eval(), DeltaWeights(base, tuple(sorted(tensors)))


def _check_base(base: BaseRef, model: str, tokenizer: str, folder: Path) -> None:
    pairs = {"hash": (base.hash, model), "tokenizer": (base.tokenizer or tokenizer, tokenizer)}
    for what, (expected, found) in pairs.items():
        if expected != found:
            raise BadInput(
                f"{folder} belongs to another base: {base.name} with {what} {expected[:12]}..., got {found[:12]}...; "
                "give the encoder that it was tuned from"
            )


def with_same_weights(model: Any) -> Any:
    """Modules of its own, but the very same weights."""
    kept = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in kept})


def without_weights(model: Any) -> Any:
    """Modules of its own whose weights have a shape and no content: what is tried on it costs nothing."""
    empty = {
        id(one): nn.Parameter(one.detach().to("meta"), requires_grad=one.requires_grad) for one in model.parameters()
    }
    return copy.deepcopy(model, empty)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {shorten(str(error))}; tune again") from error


def _check(model: Any, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Everything that was put in has its weights, and every weight its place."""
    there = dict(model.named_parameters())
    for name in [*tensors, *added_names(model)]:
        if name not in there or name not in tensors or there[name].shape != tensors[name].shape:
            raise BadInput(f"{folder / WEIGHTS}: the weights of {shorten(name)} do not fit what is inside; tune again")
