"""Facts about heads for a given shape: parameter counts, compatibility with a task, shapes of intermediate results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.core.summaries import TOGETHER
from bertvision.heads.base import HEADS, build_head, canonical_spec
from bertvision.heads.quick import control_heads, quick_heads
from bertvision.heads.readings import check_head_tokens

VOCABULARY, POSITIONS, TYPES = 30_522, 512, 2

BATCH = 9973
"""Batch size of the trace: differs from all other sizes and so identifies the batch dimension."""

NO_VARIANT = (
    "--heads all has no head for texts that are encoded apart; use quick, or e.g. ridge:read=difference+product"
)

REARRANGED = (Tensor.transpose, Tensor.permute, Tensor.unflatten, Tensor.squeeze, F.pad)
"""Operations that only rearrange their input; their outputs are not listed."""


def head_info(spec: str, shape: Shape) -> dict[str, object]:
    """The entry of a head in ``bertvision heads``, built on the meta device."""
    with torch.device("meta"):
        head = build_head(spec, shape)
    module_class = HEADS[head.spec.partition(":")[0]]
    return {
        "spec": head.spec,
        "name": head.spec.partition(":")[0],
        "kind": "pointwise" if module_class.pointwise else "sequence",
        "parameters": head.num_parameters,
        "percent": 100 * head.num_parameters / bert_parameters(shape.layers - 1, shape.width),
        "source": module_class.source,
    }


def all_variants() -> list[str]:
    """The specs of all variants of all heads, in canonical form."""
    specs = []
    for name in HEADS:
        for variant in HEADS[name].variants:
            specs.append(canonical_spec(f"{name}:{variant}" if variant else name))
    return list(dict.fromkeys(specs))


def compatible_heads(shape: Shape, pooled: bool = True, tokens: str = "all", pairs: str = TOGETHER) -> list[str]:
    """The variants that :func:`fits` accepts; an error if there is none."""
    specs = [spec for spec in all_variants() if fits(spec, shape, pooled, tokens, pairs)]
    if not specs:
        raise BadInput(NO_VARIANT)
    return specs


HEAD_WORDS = ("control", "quick", "all")
"""Words that stand for several heads: the controls, the default heads of a run, and every compatible variant."""


def expand_head_words(
    names: Sequence[str],
    shape: Shape,
    pooled: bool = True,
    tokens: str = "all",
    tuned: bool = True,
    pairs: str = TOGETHER,
) -> list[str]:
    """Canonical specs without repetitions; the heads of a word are those that can be trained on the states."""
    specs: list[str] = []
    apart = pairs != TOGETHER
    for name in names:
        if name == "all":
            specs += compatible_heads(shape, pooled, tokens, pairs)
        elif name in HEAD_WORDS:
            listed = control_heads(shape.kind, apart) if name == "control" else quick_heads(shape.kind, tuned, apart)
            specs += [spec for spec in listed if fits(spec, shape, pooled, tokens, pairs)]
        else:
            specs.append(canonical_spec(name))
    return list(dict.fromkeys(specs))


def fits(spec: str, shape: Shape, pooled: bool = True, tokens: str = "all", pairs: str = TOGETHER) -> bool:
    """Whether a head can be built for a shape and trained on states of these tokens, with or without pooled CLS.

    ``pairs`` says how pairs of texts were encoded.
    """
    try:
        with torch.device("meta"):
            head = build_head(spec, shape)
        check_head_tokens(head, tokens, pairs)
        return pooled or not head.needs_pooled
    except BadInput:
        return False


def bert_parameters(layers: int, width: int) -> int:
    """Number of parameters of an uncased BERT: embeddings with norm, layers (12 H^2 + 13 H each), pooler."""
    embeddings = (VOCABULARY + POSITIONS + TYPES + 2) * width
    return embeddings + layers * (12 * width**2 + 13 * width) + width**2 + width


def head_shapes(spec: str, shape: Shape) -> list[tuple[int, ...]]:
    """Shapes of one window's intermediate results, from (tokens, layers, width) to the outputs, without repetitions."""
    with torch.device("meta"):
        head = build_head(spec, shape).requires_grad_(False).eval()
        hidden = torch.empty(BATCH, shape.tokens, shape.layers, shape.width, requires_grad=True)
        pooled = torch.empty(BATCH, shape.width, requires_grad=True)
        mask = torch.ones(BATCH, shape.tokens, dtype=torch.bool)
        apart = torch.empty(BATCH, 2, shape.layers, shape.width, requires_grad=True)
    trace = _ShapeTrace(head.module)
    trace.record(hidden)
    with trace:
        head(hidden, mask, pooled, apart)
    return trace.shapes


class _ShapeTrace(TorchFunctionMode):
    """Records the output shapes of a module's own operations and of its submodules, but not inside submodules.

    Only the states require gradients, which excludes weights and masks.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.depth = 0
        for submodule in list(module.modules())[1:]:
            if isinstance(submodule, nn.LSTM):
                submodule.forward = _lstm_shape(submodule.hidden_size)  # type: ignore[method-assign, assignment]
            if not isinstance(submodule, nn.Sequential):
                submodule.register_forward_pre_hook(self._enter)
                submodule.register_forward_hook(self._leave)

    def record(self, result: object) -> None:
        for tensor in result if isinstance(result, tuple) else (result,):
            if not (isinstance(tensor, Tensor) and tensor.requires_grad and tensor.ndim > 1 and len(tensor) == BATCH):
                continue
            shape = tuple(tensor.shape[1:])
            if self.shapes[-1:] != [shape]:
                self.shapes.append(shape)
            if self.shapes[-2:] == self.shapes[-4:-2]:  # a repetition of two shapes, as in a loop over blocks
                del self.shapes[-2:]

    def _enter(self, module: nn.Module, inputs: object) -> None:
        self.depth += 1

    def _leave(self, module: nn.Module, inputs: object, result: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.record(result)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.depth == 0 and func not in REARRANGED:
            self.record(result)
        return result


def _lstm_shape(size: int) -> Callable[[Tensor], tuple[Tensor, None]]:
    """A forward function with the output shape of an LSTM, without its slow loop over tokens."""
    return lambda x: (x[..., :1].expand(*x.shape[:-1], size), None)
