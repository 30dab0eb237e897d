"""Run an encoder and collect its hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json
from bertvision.core.records import Window

TOKENIZER_PROBE = (
    "Two  Caf\u00e9\u2013TESTS: don't, nai\u0308ve \u6771\u4eac \ufb01 3.5 [MASK]",
    "\tSECOND text \U0001f44d",
)


@dataclass(frozen=True)
class TokenBatch:
    """Windows padded to the longest."""

    input_ids: Tensor  # (batch, tokens)
    mask: Tensor  # (batch, tokens) bool
    token_types: Tensor  # (batch, tokens)


@dataclass(frozen=True)
class States:
    """Hidden states of the chosen layers, in that order, and the pooled CLS if the checkpoint has one."""

    layers: tuple[Tensor, ...]  # each (batch, tokens, width)
    pooled: Tensor | None  # (batch, width)

    def stacked(self) -> Tensor:
        return torch.stack(self.layers, dim=2)  # (batch, tokens, layers, width)


def collate(windows: Sequence[Window], pad_id: int, device: torch.device) -> TokenBatch:
    """Pad windows to the longest."""
    shape = (len(windows), max(len(window) for window in windows))
    ids, types, mask = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.input_ids
        types[row, : len(window)] = window.token_types
        mask[row, : len(window)] = True
    return TokenBatch(*(torch.from_numpy(array).to(device) for array in (ids, mask, types)))


def hidden_states(model: Any, batch: TokenBatch, layers: Sequence[int], bf16: bool | None = None) -> States:
    """Run the encoder and keep the chosen hidden states; 0 is the embedding output.

    The mask is always passed: an all-ones mask costs nothing, and a missing one attends to padding.
    """
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.mask.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = batch.token_types
    with _autocast(batch.input_ids.device, bf16):
        output = model(**inputs, output_hidden_states=True)
    states = output.hidden_states
    expected = model.config.num_hidden_layers + 1
    if len(states) != expected:
        raise BadInput(f"this encoder gives {len(states)} states for {expected - 1} layers; such models are not known")
    pooled = getattr(output, "pooler_output", None)
    return States(tuple(states[layer].float() for layer in layers), None if pooled is None else pooled.float())


def _autocast(device: torch.device, wanted: bool | None) -> torch.autocast:
    """bf16 on GPUs that support it; on a CPU without bf16 instructions it is several times slower than f32."""
    enabled = device.type == "cuda" and torch.cuda.is_bf16_supported() if wanted is None else wanted
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of the vocabulary and of the tokens of a probe text with case, accents, signs, blanks and a pair.

    A tokenizer's own JSON is no alternative: it changes when the tokenizer is saved and loaded.
    """
    return hash_json([tokenizer.backend_tokenizer.get_vocab(), dict(tokenizer(*TOKENIZER_PROBE))])
