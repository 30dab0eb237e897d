"""Parameters of a head for any shape, and their share of a BERT of that shape."""

from __future__ import annotations

import torch

from bertvision.heads.base import HEADS, build_head
from bertvision.records import Shape

VOCABULARY, POSITIONS, TYPES = 30_522, 512, 2


def count_head(spec: str, shape: Shape) -> dict[str, object]:
    """What ``bertvision heads`` tells of a head; built without memory for its weights."""
    with torch.device("meta"):
        head = build_head(spec, shape)
    body = HEADS[head.spec.partition(":")[0]]
    return {
        "spec": head.spec,
        "name": head.spec.partition(":")[0],
        "kind": "pointwise" if body.pointwise else "sequence",
        "parameters": head.parameters_count,
        "percent": 100 * head.parameters_count / bert_parameters(shape.layers - 1, shape.width),
        "source": body.source,
    }


def bert_parameters(layers: int, width: int) -> int:
    """Parameters of an uncased BERT: embeddings with norm, layers (12 H^2 + 13 H each), pooler."""
    embeddings = (VOCABULARY + POSITIONS + TYPES + 2) * width
    return embeddings + layers * (12 * width**2 + 13 * width) + width**2 + width
