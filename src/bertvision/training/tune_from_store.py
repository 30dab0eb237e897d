"""Tune the upper layers of an encoder on stored states of the frozen lower layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from bertvision.core.config import ExtractConfig, TuneConfig
from bertvision.core.errors import BadInput
from bertvision.core.progress import log_line
from bertvision.core.records import Window
from bertvision.core.runtime import choose_device, seeded
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import num_frozen_states
from bertvision.encoders.partial import StateInjector, upper_layers
from bertvision.store.batching import read_batches
from bertvision.store.codec import decode_layer
from bertvision.store.fingerprint import differences
from bertvision.store.shard_file import Shard
from bertvision.store.states import ShardedSplit
from bertvision.store.store import MANIFEST, Store
from bertvision.store.writer import StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fingerprints import store_fingerprint
from bertvision.training.inputs import TaskWindows
from bertvision.training.tune import export_encoder, make_tuning_head, resolve_config, run, tune_hash
from bertvision.training.tuner import Checkpoint, Tuner

NOT_COMPARED = ("dtype", "layers", "plan")
"""Fingerprint keys in which an existing store may differ."""


@dataclass(frozen=True)
class PrefixWindow:
    """A window with its state k, the input of the upper layers."""

    window: Window
    state: Tensor  # (tokens, width)

    def __len__(self) -> int:
        return len(self.window)


@dataclass
class PrefixTuner(Tuner):
    """Tunes the upper layers of a model on stored states, inside :func:`upper_layers`."""

    below: int = 0
    feed: StateInjector = field(default_factory=StateInjector)

    def __post_init__(self) -> None:
        if min(self.head.needed_layers) <= self.below:
            raise BadInput(f"head {self.head.spec} reads states of frozen layers; tune with a head on the last layer")
        super().__post_init__()

    @property
    def method(self) -> str:
        """Train all of the remaining layers."""
        return "freeze:k=0"

    def states_of(self, batch: Sequence[PrefixWindow]) -> tuple[Sequence[Window], TokenBatch, States]:
        windows = [prefix.window for prefix in batch]
        tokens = collate(windows, self.encoder.tokenizer.pad_token_id, self.device)
        states = nn.utils.rnn.pad_sequence([prefix.state.float() for prefix in batch], batch_first=True)
        self.feed.states = states.to(self.device)  # (batch, tokens, width)
        needed = [layer - self.below for layer in self.head.needed_layers]
        return windows, tokens, hidden_states(self.model, tokens, needed, self.config.bf16)


def prefix_batches(
    split: ShardedSplit, windows: Sequence[Window], index: int, config: TuneConfig, first: int, steps: int
) -> Iterator[list[PrefixWindow]]:
    """The batches of steps ``first`` to ``steps``; shards, batches and their members are shuffled every epoch.

    ``index`` is the index of state k among the stored states. Shards that only hold earlier steps are not read.
    A store of one shard gives the same batches as ordinary tuning.
    """
    step, epoch = 0, 0
    while step < steps:
        for number in np.random.default_rng([config.seed, epoch]).permutation(len(split.sizes)).tolist():
            count = -(-split.sizes[number] // config.batch)
            if step + count > first and step < steps:
                # numpy ignores a trailing 0, so the first shard draws the same numbers as ordinary tuning.
                random = np.random.default_rng([config.seed, epoch, number])
                selection = slice(max(0, first - step), steps - step)
                yield from _shard_batches(split.shard(number), windows, index, config.batch, random, selection)
            step += count
        epoch += 1


def _shard_batches(
    shard: Shard, windows: Sequence[Window], index: int, batch: int, random: np.random.Generator, selection: slice
) -> Iterator[list[PrefixWindow]]:
    """The selected batches of one shard."""
    lengths = shard["lengths"].numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = shard["windows"].numpy()
    order = np.argsort(numbers)  # shards are in extraction order; ordinary tuning batches by window number
    for indices in read_batches(lengths[order], batch, random)[selection]:
        members = []
        for row in order[indices]:
            state = decode_layer(shard, slice(int(starts[row]), int(starts[row + 1])), index)  # (tokens, width)
            members.append(PrefixWindow(windows[numbers[row]], state))
        yield members


def tune_from_store(
    encoder: Encoder,
    task: Task,
    location: str | Path,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> Encoder:
    """:func:`bertvision.tune` with ``method="freeze:k=K"``, reading state K from a store instead of computing it.

    ``location`` is the folder or URL of the store; a missing store is extracted first, with state K only. The
    result is an ordinary encoder.
    """
    config = resolve_config(config, encoder, task, **settings)
    k = num_frozen_states(config.method) - 1
    if k < 0:
        raise BadInput(f"--from-store: method {config.method} trains the lower layers; use --method freeze:k=K")
    windows = TaskWindows(task, encoder)
    store = _open_store(windows, k, location)
    split = store["train"]
    checkpoint = Checkpoint(saved, f"{tune_hash(encoder, task, config)}:{store.id}")
    steps = round(config.epochs * split.batch_count(config.batch))
    with seeded(config.seed):
        head, copy = make_tuning_head(encoder, task, config), encoder.copy()
        with upper_layers(copy.model, k) as feed:
            tuner = PrefixTuner(copy, head, config, steps, choose_device(config.device), below=k, feed=feed)
            tuner.resume(checkpoint)
            index = store.layers.index(k)
            batches = prefix_batches(split, windows["train"], index, config, tuner.steps_done, steps)
            run(tuner, batches, steps, checkpoint)
    checkpoint.remove()
    return export_encoder(tuner, task, "whole run")


def _open_store(windows: TaskWindows, k: int, location: str | Path) -> Store:
    """The store at a location, checked to hold state ``k``; a missing store is extracted."""
    encoder, task, config = windows.encoder, windows.task, ExtractConfig(layers=str(k))
    if not StoreWriter(location).has(MANIFEST):
        log_line(f"tune: writing state {k} of every token once ({location})")
        return extract(encoder, task, location, config, windows)
    store = Store(location)
    stored, expected = dict(store.manifest["fingerprint"]), store_fingerprint(encoder, task, config)
    for key in NOT_COMPARED:
        stored.pop(key, None)
        expected.pop(key, None)
    changes = differences(stored, expected)
    if changes:
        raise BadInput(
            f"store {location} was made from other inputs: {'; '.join(changes)}; choose another --from-store"
        )
    if k not in store.layers:
        raise BadInput(f"store {location} holds states {list(store.layers)}, expected {k} among them; choose another")
    return store
