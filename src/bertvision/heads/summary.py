"""Parameters of a head for any shape, and their share of a BERT of that shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, build_head, canonical_spec, check_served

VOCABULARY, POSITIONS, TYPES = 30_522, 512, 2

BATCH = 9973
"""Windows that are put through: a number that no other size is likely to be, so that it marks the batch."""

REARRANGED = (Tensor.transpose, Tensor.permute, Tensor.unflatten, Tensor.squeeze, F.pad)
"""Steps that only prepare the next one and are not told."""


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


def head_shapes(spec: str, shape: Shape) -> list[tuple[int, ...]]:
    """Shapes for one window, from (tokens, layers, width) to the outputs; what stays or repeats is told once."""
    with torch.device("meta"):
        head = build_head(spec, shape).requires_grad_(False).eval()
        hidden = torch.empty(BATCH, shape.tokens, shape.layers, shape.width, requires_grad=True)
        pooled = torch.empty(BATCH, shape.width, requires_grad=True)
        mask = torch.ones(BATCH, shape.tokens, dtype=torch.bool)
    watch = _Watch(head.body)
    watch.note(hidden)
    with watch:
        head(hidden, mask, pooled)
    return watch.shapes


class _Watch(TorchFunctionMode):
    """Notes what the body's own operations and its parts give, but not what goes on inside a part.

    Only the states ask for gradients, so what asks for them was made from states: weights and masks
    are left out.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.inside = 0
        for module in list(body.modules())[1:]:
            if isinstance(module, nn.LSTM):
                module.forward = _at_once(module.hidden_size)  # type: ignore[method-assign, assignment]
            if not isinstance(module, nn.Sequential):
                module.register_forward_pre_hook(self._enter)
                module.register_forward_hook(self._leave)

    def note(self, result: object) -> None:
        for found in result if isinstance(result, tuple) else (result,):
            if isinstance(found, Tensor) and found.requires_grad and found.ndim > 1 and found.shape[0] == BATCH:
                self._append(tuple(found.shape[1:]))

    def _append(self, shape: tuple[int, ...]) -> None:
        if self.shapes[-1:] != [shape]:
            self.shapes.append(shape)
        if self.shapes[-2:] == self.shapes[-4:-2]:
            del self.shapes[-2:]

    def _enter(self, module: nn.Module, inputs: object) -> None:
        self.inside += 1

    def _leave(self, module: nn.Module, inputs: object, result: object) -> None:
        self.inside -= 1
        if self.inside == 0:
            self.note(result)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.inside == 0 and func not in REARRANGED:
            self.note(result)
        return result


def _at_once(size: int) -> Callable[[Tensor], tuple[Tensor, None]]:
    """What an LSTM gives, without the walk from token to token, which takes long where nothing is computed."""
    return lambda x: (x[..., :1].expand(*x.shape[:-1], size), None)
