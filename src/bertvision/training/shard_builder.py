"""The shards of an extraction as numbered jobs that any process can run.

The plan is a pure function of data, encoder and settings, so every process can make any shard, in any order, and
the store comes out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertvision.core.config import ExtractConfig
from bertvision.core.progress import Timer, progress_bar
from bertvision.core.records import SPLITS, Kind, Window
from bertvision.core.registry import choose_layers
from bertvision.core.runtime import choose_device, trim_memory
from bertvision.core.summaries import NO_TOKENS, TOGETHER, summarise_tokens, summary_names
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.heads.base import Head
from bertvision.store.batching import Batch, length_batches, plan_batches, plan_shards
from bertvision.store.codec import Codec, Plain, channel_statistics, check_finite, make_codec, state_bytes
from bertvision.store.shard_file import Shard, read_shard, window_tensors, write_shard
from bertvision.store.stored_windows import StoredWindows, join_states, window_keys
from bertvision.store.token_subset import kept_lengths, kept_positions, reduce_window
from bertvision.store.writer import ShardRecord, StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.fingerprints import store_fingerprint
from bertvision.training.inputs import TaskWindows, native_head, reuse_windows
from bertvision.training.pair_texts import TextEncoder, apart_bytes

SAMPLE_TOKENS = 16_384
"""Training tokens from which the int8 statistics are computed: the first ones of the shuffled plan."""

STATISTICS = "codec.safetensors"
"""The int8 statistics of a store; every shard holds a copy, so that it can be read alone."""


class ShardBuilder:
    """Computes shards from planned batches, with an encoder and its native head."""

    def __init__(self, encoder: Encoder, layers: Sequence[int], config: ExtractConfig, kind: Kind = "span") -> None:
        self.layers, self.kind, self.config = tuple(layers), kind, config
        self.tokens, self.summaries = config.stored_tokens, summary_names(config.stored_tokens)
        self.width, self.token_bytes = encoder.width, len(self.layers) * state_bytes(config.dtype, encoder.width)
        self.device = choose_device(config.device)
        self.model = encoder.model.eval().to(self.device)
        self.pad_id = encoder.tokenizer.pad_token_id
        head = native_head(encoder)
        self.native: Head | None = None if head is None else head.to(self.device)
        # The native head may need layers that are not stored.
        self.needed = self.layers if self.native is None else tuple(sorted({*self.layers, *self.native.needed_layers}))
        self.codec: Codec = Plain("f32" if config.dtype == "int8" else config.dtype)

    def plan(self, windows: Sequence[Window]) -> list[list[Batch]]:
        """The batches of every shard; batches are sized by encoder input, shards by stored tokens."""
        config = self.config
        batches = plan_batches([len(window) for window in windows], config.batch_tokens, config.seed)
        # Texts that are encoded apart count as the tokens whose states take the same space.
        apart = -(-apart_bytes(config, len(self.layers), self.width) // self.token_bytes)
        lengths = [length + apart for length in kept_lengths(windows, self.tokens)]
        shards = plan_shards(batches, lengths, self.token_bytes, config.shard_mb)
        return [[batches[i] for i in shard] for shard in shards]

    def statistics(self, train: Sequence[Window]) -> dict[str, Tensor]:
        """Codec statistics: those of a fixed sample for int8, none for other types."""
        return channel_statistics(self._sample(train)) if self.config.dtype == "int8" else {}

    def use(self, statistics: Mapping[str, Tensor]) -> None:
        """Use these statistics for the codec."""
        self.codec = make_codec(self.config.dtype, statistics)

    def _sample(self, train: Sequence[Window]) -> Iterator[Tensor]:
        exact, tokens = Plain("f32"), 0
        for shard in self.plan(train):
            for batch in shard:
                members = [train[int(number)] for number in batch]
                buffers = exact.buffers(sum(kept_lengths(members, self.tokens)), len(self.layers), self.width)
                self.run_batch(members, buffers, exact, {})
                yield buffers["hidden"]
                tokens += sum(len(window) for window in members)
                if tokens >= SAMPLE_TOKENS:
                    return

    def shard(self, windows: Sequence[Window], batches: Sequence[Batch], advance: Callable[[int], object]) -> Shard:
        """Run the batches and write states, layer by layer, into one flat buffer of the store's type."""
        numbers = [int(number) for batch in batches for number in batch]
        chosen = [windows[number] for number in numbers]
        total, on_gpu = sum(kept_lengths(chosen, self.tokens)), self.device.type == "cuda"
        buffers = self.codec.buffers(total, len(self.layers), self.width, pin_memory=on_gpu)
        extras: dict[str, list[Tensor]] = {"pooled": [], "logits": []}
        start = 0
        for batch in batches:
            members = [windows[int(number)] for number in batch]
            end = start + sum(kept_lengths(members, self.tokens))
            part = {name: buffer[start:end] for name, buffer in buffers.items()}
            if self.tokens != NO_TOKENS:
                self.run_batch(members, part, self.codec, extras)
            start = end
            advance(len(batch))
        if on_gpu:
            torch.cuda.synchronize(self.device)  # wait for the asynchronous copies
        check_finite(buffers, self.config.dtype)
        outputs = {key: torch.cat(parts) for key, parts in extras.items() if parts}
        trim_memory()
        return {**buffers, **self.codec.statistics(), **self._window_tensors(chosen, numbers), **outputs}

    def joined_shard(
        self,
        windows: Sequence[Window],
        batches: Sequence[Batch],
        earlier: StoredWindows,
        advance: Callable[[int], object],
    ) -> Shard:
        """The shard of these batches, with states copied from an earlier store; other windows are encoded together."""
        numbers = [int(number) for batch in batches for number in batch]
        chosen = [windows[number] for number in numbers]
        located = earlier.locate(window_keys(chosen, self.tokens))  # (windows,)
        new = np.flatnonzero(located < 0)
        if len(new) == len(numbers):
            return self.shard(windows, batches, advance)
        parts = list(earlier.parts(located))
        advance(len(numbers) - len(new))
        if len(new):
            members = [chosen[position] for position in new]
            lengths = np.array([len(window) for window in members])
            own_batches = list(length_batches(np.arange(len(new)), lengths, self.config.batch_tokens))
            encoded = self.shard(members, own_batches, advance)
            parts.append((encoded, np.arange(len(new)), new[encoded["windows"].numpy()]))
        states = join_states(parts, kept_lengths(chosen, self.tokens), self.kind)
        return {**states, **self.codec.statistics(), **self._window_tensors(chosen, numbers)}

    def _window_tensors(self, chosen: Sequence[Window], numbers: Sequence[int]) -> dict[str, Tensor]:
        stored = [reduce_window(window, self.tokens, self.kind) for window in chosen]
        return {**window_tensors(stored, numbers), "keys": torch.from_numpy(window_keys(chosen, self.tokens))}

    @torch.inference_mode()
    def run_batch(
        self, members: Sequence[Window], buffers: Mapping[str, Tensor], codec: Codec, extras: dict[str, list[Tensor]]
    ) -> None:
        """One forward pass; on a GPU states are collected there and copied asynchronously."""
        batch = collate(members, self.pad_id, self.device)
        states = hidden_states(self.model, batch, self.needed)
        on_cpu = self.device.type == "cpu"
        count = len(next(iter(buffers.values())))
        staging = buffers if on_cpu else codec.buffers(count, len(self.layers), self.width, device=self.device)
        rows = self._stored_rows(members, batch)
        for index, layer in enumerate(self.layers):
            codec.encode(staging, index, self._flat(states.layers[self.needed.index(layer)], batch, rows, codec))
        if not on_cpu:
            for name, buffer in buffers.items():
                buffer.copy_(staging[name], non_blocking=True)
        if "pooled" in extras and states.pooled is not None:
            extras["pooled"].append(states.pooled.to("cpu", codec.pooled_dtype))
        if "logits" in extras and self.native is not None:
            extras["logits"].append(self._native_logits(self.native, states, batch, rows))

    def _stored_rows(self, members: Sequence[Window], batch: TokenBatch) -> Tensor | None:
        """Indices of the stored tokens among (batch x tokens); None if all are stored."""
        longest = batch.mask.shape[1]
        if self.summaries or (self.tokens == "all" and all(len(window) == longest for window in members)):
            return None
        kept = [row * longest + kept_positions(window, self.tokens) for row, window in enumerate(members)]
        return torch.from_numpy(np.concatenate(kept)).to(self.device)

    def _flat(self, states: Tensor, batch: TokenBatch, rows: Tensor | None, codec: Codec) -> Tensor:
        """(batch, tokens, width) -> (stored tokens or summaries, width)."""
        if self.summaries:
            return summarise_tokens(states, batch.mask, self.summaries).flatten(0, 1)
        flat = states.flatten(0, 1)  # (batch x tokens, width)
        if rows is None:
            return flat
        return (codec.round(flat) if self.tokens == "all" else flat).index_select(0, rows)

    def _native_logits(self, head: Head, states: States, batch: TokenBatch, rows: Tensor | None) -> Tensor:
        """Outputs of the native head: (stored tokens, 2) or (batch, outputs)."""
        layers = [states.layers[self.needed.index(layer)] for layer in head.needed_layers]
        logits: Tensor = head(torch.stack(layers, dim=2), batch.mask, states.pooled)
        if head.shape.kind != "span":
            return logits.float().cpu()
        flat = logits.flatten(0, 1)  # (batch x tokens, 2)
        return (flat if rows is None else flat.index_select(0, rows)).float().cpu()


