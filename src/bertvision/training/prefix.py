"""Tuning the upper layers from stored states of the lower, frozen ones; not a step itself.

Frozen layers give the same state at every epoch, so it is read instead of computed: a step costs the
trained layers, forward and back, and nothing of what lies below. Up to the rounding of the store it is
what ``freeze:k=K`` does with the whole encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from bertvision.core.config import TuneConfig
from bertvision.core.errors import BadInput
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.tail import Feed
from bertvision.store.batching import reading_batches
from bertvision.store.codec import decoded_layer
from bertvision.store.shard_file import Shard
from bertvision.store.states import ShardedSplit
from bertvision.training.tuner import Tuning


@dataclass(frozen=True)
class Begun:
    """A window that has come as far as state k."""

    window: Window
    state: Tensor  # (tokens, width)

    def __len__(self) -> int:
        return len(self.window)


@dataclass
class PrefixTuning(Tuning):
    """Tuning within :func:`started_at`: the model is its upper layers, fed with stored states."""

    below: int = 0
    feed: Feed = field(default_factory=Feed)

    def __post_init__(self) -> None:
        if min(self.head.needed_layers) <= self.below:
            raise BadInput(f"head {self.head.spec} looks at states that are frozen; tune with one on the last layer")
        super().__post_init__()

    @property
    def method(self) -> str:
        """All of the layers that are left."""
        return "freeze:k=0"

    def states_of(self, batch: Sequence[Begun]) -> tuple[Sequence[Window], TokenBatch, States]:
        windows = [one.window for one in batch]
        tokens = collate(windows, self.encoder.tokenizer.pad_token_id, self.device)
        states = nn.utils.rnn.pad_sequence([one.state.float() for one in batch], batch_first=True)
        self.feed.states = states.to(self.device)  # (batch, tokens, width)
        needed = [layer - self.below for layer in self.head.needed_layers]
        return windows, tokens, hidden_states(self.model, tokens, needed, self.config.bf16)


def begun_batches(
    split: ShardedSplit, windows: Sequence[Window], place: int, config: TuneConfig, first: int, steps: int
) -> Iterator[list[Begun]]:
    """The batches of steps ``first`` to ``steps``: shards, batches and members shuffled anew every epoch.

    ``place`` is where state k lies among the stored ones. Shards that only hold steps before ``first``
    are not read. A store of one shard deals the very batches that ordinary tuning deals.
    """
    step, epoch = 0, 0
    while step < steps:
        for number in np.random.default_rng([config.seed, epoch]).permutation(len(split.sizes)).tolist():
            count = -(-split.sizes[number] // config.batch)
            if step + count > first and step < steps:
                # To numpy a last 0 is nothing: the first shard draws what ordinary tuning draws.
                random = np.random.default_rng([config.seed, epoch, number])
                yield from _shard_batches(
                    split.shard(number), windows, place, config.batch, random, max(0, first - step), steps - step
                )
            step += count
        epoch += 1


def _shard_batches(
    shard: Shard, windows: Sequence[Window], place: int, batch: int, random: Any, begin: int, end: int
) -> Iterator[list[Begun]]:
    lengths = shard["lengths"].numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = shard["windows"].numpy()
    by_number = np.argsort(numbers)  # rows lie in the order of extraction; dealing counts as ordinary tuning does
    for chosen in reading_batches(lengths[by_number], batch, random)[begin:end]:
        yield [
            Begun(windows[numbers[row]], decoded_layer(shard, slice(int(starts[row]), int(starts[row + 1])), place))
            for row in by_number[chosen]
        ]
