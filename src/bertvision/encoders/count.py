"""How many weights a method trains on a BERT of any size; nothing is allocated and nothing loaded."""

from __future__ import annotations

import torch
import transformers

from bertvision.encoders.methods import prepare, read_method

HEAD_WIDTH = 64
"""Of an attention head in every BERT."""


def count_method(method: str, layers: int, width: int) -> int:
    """What is trained beside the last linear layer; the hidden layer of ``head=tanh`` (H^2 + H) is counted in."""
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // HEAD_WIDTH),
        intermediate_size=4 * width,
    )
    with torch.device("meta"):
        model = transformers.BertModel(config)
        prepare(model, method, needs_pooler=False)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    tanh = read_method(method).options.get("head") == "tanh"
    return int(trained) + (width * width + width if tanh else 0)
