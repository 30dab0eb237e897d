"""Hidden states by split, and splits as sequences of shards; base classes of stored and live states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertvision.core.records import FOLDS, LayerBatch, Shape, Window, WindowTable
from bertvision.core.summaries import TOGETHER
from bertvision.store.batching import read_batches
from bertvision.store.shard_file import Shard, layer_batch, stored_windows


def window_table(windows: Sequence[Window]) -> WindowTable:
    """The window data that decoding needs; targets are rounded to f32 as in shards."""
    return WindowTable(
        example=np.array([window.example for window in windows], np.int64),
        cls=np.array([window.cls for window in windows], np.int64),
        offsets=[window.offsets for window in windows],
        targets=np.array([window.target for window in windows], np.float32).astype(np.float64),
        input_ids=[window.input_ids for window in windows],
    )


class States(ABC):
    """Hidden states of a task's splits, described by a manifest."""

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
        """The encoder states that are available."""
        return tuple(self.manifest["layers"])

    @property
    def tokens(self) -> str:
        """Which tokens' states are available (older manifests do not say: all)."""
        return str(self.manifest.get("tokens", "all"))

    @property
    def pairs(self) -> str:
        """How pairs of texts were encoded (manifests do not say it if together)."""
        return str(self.manifest.get("pairs", TOGETHER))

    def __getitem__(self, split: str) -> ShardedSplit:
        """A split by name; ``"folds"`` is train and inner as one."""
        return JoinedSplit(self, FOLDS, ("train", "inner")) if split == FOLDS else self._split(split)

    @abstractmethod
    def _split(self, name: str) -> ShardedSplit: ...


class ShardedSplit(ABC):
    """One split as a sequence of shards, which subclasses read or compute."""

    def __init__(self, store: States, name: str, sizes: Sequence[int]) -> None:
        self.store = store
        self.name = name
        self.shape = store.shape
        self.sizes = tuple(sizes)  # windows per shard

    @abstractmethod
    def shard(self, number: int) -> Shard: ...

    def __repr__(self) -> str:
        layers, width = self.shape.layers, self.shape.width
        return f"{type(self).__name__}({self.name!r}, windows={len(self)}, layers={layers}, width={width})"

    def __len__(self) -> int:
        return sum(self.sizes)

    def shards(self) -> Iterator[Shard]:
        """Shards in planned order, one in memory at a time."""
        return (self.shard(number) for number in range(len(self.sizes)))

    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]:
        """Batches of windows of similar length; a seed shuffles shards, batches and their members."""
        order = np.arange(len(self.sizes)) if seed is None else np.random.default_rng(seed).permutation(len(self.sizes))
        for number in order.tolist():
            if not self.sizes[number]:
                continue
            shard = self.shard(number)
            rows = self.selected_rows(number)
            lengths = shard["lengths"].numpy().astype(np.int64)[rows]
            for indices in read_batches(lengths, batch, np.random.default_rng([seed or 0, number])):
                yield layer_batch(shard, rows[indices], self.shape.kind, self.store.tokens)

    def selected_rows(self, number: int) -> NDArray[np.int64]:
        """Indices of the windows of a shard that belong to the split."""
        return np.arange(self.sizes[number])

    def batch_count(self, batch: int) -> int:
        """The number of batches that :meth:`batches` yields."""
        return sum(-(-size // batch) for size in self.sizes)

    def table(self) -> WindowTable:
        """The window table, in window order; cached."""
        if self.name not in self.store.tables:
            self.store.tables[self.name] = self.read_table()
        return self.store.tables[self.name]

    def read_table(self) -> WindowTable:
        by_number: dict[int, Window] = {}
        for shard in self.shards():
            by_number.update(stored_windows(shard))
        return window_table([by_number[number] for number in range(len(self))])

    def native_logits(self) -> list[np.ndarray] | None:
        """Outputs of the native head in window order; None if the encoder has none."""
        by_number: dict[int, np.ndarray] = {}
        for shard in self.shards():
            if "logits" not in shard:
                return None
            by_number.update(self.native_rows(shard))
        return [by_number[number] for number in range(len(self))]

    def native_rows(self, shard: Shard) -> dict[int, np.ndarray]:
        """Outputs of the native head by window, (tokens, 2) or (outputs,); empty if the encoder has none."""
        if "logits" not in shard:
            return {}
        spans = self.shape.kind == "span"
        rows = shard["logits"].to(torch.float32, copy=True).split(shard["lengths"].tolist() if spans else 1)
        numbers = shard["windows"].tolist()
        return {number: (row if spans else row[0]).numpy() for number, row in zip(numbers, rows, strict=True)}


class Subset(States):
    """States with only some of the examples in ``train``; inner and dev are unchanged."""

    def __init__(self, states: States, examples: Collection[int]) -> None:
        super().__init__(states.manifest)
        self.states = states
        self.train = SubsetSplit(states["train"], examples)

    def _split(self, name: str) -> ShardedSplit:
        return self.train if name == "train" else self.states[name]


class SubsetSplit(ShardedSplit):
    """The windows of some examples of a split."""

    def __init__(self, split: ShardedSplit, examples: Collection[int]) -> None:
        numbers = np.array(sorted(examples), np.int64)
        self.split = split
        # Reads only the example numbers: shards are memory-mapped.
        self.rows = [np.flatnonzero(np.isin(shard["examples"].numpy(), numbers)) for shard in split.shards()]
        super().__init__(split.store, split.name, [len(rows) for rows in self.rows])

    def shard(self, number: int) -> Shard:
        return self.split.shard(number)

    def selected_rows(self, number: int) -> NDArray[np.int64]:
        return self.rows[number]


class JoinedSplit(ShardedSplit):
    """Several splits as one: the windows and examples of the first, then those of the next."""

    def __init__(self, store: States, name: str, names: Sequence[str]) -> None:
        self.parts = [store[part] for part in names]
        super().__init__(store, name, [size for part in self.parts for size in part.sizes])

    def shard(self, number: int) -> Shard:
        first_window = first_example = 0
        for part in self.parts:
            if number < len(part.sizes):
                shard = part.shard(number)
                windows, examples = shard["windows"] + first_window, shard["examples"] + first_example
                return {**shard, "windows": windows, "examples": examples}
            number -= len(part.sizes)
            first_window += len(part)
            first_example += _count_examples(part)
        raise IndexError(f"{self.name} has {len(self.sizes)} shards")

    def read_table(self) -> WindowTable:
        tables = [part.table() for part in self.parts]
        first_examples = np.cumsum([0, *(_count_examples(part) for part in self.parts)])[:-1]
        examples = [table.example + first for table, first in zip(tables, first_examples, strict=True)]
        return WindowTable(
            example=np.concatenate(examples),
            cls=np.concatenate([table.cls for table in tables]),
            offsets=[offsets for table in tables for offsets in table.offsets],
            targets=np.concatenate([table.targets for table in tables]),
            input_ids=[ids for table in tables for ids in table.input_ids],
        )


def _count_examples(split: ShardedSplit) -> int:
    """The number of examples of a split of texts, each of which has a window."""
    return int(split.table().example.max()) + 1
