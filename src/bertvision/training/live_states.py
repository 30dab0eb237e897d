"""All layers' states without a store: the encoder runs whenever they are asked for.

The same batch plan, the same shards and the same rounding as in a store, so that what is fitted here
is what would be fitted there. Memory holds one shard. It costs an encoder pass an epoch and no disk.
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
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.store.fingerprint import differences
from bertvision.store.shard_file import Shard
from bertvision.store.states import ShardedSplit, States, Subset, window_table
from bertvision.store.store import MANIFEST, Store, read_manifest
from bertvision.store.token_subset import kept_lengths, reduce_window
from bertvision.tasks.task import Task, read_task, save_task
from bertvision.training.fingerprints import store_fingerprint, store_manifest, stored_config
from bertvision.training.inputs import TaskWindows, windows_of
from bertvision.training.shard_builder import ShardBuilder


class LiveStates(States):
    """States that are computed when they are read; takes the place of a store wherever one is read."""

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        config: ExtractConfig | None = None,
        windows: TaskWindows | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ExtractConfig(), **settings)
        self.task = task
        fingerprint = store_fingerprint(encoder, task, self.config)
        # The lists alone are kept: with them there would be the encoder that they were made for.
        by_split = dict(windows_of(task, encoder, windows))
        layers = choose_layers(self.config.layers, encoder.layers)
        self.builder = ShardBuilder(encoder, layers, self.config, task.kind)
        self.builder.use(self.builder.statistics(by_split["train"]))
        manifest = {**store_manifest(encoder, task, self.config, fingerprint), "live": True, "splits": {}}
        for split, rows in by_split.items():
            tokens = sum(kept_lengths(rows, self.config.tokens))
            manifest["splits"][split] = {"windows": len(rows), "tokens": tokens, "bytes": 0, "shards": []}
        super().__init__(manifest)
        self._splits = {split: LiveSplit(self, split, rows) for split, rows in by_split.items()}

    def __getitem__(self, split: str) -> LiveSplit:
        if split not in self._splits:
            raise BadInput(f"there is no split {split!r}; there are {', '.join(self._splits)}")
        return self._splits[split]


def record_live(states: LiveStates, folder: Path) -> None:
    """Leave in a run, where its store would be, what the states were made from."""
    save_task(states.task, folder / "task")
    write_json(folder / MANIFEST, states.manifest)


def is_live(folder: Path) -> bool:
    return bool(read_manifest(folder).get("live"))


def reopen_live(folder: Path, encoder: Path) -> LiveStates:
    """The states of an earlier live run: the same encoder over the same task, or a refusal."""
    fingerprint = read_manifest(folder)["fingerprint"]
    config = replace(stored_config(fingerprint), live=True)
    states = LiveStates(load_encoder(str(encoder)), read_task(folder / "task"), config)
    found = differences(fingerprint, states.manifest["fingerprint"])
    if found:
        raise BadInput(f"{encoder} is not what {folder} was made from: {'; '.join(found)}; run it again")
    return states


class LiveSplit(ShardedSplit):
    """One split, a planned shard at a time. The encoder's own outputs are kept as they pass: they cost a pass else."""

    def __init__(self, store: LiveStates, name: str, windows: Sequence[Window]) -> None:
        self.windows, self.builder = windows, store.builder
        self.plan = store.builder.plan(windows)
        super().__init__(store, name, [sum(map(len, batches)) for batches in self.plan])
        self._own: dict[int, np.ndarray] = {}  # by window

    def shard(self, number: int) -> Shard:
        shard = self.builder.shard(self.windows, self.plan[number], lambda _: None)
        self._own.update(self.native_rows(shard))
        return shard

    def native_logits(self) -> list[np.ndarray] | None:
        if self.store.manifest["own"] is None:
            return None
        if len(self._own) < len(self):
            for _ in self.shards():
                pass
        return [self._own[number] for number in range(len(self))]

    def read_table(self) -> WindowTable:
        """Windows are known without the encoder."""
        windows = [reduce_window(window, self.store.tokens, self.shape.kind) for window in self.windows]
        return window_table(windows)


def task_of_states(states: States) -> Task:
    """The task that states belong to: beside a store, or at hand."""
    if isinstance(states, Subset):
        return task_of_states(states.states)
    if isinstance(states, LiveStates):
        return states.task
    assert isinstance(states, Store), "states are stored or live"
    return read_task(states.folder / "task")
