"""Windows of random tokens, for measuring costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.core.records import Window

SQUAD, GLUE = (155, 0.38, 40, 384), (30, 0.55, 8, 128)
"""Lengths in tokens: median, standard deviation of the logarithm, minimum, maximum."""


def sample_lengths(distribution: tuple[int, float, int, int], count: int, random: np.random.Generator) -> list[int]:
    """``count`` log-normal lengths, clipped to the minimum and maximum."""
    median, spread, minimum, maximum = distribution
    lengths: list[int] = (
        np.clip(np.exp(random.normal(np.log(median), spread, count)), minimum, maximum).astype(int).tolist()
    )
    return lengths


def random_windows(lengths: Sequence[int], random: np.random.Generator) -> list[Window]:
    """One span window of each length."""
    return [
        Window(
            i,
            random.integers(1000, 20000, length).astype(np.int32),
            np.zeros(length, np.uint8),
            np.zeros((length, 2), np.int32),
            0,
            (3.0, 5.0),
        )
        for i, length in enumerate(lengths)
    ]
