"""Selection of what is stored of a text: the states of all its tokens, of some, or summaries of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import NO_OFFSET, Kind, Window
from bertvision.core.summaries import NO_TOKENS, SUMMARIES, summary_names

TOKENS = ("all", "context", "cls", "mean", "cls+mean+max")
"""Usual choices: every token; CLS and the context of a question; summaries, joined by +, in the order of SUMMARIES."""


def check_tokens(tokens: str, kind: Kind) -> None:
    """Raise an error for a choice that does not exist or does not suit a task of this kind."""
    names = summary_names(tokens)
    in_order = [name for name in SUMMARIES if name in names]
    if sorted(names) == sorted(in_order) and list(names) != in_order:
        raise BadInput(f"extract.tokens is {tokens!r}, in the wrong order; expected {'+'.join(in_order)}")
    if tokens == NO_TOKENS or list(names) != in_order:
        raise BadInput(
            f"extract.tokens is {shorten(tokens)}; expected all, context, or one or more of {', '.join(SUMMARIES)} in "
            "this order, joined by +, e.g. cls+mean+max"
        )
    if kind == "span" and names:
        raise BadInput(
            f"--tokens {tokens} stores summaries of a text, but answers are spans of tokens; use all or context"
        )
    if kind != "span" and tokens == "context":
        raise BadInput(
            "--tokens context is for questions with a context (spans); for labels and values use all, or summaries "
            "such as cls+mean+max"
        )


def kept_positions(window: Window, tokens: str) -> NDArray[np.int64]:
    """Positions of the stored tokens; every summary takes the position of CLS."""
    if tokens == "all":
        return np.arange(len(window))
    if tokens == NO_TOKENS:
        return np.arange(0)
    if tokens == "context":
        kept = window.offsets[:, 0] != NO_OFFSET
        kept[window.cls] = True
        return np.flatnonzero(kept)
    return np.full(len(summary_names(tokens)), window.cls)


def reduce_window(window: Window, tokens: str, kind: Kind) -> Window:
    """A window with its stored tokens only; the positions of CLS, start and end are adjusted."""
    if tokens == "all":
        return window
    kept = kept_positions(window, tokens)
    new_positions = {old: float(new) for new, old in reversed(list(enumerate(kept.tolist())))}
    return replace(
        window,
        input_ids=window.input_ids[kept],
        token_types=window.token_types[kept],
        offsets=window.offsets[kept],
        cls=int(new_positions.get(window.cls, 0.0)),
        target=tuple(new_positions[int(old)] for old in window.target) if kind == "span" else window.target,
    )


def kept_lengths(windows: Sequence[Window], tokens: str) -> list[int]:
    """The number of stored tokens or summaries of each window."""
    names = summary_names(tokens)
    if names:
        return [len(names)] * len(windows)
    return [len(kept_positions(window, tokens)) for window in windows]