@dataclass(frozen=True)
class ShardJob:
    """A planned shard."""

    split: str
    number: int
    batches: list[Batch]

    @property
    def name(self) -> str:
        return f"{self.split}/shard-{self.number:05d}.safetensors"

    @property
    def windows(self) -> int:
        return sum(len(batch) for batch in self.batches)


class ExtractionPlan:
    """All shards of an extraction; bad input raises an error here, before anything is written.

    ``earlier`` may be set to the windows of a store that differs in its data only: their states are copied.
    """

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        config: ExtractConfig,
        fingerprint: dict[str, Any] | None = None,
        windows: TaskWindows | None = None,
    ) -> None:
        self.encoder, self.task, self.config = encoder, task, config
        self.fingerprint = fingerprint or store_fingerprint(encoder, task, config)
        self.windows = reuse_windows(task, encoder, windows)
        self.builder = ShardBuilder(encoder, choose_layers(config.layers, encoder.layers), config, task.kind)
        self.texts = None if config.pairs == TOGETHER else TextEncoder(self.windows.texts, self.builder)
        self.earlier: StoredWindows | None = None
        self.jobs: list[ShardJob] = []
        for split in SPLITS:
            for number, batches in enumerate(self.builder.plan(self.windows[split])):
                self.jobs.append(ShardJob(split, number, batches))

    def tokens(self, split: str) -> int:
        """Stored tokens of a split."""
        return sum(kept_lengths(self.windows[split], self.config.stored_tokens))

    def count_stored(self) -> int:
        """Windows whose states the earlier store has."""
        if self.earlier is None:
            return 0
        keys = (window_keys(windows, self.config.stored_tokens) for windows in self.windows.values())
        return sum(int((self.earlier.locate(part) >= 0).sum()) for part in keys)

    def prepare(self, writer: StoreWriter) -> None:
        """Write the codec statistics before the first shard, or read those that another process wrote."""
        earlier = self.earlier.statistics() if self.earlier else {}
        path = writer.fetch(STATISTICS)
        if path is not None:
            statistics = {name: tensor.clone() for name, tensor in read_shard(path).items()}
            if not all(torch.equal(statistics[name], earlier[name]) for name in earlier):
                self.earlier = None  # its states are on another scale than those of the shards that are there
        else:
            statistics = earlier or self.builder.statistics(self.windows["train"])
            if statistics:
                write_shard(statistics, writer.folder / STATISTICS)
                writer.upload(STATISTICS)
        self.builder.use(statistics)

    def make(self, job: ShardJob, advance: Callable[[int], object]) -> Shard:
        """Compute a planned shard."""
        windows = self.windows[job.split]
        if self.earlier is None:
            return self.builder.shard(windows, job.batches, advance)
        return self.builder.joined_shard(windows, job.batches, self.earlier, advance)


def make_shards(plan: ExtractionPlan, numbers: Iterable[int], to: str | Path | StoreWriter) -> list[ShardRecord]:
    """Make the given planned shards and return their records; complete shards are kept.

    A shard is computed while the previous one is written, so at most two are in memory.
    """
    writer = to if isinstance(to, StoreWriter) else StoreWriter(to)
    jobs = [plan.jobs[number] for number in numbers]
    plan.prepare(writer)
    written: list[Future[ShardRecord]] = []
    with progress_bar("extract", sum(job.windows for job in jobs), "window") as advance, ThreadPoolExecutor(1) as pool:
        for job in jobs:
            timer, record = Timer(), writer.record(job.name)
            if record is not None:
                advance(job.windows)
                written.append(pool.submit(lambda done: done, record))
                continue
            shard = plan.make(job, advance)
            if plan.texts is not None:
                shard = plan.texts.add_to(shard, job.split, writer.folder)
            if written:
                written[-1].result()  # raise write errors such as a full disk before starting the next shard
            written.append(pool.submit(writer.write_shard, shard, job.name, job.windows, timer.seconds))
        return [future.result() for future in written]
