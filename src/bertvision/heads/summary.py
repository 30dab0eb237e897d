"""Parameters of a head for any shape, and their share of a BERT of that shape."""

from __future__ import annotations

import torch

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, build_head, canonical_spec
from bertvision.heads.served import check_served

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


def every_variant() -> list[str]:
    """Every variant of every head, in canonical form."""
    specs = (f"{name}:{variant}" if variant else name for name in HEADS for variant in HEADS[name].variants)
    return list(dict.fromkeys(canonical_spec(spec) for spec in specs))


def fitting_heads(shape: Shape, pooled: bool = True, tokens: str = "all") -> list[str]:
    """The variants that can be built for a shape: the last four of three states cannot, nor labels' heads for spans.

    Without ``pooled`` none that needs the pooled CLS, and of one vector a text (``tokens``) none that reads others.
    """
    return [spec for spec in every_variant() if fits(spec, shape, pooled, tokens)]


def fits(spec: str, shape: Shape, pooled: bool = True, tokens: str = "all") -> bool:
    """Whether a head can be built for a shape and fed with these tokens, where there is or is not a pooled CLS."""
    try:
        with torch.device("meta"):
            head = build_head(spec, shape)
        check_served(head, tokens)
        return pooled or not head.needs_pooled
    except BadInput:
        return False


def bert_parameters(layers: int, width: int) -> int:
    """Parameters of an uncased BERT: embeddings with norm, layers (12 H^2 + 13 H each), pooler."""
    embeddings = (VOCABULARY + POSITIONS + TYPES + 2) * width
    return embeddings + layers * (12 * width**2 + 13 * width) + width**2 + width
