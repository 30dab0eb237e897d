"""The batch plan: every window once, within the budget, and the same for the same input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.store import batching as plan
from bertvision.store.batching import plan_batches, plan_shards, read_batches

QUICK = settings(max_examples=100, deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(1, 400), max_size=120)


def members(batches: list[plan.Batch]) -> list[int]:
    return sorted(int(window) for batch in batches for window in batch)


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_every_window_once_and_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    batches = plan_batches(lengths, budget, seed)
    assert members(batches) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[window] for window in batch)
        assert padded <= budget or len(batch) == 1


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_batches_are_filled_and_hold_neighbours_in_length(lengths: list[int], budget: int, seed: int) -> None:
    """In order of length batches do not overlap, and the first window of the next never fits into one."""
    batches = plan_batches(lengths, budget, seed)
    sizes = sorted((sorted(lengths[w] for w in batch) for batch in batches), key=lambda s: (s[0], s[-1], -len(s)))
    for one, two in itertools.pairwise(sizes):
        assert one[-1] <= two[0]
        assert (len(one) + 1) * two[0] > budget


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(0, 5))
def test_the_plan_is_a_function_of_its_input(lengths: list[int], budget: int, seed: int) -> None:
    once, again = (plan_batches(list(lengths), budget, seed) for _ in range(2))
    assert [batch.tolist() for batch in once] == [batch.tolist() for batch in again]


def test_another_seed_is_another_order() -> None:
    lengths = [5 + i % 7 for i in range(200)]
    plans = {tuple(map(tuple, plan_batches(lengths, 64, seed))) for seed in range(4)}
    assert len(plans) == 4


def test_the_random_state_of_the_caller_does_not_matter() -> None:
    np.random.seed(1)
    one = plan_batches([3, 9, 4, 4, 8, 1], 12, 0)
    np.random.seed(2)
    np.random.random(5)
    two = plan_batches([3, 9, 4, 4, 8, 1], 12, 0)
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in two]


def test_pools_bound_the_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch never mixes pools: windows of one batch are near each other in the shuffled order."""
    monkeypatch.setattr(plan, "POOL", 8)
    lengths = list(range(1, 65))
    order = np.random.default_rng(3).permutation(64).tolist()
    for batch in plan_batches(lengths, 10_000, 3):
        assert len({order.index(window) // 8 for window in batch.tolist()}) == 1


@QUICK
@given(LENGTHS, st.integers(1, 2000), st.integers(1, 3000), st.integers(1, 3))
def test_shards_are_whole_batches_within_the_limit(lengths: list[int], budget: int, per_token: int, mb: int) -> None:
    batches = plan_batches(lengths, budget, 0)
    shards = plan_shards(batches, lengths, per_token, mb)
    assert [number for shard in shards for number in shard] == list(range(len(batches)))
    sizes = [[per_token * sum(lengths[w] for w in batches[number]) for number in shard] for shard in shards]
    for size in sizes:
        assert len(size) == 1 or sum(size) <= mb * 1_000_000
    for one, two in itertools.pairwise(sizes):
        assert sum(one) + two[0] > mb * 1_000_000  # no shard is left half empty


def test_a_batch_larger_than_a_shard_is_a_shard() -> None:
    batches = [np.array([0]), np.array([1]), np.array([2])]
    assert plan_shards(batches, [10, 10, 10], bytes_per_token=200_000, shard_mb=1) == [[0], [1], [2]]
    assert plan_shards([], [], 1, 1) == []


@QUICK
@given(st.lists(st.integers(1, 400), min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 9))
def test_reading_covers_all_once(lengths: list[int], batch: int, seed: int) -> None:
    batches = read_batches(np.array(lengths), batch, np.random.default_rng(seed))
    assert members(batches) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // batch)
    assert sorted(len(one) for one in batches)[1:] == [batch] * (len(batches) - 1)
    again = read_batches(np.array(lengths), batch, np.random.default_rng(seed))
    assert [one.tolist() for one in batches] == [one.tolist() for one in again]


def test_reading_batches_differ_from_epoch_to_epoch_and_hold_near_equal_lengths() -> None:
    lengths = np.arange(100, 400)
    epochs = [read_batches(lengths, 16, np.random.default_rng([0, epoch])) for epoch in (1, 2)]
    one, two = ({frozenset(batch.tolist()) for batch in batches} for batches in epochs)
    assert len(one & two) < len(one) / 2
    for batch in epochs[0]:
        assert lengths[batch].max() <= 1.25 * lengths[batch].min()
