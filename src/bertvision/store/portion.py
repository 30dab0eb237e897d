"""States of which only some training examples are shown: what a head learns from a share of the data."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from bertvision.store.shard_file import Shard
from bertvision.store.states import ShardedSplit, States


class Portion(States):
    """The same states with fewer examples in ``train``; inner and dev are whole."""

    def __init__(self, states: States, examples: Collection[int]) -> None:
        super().__init__(states.manifest)
        self.states = states
        self.train = PortionSplit(states["train"], examples)

    def __getitem__(self, split: str) -> ShardedSplit:
        return self.train if split == "train" else self.states[split]


class PortionSplit(ShardedSplit):
    """The windows of some examples of a split, dealt out like all of them."""

    def __init__(self, whole: ShardedSplit, examples: Collection[int]) -> None:
        chosen = np.array(sorted(examples), np.int64)
        self.whole = whole
        # Only the examples' numbers are touched, so that no state is read for this.
        self.kept = [np.flatnonzero(np.isin(shard["examples"].numpy(), chosen)) for shard in whole.shards()]
        super().__init__(whole.store, whole.name, [len(kept) for kept in self.kept])

    def shard(self, number: int) -> Shard:
        return self.whole.shard(number)

    def shown(self, number: int) -> NDArray[np.int64]:
        return self.kept[number]
