"""The windows of a finished store, by key, so that a store of changed data can take over their states.

A key is a hash of the whole encoder input of a window: with the same encoder and settings, its states depend on
nothing else. The keys of all windows are in memory; states are copied from the memory-mapped shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertvision.core.progress import log_line
from bertvision.core.records import Kind, Window
from bertvision.store.shard_file import Shard, read_shard, stored_windows
from bertvision.store.store import Store, find_damage, recorded
from bertvision.store.token_subset import kept_positions

KEY_BYTES = 16

Rows = NDArray[np.int64]

Part = tuple[Shard, Rows, Rows]
"""Windows to copy: their shard, their rows in it, and their positions in the shard that is made."""


def window_keys(windows: Sequence[Window], tokens: str) -> Rows:
    """The keys of whole windows, of which ``tokens`` are stored."""
    digests = b"".join(_digest(window, tokens) for window in windows)
    return np.frombuffer(bytearray(digests), "<i8").reshape(-1, 2)  # (windows, 2)


def _digest(window: Window, tokens: str) -> bytes:
    digest = blake2b(window.input_ids.tobytes(), digest_size=KEY_BYTES)
    digest.update(window.token_types.tobytes())
    if tokens == "context":  # equal inputs without token types may differ in where the context begins
        digest.update(kept_positions(window, tokens).tobytes())
    return digest.digest()


class StoredWindows:
    """Finds windows in a finished store by key. Damaged shards are left out, so that no damage is copied."""

    def __init__(self, folder: Path) -> None:
        store = Store(folder)
        self.folder, self.manifest = folder, store.manifest
        self.names: list[str] = []  # of the intact shards
        self._opened: dict[int, Shard] = {}
        keys: list[Rows] = []
        damaged = {damage.file for damage in find_damage(store)}
        for record in recorded({"splits": store.manifest["splits"]}):
            name = record["file"]
            if name in damaged:
                log_line(f"extract: {name} of the earlier store is damaged; its states are computed again")
                continue
            keys.append(_shard_keys(read_shard(folder / name), store.tokens))
            self.names.append(name)
        sizes = np.array([len(part) for part in keys], np.int64)
        joined = np.concatenate([np.empty((0, 2), np.int64), *keys])  # (windows, 2)
        order = np.argsort(joined[:, 0], kind="stable")
        self._keys = joined[order]
        self._shards = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order]
        self._rows = np.concatenate([np.arange(size, dtype=np.int32) for size in (0, *sizes.tolist())])[order]

    def __len__(self) -> int:
        return len(self._keys)

    def locate(self, keys: Rows) -> Rows:
        """Numbers of the windows with these keys (windows, 2), for :meth:`parts`; -1 for those that are not stored."""
        if not len(self):
            return np.full(len(keys), -1)
        numbers = np.minimum(np.searchsorted(self._keys[:, 0], keys[:, 0]), len(self) - 1)
        return np.where((self._keys[numbers] == keys).all(1), numbers, -1)

    def parts(self, numbers: Rows) -> Iterator[Part]:
        """The stored windows among ``numbers``, shard by shard."""
        positions = np.flatnonzero(numbers >= 0)
        shards = self._shards[numbers[positions]]
        for shard in np.unique(shards).tolist():
            members = positions[shards == shard]
            yield self._open(shard), self._rows[numbers[members]].astype(np.int64), members

    def statistics(self) -> dict[str, Tensor]:
        """The statistics that the states are scaled by; empty unless they are int8."""
        shard = self._open(0) if len(self) else {}
        return {name: shard[name].clone() for name in ("mean", "spread") if name in shard}

    def _open(self, number: int) -> Shard:
        if number not in self._opened:
            self._opened[number] = read_shard(self.folder / self.names[number])
        return self._opened[number]


def _shard_keys(shard: Shard, tokens: str) -> Rows:
    """The keys of a shard's windows; none if they cannot be computed."""
    if "keys" in shard:
        keys: Rows = shard["keys"].numpy().copy()  # a view would keep the whole file in memory
        return keys
    if tokens != "all":  # made before shards had keys, and without the whole windows
        return np.empty((0, 2), np.int64)
    return window_keys(list(stored_windows(shard).values()), tokens)


def join_states(parts: Iterable[Part], lengths: Sequence[int], kind: Kind) -> dict[str, Tensor]:
    """States, pooled CLS and native logits of windows with these stored lengths, copied from several shards."""
    by_token = {"hidden", "scales"} | ({"logits"} if kind == "span" else set())
    by_window = {"pooled", "logits"} - by_token
    spans = _token_spans(lengths)
    states: dict[str, Tensor] = {}
    for shard, rows, positions in parts:
        if not states:
            for name in shard.keys() & (by_token | by_window):
                size = sum(lengths) if name in by_token else len(lengths)
                states[name] = torch.empty((size, *shard[name].shape[1:]), dtype=shard[name].dtype)
        shard_spans = _token_spans(shard["lengths"].tolist())
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
            for name, target in states.items():
                if name in by_token:
                    target[spans[position]] = shard[name][shard_spans[row]]
                else:
                    target[position] = shard[name][row]
    return states


def _token_spans(lengths: Sequence[int]) -> list[slice]:
    """The tokens of each window in the flat tensors of a shard."""
    ends = np.cumsum(lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
