"""States in splits, and a split as a sequence of shards, wherever these come from: a disk, or an encoder just now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertvision.core.records import LayerBatch, Shape, Window, WindowTable
from bertvision.store.batching import read_batches
from bertvision.store.shard_file import Shard, layer_batch, stored_windows


def window_table(windows: Sequence[Window]) -> WindowTable:
    """What decoding needs of a split's windows; targets as shards hold them, rounded to f32."""
    return WindowTable(
        example=np.array([window.example for window in windows], np.int64),
        cls=np.array([window.cls for window in windows], np.int64),
        offsets=[window.offsets for window in windows],
        targets=np.array([window.target for window in windows], np.float32).astype(np.float64),
        input_ids=[window.input_ids for window in windows],
    )


class States(ABC):
    """All layers' states of a task's splits; the manifest says whose they are and what they are made of."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self.shape = Shape(**manifest["shape"])
        self.tables: dict[str, WindowTable] = {}

    @property
    def id(self) -> str:
        """Short name of the content: equal for equal fingerprints."""
        return str(self.manifest["id"])

    @property
    def layers(self) -> tuple[int, ...]:
        """Which of the encoder's states there are."""
        return tuple(self.manifest["layers"])

    @property
    def tokens(self) -> str:
        """Which tokens of a text there are; stores from before there was a choice hold all."""
        return str(self.manifest.get("tokens", "all"))

    @abstractmethod
    def __getitem__(self, split: str) -> ShardedSplit: ...


class ShardedSplit(ABC):
    """One split; how its shards are dealt out is the same for shards on disk and shards just computed."""

    def __init__(self, store: States, name: str, sizes: Sequence[int]) -> None:
        self.store = store
        self.name = name
        self.shape = store.shape
        self.sizes = tuple(sizes)  # windows per shard

    @abstractmethod
    def shard(self, number: int) -> Shard: ...

    def __len__(self) -> int:
        return sum(self.sizes)

    def shards(self) -> Iterator[Shard]:
        """Shards in planned order, one in memory at a time."""
        return (self.shard(number) for number in range(len(self.sizes)))

    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]:
        """Batches of near-equal length; with a seed shards, batches and their members are shuffled."""
        order = np.arange(len(self.sizes)) if seed is None else np.random.default_rng(seed).permutation(len(self.sizes))
        for number in order.tolist():
            if not self.sizes[number]:
                continue
            shard = self.shard(number)
            rows = self.shown_rows(number)
            lengths = shard["lengths"].numpy().astype(np.int64)[rows]
            for chosen in read_batches(lengths, batch, np.random.default_rng([seed or 0, number])):
                yield layer_batch(shard, rows[chosen], self.shape.kind)

    def shown_rows(self, number: int) -> NDArray[np.int64]:
        """Which windows of a shard are read, by their row in it."""
        return np.arange(self.sizes[number])

    def batch_count(self, batch: int) -> int:
        """How many batches :meth:`batches` gives."""
        return sum(-(-size // batch) for size in self.sizes)

    def table(self) -> WindowTable:
        """What decoding needs, in window order; made once."""
        if self.name not in self.store.tables:
            self.store.tables[self.name] = self.read_table()
        return self.store.tables[self.name]

    def read_table(self) -> WindowTable:
        by_number: dict[int, Window] = {}
        for shard in self.shards():
            by_number.update(stored_windows(shard))
        return window_table([by_number[number] for number in range(len(self))])

    def native_logits(self) -> list[np.ndarray] | None:
        """The encoder's own outputs in window order, if it was tuned with a head."""
        by_number: dict[int, np.ndarray] = {}
        for shard in self.shards():
            if "logits" not in shard:
                return None
            by_number.update(self.native_rows(shard))
        return [by_number[number] for number in range(len(self))]

    def native_rows(self, shard: Shard) -> dict[int, np.ndarray]:
        """The encoder's own outputs of a shard by window: (tokens, 2) or (outputs,); none if it has no head."""
        if "logits" not in shard:
            return {}
        spans = self.shape.kind == "span"
        rows = shard["logits"].to(torch.float32, copy=True).split(shard["lengths"].tolist() if spans else 1)
        numbers = shard["windows"].tolist()
        return {number: (row if spans else row[0]).numpy() for number, row in zip(numbers, rows, strict=True)}


class Subset(States):
    """The same states with fewer examples in ``train``; inner and dev are whole."""

    def __init__(self, states: States, examples: Collection[int]) -> None:
        super().__init__(states.manifest)
        self.states = states
        self.train = SubsetSplit(states["train"], examples)

    def __getitem__(self, split: str) -> ShardedSplit:
        return self.train if split == "train" else self.states[split]


class SubsetSplit(ShardedSplit):
    """The windows of some examples of a split, dealt out like all of them."""

    def __init__(self, whole: ShardedSplit, examples: Collection[int]) -> None:
        chosen = np.array(sorted(examples), np.int64)
        self.whole = whole
        # Only the examples' numbers are touched, so that no state is read for this.
        self.kept = [np.flatnonzero(np.isin(shard["examples"].numpy(), chosen)) for shard in whole.shards()]
        super().__init__(whole.store, whole.name, [len(kept) for kept in self.kept])

    def shard(self, number: int) -> Shard:
        return self.whole.shard(number)

    def shown_rows(self, number: int) -> NDArray[np.int64]:
        return self.kept[number]
