"""Windows of random tokens, for measuring what they cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.records import Window


def random_windows(lengths: Sequence[int], draw: np.random.Generator) -> list[Window]:
    """One span window of each length."""
    return [
        Window(
            i,
            draw.integers(1000, 20000, length).astype(np.int32),
            np.zeros(length, np.uint8),
            np.zeros((length, 2), np.int32),
            0,
            (3.0, 5.0),
        )
        for i, length in enumerate(lengths)
    ]
