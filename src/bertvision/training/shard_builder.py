"""The shards of an extraction as numbered pieces of work that any process can do; not a step itself.

The plan is a pure function of data, encoder and settings. So whoever has these can make any of the
shards, and all of them together are the same store, wherever and in whatever order they were made.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bertvision.core.config import ExtractConfig
from bertvision.core.records import SPLITS
from bertvision.core.registry import choose_layers
from bertvision.core.runtime import Timer, progress_bar
from bertvision.encoders.loading import Encoder
from bertvision.store.batching import Batch
from bertvision.store.shard_file import read_shard, write_shard
from bertvision.store.token_subset import kept_lengths
from bertvision.store.writer import Entry, Site
from bertvision.tasks.task import Task
from bertvision.training.fingerprints import store_fingerprint
from bertvision.training.inputs import split_windows
from bertvision.training.shard_maker import ShardMaker

STATISTICS = "codec.safetensors"
"""What int8 was scaled by; shards have it too, so that each can be read alone."""


@dataclass(frozen=True)
class Job:
    """One shard to be made."""

    split: str
    number: int
    batches: list[Batch]

    @property
    def name(self) -> str:
        return f"{self.split}/shard-{self.number:05d}.safetensors"

    @property
    def windows(self) -> int:
        return sum(len(batch) for batch in self.batches)


class Work:
    """All that can be wrong with the input shows here, before anything is written."""

    def __init__(
        self, encoder: Encoder, task: Task, config: ExtractConfig, fingerprint: dict[str, Any] | None = None
    ) -> None:
        self.encoder, self.task, self.config = encoder, task, config
        self.fingerprint = fingerprint or store_fingerprint(encoder, task, config)
        self.windows = {split: split_windows(task, split, encoder) for split in SPLITS}
        self.maker = ShardMaker(encoder, choose_layers(config.layers, encoder.layers), config, task.kind)
        self.jobs = [
            Job(split, number, batches)
            for split in SPLITS
            for number, batches in enumerate(self.maker.plan(self.windows[split]))
        ]

    def tokens(self, split: str) -> int:
        """Stored tokens of a split."""
        return sum(kept_lengths(self.windows[split], self.config.tokens))

    def prepare(self, site: Site) -> None:
        """What the codec needs, at the site before the first shard; whoever comes later goes on with the same."""
        path = site.fetch(STATISTICS)
        if path is not None:
            self.maker.use({name: tensor.clone() for name, tensor in read_shard(path).items()})
            return
        found: dict[str, Tensor] = self.maker.learn(self.windows["train"])
        if found:
            write_shard(found, site.folder / STATISTICS)
            site.send(STATISTICS)
        self.maker.use(found)


def make_shards(work: Work, numbers: Iterable[int], to: str | Path | Site) -> list[Entry]:
    """Make these of the planned shards at a place, and tell what they are; those that are there whole are kept.

    One shard is computed while the one before is written, so that at most two are in memory.
    """
    site = to if isinstance(to, Site) else Site(to)
    jobs = [work.jobs[number] for number in numbers]
    work.prepare(site)
    written: list[Future[Entry]] = []
    with progress_bar("extract", sum(job.windows for job in jobs), "window") as advance, ThreadPoolExecutor(1) as pool:
        for job in jobs:
            timer, known = Timer(), site.entry(job.name)
            if known is not None:
                advance(job.windows)
                written.append(pool.submit(lambda entry: entry, known))
                continue
            shard = work.maker.shard(work.windows[job.split], job.batches, advance)
            if written:
                written[-1].result()  # a disk that is full is noticed before the next is begun
            written.append(pool.submit(site.keep, shard, job.name, job.windows, timer.seconds))
        return [one.result() for one in written]
