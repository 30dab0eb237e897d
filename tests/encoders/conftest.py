"""Fixtures of encoder tests: a tiny random model of every family, and the states of two short texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertvision.encoders.architectures import FAMILIES
from bertvision.encoders.hidden_states import TokenBatch, hidden_states
from bertvision.encoders.loading import Encoder

POSITIONS = 40
PADDED = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Families whose padding token is number 1."""


@pytest.fixture(autouse=True)
def _skip_lora_without_peft(request: pytest.FixtureRequest) -> None:
    """A test whose ``method`` is LoRA is skipped where the library is not installed."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and str(callspec.params.get("method", "")).startswith("lora"):
        pytest.importorskip("peft", reason="LoRA needs the extra peft")


def save_family(model_type: str, folder: Path, tokenizer: Any) -> Any:
    """A tiny random model of a family, saved with the tiny tokenizer."""
    config = transformers.AutoConfig.for_model(
        model_type,
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS,
        pad_token_id=1 if model_type in PADDED else 0,
        bos_token_id=2,
        cls_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)  # when deberta is imported
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Encoder) -> dict[str, tuple[Path, Any]]:
    folder = tmp_path_factory.mktemp("families")
    return {name: (folder / name, save_family(name, folder / name, tiny_encoder.tokenizer)) for name in FAMILIES}


@pytest.fixture(scope="session")
def states() -> Callable[[Encoder], torch.Tensor]:
    """All states (real tokens, layers, width) that an encoder gives for two short texts."""
    ids = torch.tensor([[2, 40, 51, 60, 45, 3], [2, 44, 70, 3, 0, 0]])
    batch = TokenBatch(ids, ids != 0, torch.zeros_like(ids))

    def run(encoder: Encoder) -> torch.Tensor:
        with torch.inference_mode():
            return hidden_states(encoder.model.eval(), batch, range(encoder.layers)).stacked()[batch.mask]

    return run
