"""Readings: the vectors that represent a text, which pointwise heads get instead of its tokens.

A reading names summaries of the tokens (``first_last``: CLS and last token), is ``weighted``, or compares the two texts
of a pair, each encoded by itself (``difference``). Joined by +, each vector adds the selected layers once more.
:class:`~bertvision.heads.base.Head` calls the functions of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.summaries import APART, SUMMARIES, TOGETHER, summarise, summary_names

if TYPE_CHECKING:
    from bertvision.heads.base import Head, HeadInput, HeadModule

READINGS: Mapping[str, tuple[str, ...]] = {
    "cls": ("cls",),
    "mean": ("mean",),
    "max": ("max",),
    "first_last": ("cls", "last"),
}
"""Readings of a text and the summaries of its tokens that they consist of. Readings are joined by +."""

WEIGHTED = "weighted"
"""Reading that averages the tokens of each layer with weights that the head learns."""


PAIR_READINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": lambda u, v: u,
    "second": lambda u, v: v,
    "difference": lambda u, v: (u - v).abs(),
    "product": lambda u, v: u * v,
}
"""Readings of a pair of texts, each encoded by itself: u and v are the means of their tokens, each of length 1 in every
layer."""

PAIR_CHOICES = ("difference+product", "mean+difference+product")
"""Values of ``read`` that a search tries beside those of all states, if texts of pairs were encoded in both ways."""

ALL_READINGS = (*READINGS, WEIGHTED, *PAIR_READINGS)


def sort_readings(read: str) -> str:
    """Joined readings in the order of their declaration, so that a head has one spec; other values unchanged."""
    parts = read.split("+")
    return "+".join(name for name in ALL_READINGS if name in parts) if set(parts) <= set(ALL_READINGS) else read


def count_vectors(readings: Sequence[str]) -> int:
    """Number of vectors per text and layer that readings consist of."""
    return sum(len(READINGS.get(reading, (reading,))) for reading in readings)


def check_read_options(head: Head, module_class: type[HeadModule]) -> None:
    """Reject ``read=`` and ``pooled=`` that do not suit the module or the task."""
    default = module_class.shared_options.get("read", "all")
    if head.read not in ("pooled", default) and not set(head.readings) <= {*ALL_READINGS}:
        names = f"pooled, or some of {', '.join(ALL_READINGS)}, joined by +"
        raise BadInput(f"head {head.spec}: read={head.read}, expected {names}")
    if not module_class.pointwise and head.read not in ("cls", "mean", default):
        raise BadInput(f"head {head.spec}: read={head.read}, expected one of cls, mean")
    if head.shape.kind == "span" and not module_class.supports_spans:
        raise BadInput(f"head {head.spec} is for labels and values; for spans use another, e.g. compress:size=64")
    if head.shape.kind == "span" and (head.read != default or head.with_pooled):
        raise BadInput(f"head {head.spec}: read= and pooled= are for labels and values; spans read every token")
    if head.read == "pooled" and head.with_pooled:
        raise BadInput(f"head {head.spec}: read=pooled already reads the pooled CLS; remove pooled=")


def read_vectors(head: Head, batch: HeadInput) -> list[Tensor]:
    """The vectors of each text that a head reads, of the selected layers: each (batch, layers, width)."""
    vectors = []
    for reading in head.readings:
        if reading == WEIGHTED:
            vectors.append(weighted_mean(head.select_layers(batch.hidden), batch.mask, head.token_query))
        elif reading in PAIR_READINGS:
            vectors.append(PAIR_READINGS[reading](*_texts_apart(head, batch)))
        else:
            vectors.extend(_read_summary(head, batch, name) for name in READINGS[reading])
    return vectors


def _read_summary(head: Head, batch: HeadInput, name: str) -> Tensor:
    """A summary of each text, of the selected layers: (batch, layers, width)."""
    if batch.summaries:
        return head.select_layers(batch.summary(name))
    if name == "cls":
        return head.select_layers(batch.first)
    return summarise(head.select_layers(batch.hidden), batch.mask, name)


def _texts_apart(head: Head, batch: HeadInput) -> tuple[Tensor, Tensor]:
    """The two texts of each pair, of length 1 in each of the selected layers: both (batch, layers, width)."""
    if batch.apart is None:
        raise BadInput(f"head {head.spec} reads each text of a pair by itself, but these states hold none")
    first, second = F.normalize(head.select_layers(batch.apart), dim=-1).unbind(1)
    return first, second


def weighted_mean(hidden: Tensor, mask: Tensor, query: Tensor) -> Tensor:
    """Mean over tokens, weighted by the softmax of q h in each layer: to (batch, layers, width)."""
    scores = torch.einsum("btlw,lw->btl", hidden, query)  # (batch, tokens, layers)
    weights = scores.masked_fill(~mask[..., None], float("-inf")).softmax(1)
    return torch.einsum("btl,btlw->blw", weights, hidden)


def required_summaries(head: Head) -> tuple[str, ...] | None:
    """The summaries of a text that a head reads, in the order of SUMMARIES; None if it needs the tokens themselves."""
    if head.shape.kind == "span" or not head.module.pointwise or WEIGHTED in head.readings:
        return None
    names = {name for reading in head.readings if reading in READINGS for name in READINGS[reading]}
    return tuple(name for name in SUMMARIES if name in names)


def reads_apart(head: Head) -> bool:
    """Whether a head reads each text of a pair by itself."""
    return not set(head.readings).isdisjoint(PAIR_READINGS)


def reads_together(head: Head) -> bool:
    """Whether a head reads a text or a pair of texts as one input."""
    return head.with_pooled or not set(head.readings) <= set(PAIR_READINGS)


def check_head_tokens(head: Head, tokens: str, pairs: str = TOGETHER) -> None:
    """Reject a head that reads something of a text, or of a pair of texts, that was not stored."""
    both = "extract both with: bertvision extract TASK ... --pairs both --to STORE"
    if pairs == TOGETHER and reads_apart(head):
        raise BadInput(
            f"head {head.spec} reads each text of a pair by itself, but these states are of whole inputs "
            f"(--pairs {pairs}); {both}"
        )
    if pairs == APART:
        if reads_together(head):
            raise BadInput(
                f"head {head.spec} reads both texts of a pair as one input, but these states are of each text by "
                f"itself (--pairs {pairs}): read=difference+product reads them, or {both}"
            )
        return
    stored, required = summary_names(tokens), required_summaries(head)
    if not stored or (required is not None and set(required) <= set(stored)):
        return
    other = "all" if required is None else "+".join(required)
    reads = "every token" if required is None else f"{other} of each text"
    raise BadInput(
        f"head {head.spec} reads {reads}, but these states are {tokens} of each text (--tokens {tokens}); extract "
        f"others with: bertvision extract TASK ... --tokens {other} --to STORE"
    )
