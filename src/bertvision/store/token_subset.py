"""Which tokens of a window are stored, and what a window looks like with only those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.core.records import NO_OFFSET, Kind, Window

TOKENS = ("all", "context", "cls", "mean")
"""Every token; CLS and what an answer may come from; CLS alone; one vector, the mean over all tokens."""

SINGLE_VECTOR = ("cls", "mean")


def check_tokens(tokens: str, kind: Kind) -> None:
    """Refuse a choice that a task of this kind can do nothing with."""
    if tokens not in TOKENS:
        raise BadInput(f"extract.tokens is {tokens!r}; expected one of {', '.join(TOKENS)}")
    if kind == "span" and tokens in SINGLE_VECTOR:
        raise BadInput(
            f"--tokens {tokens} keeps one token a text, and an answer may be any of them; take all or context"
        )
    if kind != "span" and tokens == "context":
        raise BadInput(
            "--tokens context is for questions with a context (spans); for labels and values take all, cls or mean"
        )


def kept_positions(window: Window, tokens: str) -> NDArray[np.int64]:
    """Positions of the tokens that are stored; the mean lies where CLS was."""
    if tokens == "all":
        return np.arange(len(window))
    if tokens == "context":
        kept = window.offsets[:, 0] != NO_OFFSET
        kept[window.cls] = True
        return np.flatnonzero(kept)
    return np.array([window.cls])


def reduce_window(window: Window, tokens: str, kind: Kind) -> Window:
    """A window with its stored tokens only; positions (CLS, start and end) count among these."""
    if tokens == "all":
        return window
    kept = kept_positions(window, tokens)
    moved = {old: float(new) for new, old in enumerate(kept.tolist())}
    return replace(
        window,
        input_ids=window.input_ids[kept],
        token_types=window.token_types[kept],
        offsets=window.offsets[kept],
        cls=int(moved[window.cls]),
        target=tuple(moved[int(place)] for place in window.target) if kind == "span" else window.target,
    )


def kept_lengths(windows: Sequence[Window], tokens: str) -> list[int]:
    """Stored tokens of each window."""
    return [len(kept_positions(window, tokens)) for window in windows]
