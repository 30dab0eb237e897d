"""Tune the upper layers of an encoder on stored states of the frozen lower ones, for as many epochs as wanted."""

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
"""What a store may differ in: it need not have been made for this."""


@dataclass(frozen=True)
class PrefixWindow:
    """A window with its state k, from which the upper layers go on."""

    window: Window
    state: Tensor  # (tokens, width)

    def __len__(self) -> int:
        return len(self.window)


@dataclass
class PrefixTuner(Tuner):
    """Tuning within :func:`upper_layers`: the model is its upper layers, fed with stored states."""

    below: int = 0
    feed: StateInjector = field(default_factory=StateInjector)

    def __post_init__(self) -> None:
        if min(self.head.needed_layers) <= self.below:
            raise BadInput(f"head {self.head.spec} looks at states that are frozen; tune with one on the last layer")
        super().__post_init__()

    @property
    def method(self) -> str:
        """All of the layers that are left."""
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
    """The batches of steps ``first`` to ``steps``: shards, batches and members shuffled anew every epoch.

    ``index`` is that of state k among the stored ones. Shards that only hold steps before ``first``
    are not read. From a store of one shard these are the very batches of ordinary tuning.
    """
    step, epoch = 0, 0
    while step < steps:
        for number in np.random.default_rng([config.seed, epoch]).permutation(len(split.sizes)).tolist():
            count = -(-split.sizes[number] // config.batch)
            if step + count > first and step < steps:
                # To numpy a last 0 is nothing: the first shard draws what ordinary tuning draws.
                random = np.random.default_rng([config.seed, epoch, number])
                chosen = slice(max(0, first - step), steps - step)
                yield from _shard_batches(split.shard(number), windows, index, config.batch, random, chosen)
            step += count
        epoch += 1


def _shard_batches(
    shard: Shard, windows: Sequence[Window], index: int, batch: int, random: np.random.Generator, batches: slice
) -> Iterator[list[PrefixWindow]]:
    lengths = shard["lengths"].numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = shard["windows"].numpy()
    by_number = np.argsort(numbers)  # rows lie in the order of extraction; ordinary tuning batches by number
    for chosen in read_batches(lengths[by_number], batch, random)[batches]:
        members = []
        for row in by_number[chosen]:
            state = decode_layer(shard, slice(int(starts[row]), int(starts[row + 1])), index)  # (tokens, width)
            members.append(PrefixWindow(windows[numbers[row]], state))
        yield members


def tune_from_store(
    encoder: Encoder,
    task: Task,
    place: str | Path,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> Encoder:
    """As :func:`bertvision.tune` with ``method="freeze:k=K"``, reading state K from the store at ``place``.

    ``place`` is a folder or a URL. A store that is not there yet is made, of state K alone. The outcome is
    an ordinary encoder.
    """
    config = resolve_config(config, encoder, task, **settings)
    k = num_frozen_states(config.method) - 1
    if k < 0:
        raise BadInput(f"--from-store: method {config.method} trains below its states; give freeze:k=K")
    windows = TaskWindows(task, encoder)
    store = _store_of(windows, k, place)
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


def _store_of(windows: TaskWindows, k: int, place: str | Path) -> Store:
    """The store at a place, if it holds what is needed; else a new one of state ``k`` alone."""
    encoder, task, config = windows.encoder, windows.task, ExtractConfig(layers=str(k))
    if not StoreWriter(place).has(MANIFEST):
        log_line(f"tune: writing state {k} of every token once ({place})")
        return extract(encoder, task, place, config, windows)
    store = Store(place)
    stored, wanted = dict(store.manifest["fingerprint"]), store_fingerprint(encoder, task, config)
    for key in NOT_COMPARED:
        stored.pop(key, None)
        wanted.pop(key, None)
    found = differences(stored, wanted)
    if found:
        raise BadInput(f"store {place} was made from something else: {'; '.join(found)}; choose another --from-store")
    if k not in store.layers:
        raise BadInput(f"store {place} holds the states {list(store.layers)}, expected {k} among them; choose another")
    return store
