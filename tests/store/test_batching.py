"""Batch planning: every window once, within the token budget, deterministic."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.store import batching
from bertvision.store.batching import plan_batches, plan_shards, read_batches

QUICK = settings(max_examples=100, deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(1, 400), max_size=120)


def windows_in(batches: list[batching.Batch]) -> list[int]:
    return sorted(int(window) for batch in batches for window in batch)


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_batches_contain_every_window_once_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    batches = plan_batches(lengths, budget, seed)
    assert windows_in(batches) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[window] for window in batch)
        assert padded <= budget or len(batch) == 1


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_batches_are_full_and_group_similar_lengths(lengths: list[int], budget: int, seed: int) -> None:
    """Sorted by length, batches do not overlap, and a batch has no room for the first window of the next."""
    batches = plan_batches(lengths, budget, seed)
    sizes = sorted((sorted(lengths[w] for w in batch) for batch in batches), key=lambda s: (s[0], s[-1], -len(s)))
    for shorter, longer in itertools.pairwise(sizes):
        assert shorter[-1] <= longer[0]
        assert (len(shorter) + 1) * longer[0] > budget


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_plan_batches_is_deterministic(lengths: list[int], budget: int, seed: int) -> None:
    once, again = (plan_batches(list(lengths), budget, seed) for _ in range(2))
    assert [batch.tolist() for batch in once] == [batch.tolist() for batch in again]


def test_plan_batches_order_depends_on_the_seed() -> None:
    lengths = [5 + i % 7 for i in range(200)]
    plans = {tuple(map(tuple, plan_batches(lengths, 64, seed))) for seed in range(4)}
    assert len(plans) == 4


def test_plan_batches_ignores_numpys_global_random_state() -> None:
    np.random.seed(1)
    first = plan_batches([3, 9, 4, 4, 8, 1], 12, 0)
    np.random.seed(2)
    np.random.random(5)
    second = plan_batches([3, 9, 4, 4, 8, 1], 12, 0)
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


def test_batches_do_not_cross_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a batch come from the same pool of the shuffled order."""
    monkeypatch.setattr(batching, "POOL", 8)
    lengths = list(range(1, 65))
    order = np.random.default_rng(3).permutation(64).tolist()
    for batch in plan_batches(lengths, 10_000, 3):
        assert len({order.index(window) // 8 for window in batch.tolist()}) == 1


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(1, 3000), st.integers(1, 3))
def test_shards_contain_whole_batches_within_the_size_limit(
    lengths: list[int], budget: int, per_token: int, mb: int
) -> None:
    batches = plan_batches(lengths, budget, 0)
    shards = plan_shards(batches, lengths, per_token, mb)
    assert [number for shard in shards for number in shard] == list(range(len(batches)))
    sizes = [[per_token * sum(lengths[w] for w in batches[number]) for number in shard] for shard in shards]
    for size in sizes:
        assert len(size) == 1 or sum(size) <= mb * 1_000_000
    for shard, following in itertools.pairwise(sizes):
        assert sum(shard) + following[0] > mb * 1_000_000  # the next batch would not have fitted


def test_batch_larger_than_a_shard_gets_its_own_shard() -> None:
    batches = [np.array([0]), np.array([1]), np.array([2])]
    assert plan_shards(batches, [10, 10, 10], bytes_per_token=200_000, shard_mb=1) == [[0], [1], [2]]
    assert plan_shards([], [], 1, 1) == []


@QUICK
@given(st.lists(st.integers(1, 400), min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 9))
def test_read_batches_contain_every_window_once(lengths: list[int], batch: int, seed: int) -> None:
    batches = read_batches(np.array(lengths), batch, np.random.default_rng(seed))
    assert windows_in(batches) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // batch)
    assert sorted(len(batch_windows) for batch_windows in batches)[1:] == [batch] * (len(batches) - 1)
    again = read_batches(np.array(lengths), batch, np.random.default_rng(seed))
    assert [batch_windows.tolist() for batch_windows in batches] == [batch_windows.tolist() for batch_windows in again]


def test_read_batches_differ_between_epochs_and_group_similar_lengths() -> None:
    lengths = np.arange(100, 400)
    epochs = [read_batches(lengths, 16, np.random.default_rng([0, epoch])) for epoch in (1, 2)]
    first, second = ({frozenset(batch.tolist()) for batch in batches} for batches in epochs)
    assert len(first & second) < len(first) / 2
    for batch in epochs[0]:
        assert lengths[batch].max() <= 1.25 * lengths[batch].min()
