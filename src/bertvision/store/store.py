"""A store: shards per split, and a manifest that is written last and so proves them complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.errors import BadInput
from bertvision.records import LayerBatch, Shape, WindowTable
from bertvision.store.fingerprint import FORMAT
from bertvision.store.plan import reading_batches
from bertvision.store.shards import Shard, layer_batch, read_shard

MANIFEST = "manifest.json"


class Store:
    """States on disk, opened for reading."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self.shape = Shape(**self.manifest["shape"])
        self.tables: dict[str, WindowTable] = {}

    @property
    def id(self) -> str:
        """Short name of the content: equal for equal fingerprints."""
        return str(self.manifest["id"])

    @property
    def layers(self) -> tuple[int, ...]:
        """Which of the encoder's states are stored."""
        return tuple(self.manifest["layers"])

    def __getitem__(self, split: str) -> StoredSplit:
        if split not in self.manifest["splits"]:
            raise BadInput(f"store {self.folder} has no split {split!r}; it has {', '.join(self.manifest['splits'])}")
        return StoredSplit(self, split)


class StoredSplit:
    """One split of a store: batches of states for fitting, tables for decoding."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.shape = store.shape
        self._shards = [store.folder / entry["file"] for entry in store.manifest["splits"][name]["shards"]]
        self.windows = int(store.manifest["splits"][name]["windows"])

    def __len__(self) -> int:
        return self.windows

    def shards(self) -> Iterator[Shard]:
        """Shards in planned order, one in memory at a time."""
        for path in self._shards:
            yield read_shard(path)

    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]:
        """Batches of near-equal length; with a seed shards, batches and their members are shuffled."""
        order = (
            np.arange(len(self._shards)) if seed is None else np.random.default_rng(seed).permutation(len(self._shards))
        )
        for number in order.tolist():
            shard = read_shard(self._shards[number])
            lengths = shard["lengths"].numpy().astype(np.int64)
            for chosen in reading_batches(lengths, batch, np.random.default_rng([seed or 0, number])):
                yield layer_batch(shard, chosen, self.shape.kind)

    def batch_count(self, batch: int) -> int:
        """How many batches :meth:`batches` gives."""
        entries = self.store.manifest["splits"][self.name]["shards"]
        return sum(-(-int(entry["windows"]) // batch) for entry in entries)

    def table(self) -> WindowTable:
        """What decoding needs, in window order; read once a store."""
        if self.name not in self.store.tables:
            self.store.tables[self.name] = self._read_table()
        return self.store.tables[self.name]

    def _read_table(self) -> WindowTable:
        example, cls = np.zeros(self.windows, np.int64), np.zeros(self.windows, np.int64)
        targets = np.zeros((self.windows, 2 if self.shape.kind == "span" else 1))
        offsets: list[Any] = [None] * self.windows
        input_ids: list[Any] = [None] * self.windows
        for shard in self.shards():
            at, lengths = shard["windows"].numpy(), shard["lengths"].tolist()
            example[at], cls[at], targets[at] = shard["examples"], shard["cls"], shard["targets"]
            ragged = zip(at.tolist(), shard["offsets"].split(lengths), shard["input_ids"].split(lengths), strict=True)
            for number, places, ids in ragged:
                offsets[number], input_ids[number] = places.numpy(), ids.numpy()
        return WindowTable(example, cls, offsets, targets, input_ids)

    def own_logits(self) -> list[np.ndarray] | None:
        """The encoder's own outputs in window order, if it was tuned with a head."""
        logits: list[Any] = [None] * self.windows
        for shard in self.shards():
            if "logits" not in shard:
                return None
            sizes = shard["lengths"].tolist() if self.shape.kind == "span" else 1
            rows = shard["logits"].float().split(sizes)
            for number, row in zip(shard["windows"].tolist(), rows, strict=True):
                logits[number] = row.numpy() if self.shape.kind == "span" else row[0].numpy()
        return logits


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store; without one the store is not finished, or not a store."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(
            f"no finished store at {folder} (no {MANIFEST}); run: bertvision extract TASK ... --to {folder}"
        ) from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; delete the store and extract again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BadInput(f"{path} is not the manifest of a store of format {FORMAT}; extract again, into another folder")
    return manifest
