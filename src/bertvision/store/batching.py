"""Assign windows to batches and batches to shards, as a pure function of lengths and settings.

Windows are shuffled by seed, sorted by length within pools of 4,096, split into batches under a token budget, and
the shuffled batches fill the shards. Resumed, repaired and distributed extractions therefore make the same shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

POOL = 4096

Batch = NDArray[np.int64]


def plan_batches(lengths: Sequence[int], batch_tokens: int, seed: int) -> list[Batch]:
    """Batches of window numbers with similar lengths, at most ``batch_tokens`` tokens with padding."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(lengths))
    sizes = np.asarray(lengths, np.int64)
    batches: list[Batch] = []
    for first in range(0, len(order), POOL):
        pool = order[first : first + POOL]
        batches.extend(length_batches(pool, sizes, batch_tokens))
    return [batches[i] for i in random.permutation(len(batches))]


def length_batches(pool: Batch, sizes: NDArray[np.int64], batch_tokens: int) -> Iterator[Batch]:
    """Split a pool, sorted by length, under a token budget; the last window of a batch sets its padded length."""
    sorted_pool = pool[np.argsort(sizes[pool], kind="stable")]
    start = 0
    for end in range(1, len(sorted_pool) + 1):
        full = end == len(sorted_pool) or (end + 1 - start) * sizes[sorted_pool[end]] > batch_tokens
        if full:
            yield sorted_pool[start:end]
            start = end


def plan_shards(
    batches: Sequence[Batch], lengths: Sequence[int], bytes_per_token: int, shard_mb: int
) -> list[list[int]]:
    """Batch numbers per shard: as many whole batches as fit, at least one."""
    limit = shard_mb * 1_000_000
    shards: list[list[int]] = [[]]
    used = 0
    for number, batch in enumerate(batches):
        size = bytes_per_token * int(sum(lengths[window] for window in batch))
        if shards[-1] and used + size > limit:
            shards.append([])
            used = 0
        shards[-1].append(number)
        used += size
    return [shard for shard in shards if shard]


def read_batches(lengths: NDArray[np.int64], batch: int, random: np.random.Generator) -> list[Batch]:
    """Training batches from one shard: ``batch`` windows of similar length each, shuffled.

    Lengths get up to 5 % of random noise, so that batches differ from epoch to epoch.
    """
    noisy = np.maximum(lengths, 1) * random.uniform(0.95, 1.05, len(lengths))  # windows may have no stored token
    order = np.argsort(noisy, kind="stable")
    batches = [order[start : start + batch] for start in range(0, len(order), batch)]
    return [batches[i] for i in random.permutation(len(batches))]
