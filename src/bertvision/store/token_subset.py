"""Selection of the tokens whose states are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.core.records import NO_OFFSET, Kind, Window

TOKENS = ("all", "context", "cls", "mean")
"""Every token; CLS and the context of a question; CLS alone; the mean over all tokens."""

SINGLE_VECTOR = ("cls", "mean")


def check_tokens(tokens: str, kind: Kind) -> None:
    """Raise an error for a choice that does not suit a task of this kind."""
    if tokens not in TOKENS:
        raise BadInput(f"extract.tokens is {tokens!r}; expected one of {', '.join(TOKENS)}")
    if kind == "span" and tokens in SINGLE_VECTOR:
        raise BadInput(
            f"--tokens {tokens} stores one vector per text, but answers are spans of tokens; use all or context"
        )
    if kind != "span" and tokens == "context":
        raise BadInput(
            "--tokens context is for questions with a context (spans); for labels and values use all, cls or mean"
        )


def kept_positions(window: Window, tokens: str) -> NDArray[np.int64]:
    """Positions of the stored tokens; the mean takes the position of CLS."""
    if tokens == "all":
        return np.arange(len(window))
    if tokens == "context":
        kept = window.offsets[:, 0] != NO_OFFSET
        kept[window.cls] = True
        return np.flatnonzero(kept)
    return np.array([window.cls])


def reduce_window(window: Window, tokens: str, kind: Kind) -> Window:
    """A window with its stored tokens only; the positions of CLS, start and end are adjusted."""
    if tokens == "all":
        return window
    kept = kept_positions(window, tokens)
    new_positions = {old: float(new) for new, old in enumerate(kept.tolist())}
    return replace(
        window,
        input_ids=window.input_ids[kept],
        token_types=window.token_types[kept],
        offsets=window.offsets[kept],
        cls=int(new_positions[window.cls]),
        target=tuple(new_positions[int(old)] for old in window.target) if kind == "span" else window.target,
    )


def kept_lengths(windows: Sequence[Window], tokens: str) -> list[int]:
    """The number of stored tokens of each window."""
    return [len(kept_positions(window, tokens)) for window in windows]
