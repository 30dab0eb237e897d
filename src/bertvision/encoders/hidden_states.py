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
    """Windows padded to the longest of the batch."""

    input_ids: Tensor  # (batch, tokens)
    mask: Tensor  # (batch, tokens) bool
    token_types: Tensor  # (batch, tokens)


@dataclass(frozen=True)
class States:
    """Hidden states of selected layers, in that order, and the pooled CLS if the checkpoint has a pooler."""

    layers: tuple[Tensor, ...]  # each (batch, tokens, width)
    pooled: Tensor | None  # (batch, width)

    def stacked(self) -> Tensor:
        return torch.stack(self.layers, dim=2)  # (batch, tokens, layers, width)


def collate(windows: Sequence[Window], pad_id: int, device: torch.device) -> TokenBatch:
    """Pad windows to the longest and combine them into one batch."""
    shape = (len(windows), max(len(window) for window in windows))
    ids, types, mask = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.input_ids
        types[row, : len(window)] = window.token_types
        mask[row, : len(window)] = True
    return TokenBatch(*(torch.from_numpy(array).to(device) for array in (ids, mask, types)))


def hidden_states(model: Any, batch: TokenBatch, layers: Sequence[int], bf16: bool | None = None) -> States:
    """Run the encoder and return the hidden states of ``layers``; 0 is the embedding output.

    ``bf16`` defaults to GPUs that support it; on a CPU without bf16 instructions it is several times slower than f32.
    """
    # The mask is always passed: without one, transformers would attend to padding.
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.mask.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = batch.token_types
    device = batch.input_ids.device
    if bf16 is None:
        bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        output = model(**inputs, output_hidden_states=True)
    states = output.hidden_states
    expected = model.config.num_hidden_layers + 1
    if len(states) != expected:
        raise BadInput(
            f"this encoder returns {len(states)} hidden states, expected {expected}; such models are not supported"
        )
    pooled = getattr(output, "pooler_output", None)
    return States(tuple(states[layer].float() for layer in layers), None if pooled is None else pooled.float())


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of the vocabulary and of the tokens of a pair of texts with case, accents, symbols and whitespace.

    The tokenizer's own JSON cannot be hashed, because saving and loading a tokenizer changes it.
    """
    return hash_json([tokenizer.backend_tokenizer.get_vocab(), dict(tokenizer(*TOKENIZER_PROBE))])
