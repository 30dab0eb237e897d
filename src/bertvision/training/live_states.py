"""Hidden states without a store: the encoder runs whenever a shard is read.

Batch plan, shards and rounding are those of a store, so fitted heads are the same. It costs one encoder pass
per epoch, memory for one shard and no disk. Only texts of pairs that are encoded apart are encoded once for all epochs:
they are one vector per layer, and wait in a temporary file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.core.config import ExtractConfig, with_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.core.records import Window, WindowTable
from bertvision.core.registry import choose_layers
from bertvision.core.summaries import TOGETHER
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.store.fingerprint import differences
from bertvision.store.shard_file import Shard
from bertvision.store.states import ShardedSplit, States, Subset, window_table
from bertvision.store.store import MANIFEST, Store, read_manifest
from bertvision.store.token_subset import kept_lengths, reduce_window
from bertvision.tasks.task import Task, read_task, save_task
from bertvision.training.fingerprints import store_fingerprint, store_manifest, stored_config
from bertvision.training.inputs import TaskWindows, reuse_windows
from bertvision.training.pair_texts import TextEncoder
from bertvision.training.shard_builder import ShardBuilder


class LiveStates(States):
    """States that are computed when they are read; can be used wherever a store is read."""

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        config: ExtractConfig | None = None,
        windows: TaskWindows | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ExtractConfig(), **settings)
        self.encoder, self.task = encoder, task
        fingerprint = store_fingerprint(encoder, task, self.config)
        # A plain dict: TaskWindows would keep a reference to the encoder before tuning.
        tokenised = reuse_windows(task, encoder, windows)
        by_split = dict(tokenised)
        layers = choose_layers(self.config.layers, encoder.layers)
        self.builder = ShardBuilder(encoder, layers, self.config, task.kind)
        self.builder.use(self.builder.statistics(by_split["train"]))
        self.texts = None if self.config.pairs == TOGETHER else TextEncoder(tokenised.texts, self.builder)
        manifest = {**store_manifest(encoder, task, self.config, fingerprint), "live": True, "splits": {}}
        for split, members in by_split.items():
            tokens = sum(kept_lengths(members, self.config.stored_tokens))
            manifest["splits"][split] = {"windows": len(members), "tokens": tokens, "bytes": 0, "shards": []}
        super().__init__(manifest)
        self._splits = {split: LiveSplit(self, split, members) for split, members in by_split.items()}

    def _split(self, name: str) -> LiveSplit:
        if name not in self._splits:
            raise BadInput(f"no split {name!r}; expected one of {', '.join(self._splits)}")
        return self._splits[name]


def record_live(states: LiveStates, folder: Path) -> None:
    """Write task and manifest where the run's store would be, for :func:`reopen_live`."""
    save_task(states.task, folder / "task")
    write_json(folder / MANIFEST, states.manifest)


def is_live(folder: Path) -> bool:
    return bool(read_manifest(folder).get("live"))


def reopen_live(folder: Path, encoder: Path) -> LiveStates:
    """The states of an earlier live run; an error if encoder or task have changed since."""
    fingerprint = read_manifest(folder)["fingerprint"]
    config = replace(stored_config(fingerprint), live=True)
    states = LiveStates(load_encoder(str(encoder)), read_task(folder / "task"), config)
    changes = differences(fingerprint, states.manifest["fingerprint"])
    if changes:
        raise BadInput(f"{folder} was made from another encoder than {encoder}: {'; '.join(changes)}; run again")
    return states


class LiveSplit(ShardedSplit):
    """One split, computed one planned shard at a time; outputs of the native head are cached on the way."""

    def __init__(self, store: LiveStates, name: str, windows: Sequence[Window]) -> None:
        self.windows, self.builder, self.texts = windows, store.builder, store.texts
        self.plan = store.builder.plan(windows)
        super().__init__(store, name, [sum(map(len, batches)) for batches in self.plan])
        self._native: dict[int, np.ndarray] = {}  # by window

    def shard(self, number: int) -> Shard:
        shard = self.builder.shard(self.windows, self.plan[number], lambda _: None)
        self._native.update(self.native_rows(shard))
        return shard if self.texts is None else self.texts.add_to(shard, self.name)

    def native_logits(self) -> list[np.ndarray] | None:
        if self.store.manifest["own"] is None:
            return None
        if len(self._native) < len(self):
            for _ in self.shards():
                pass
        return [self._native[number] for number in range(len(self))]

    def read_table(self) -> WindowTable:
        """The window table, without an encoder pass."""
        windows = [reduce_window(window, self.store.tokens, self.shape.kind) for window in self.windows]
        return window_table(windows)


def task_of_states(states: States) -> Task:
    """The task that states were computed for, read from the store if necessary."""
    if isinstance(states, Subset):
        return task_of_states(states.states)
    if isinstance(states, LiveStates):
        return states.task
    assert isinstance(states, Store), "states are stored or live"
    return read_task(states.folder / "task")
