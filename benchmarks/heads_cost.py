"""Cost of fitting heads: ratios of seconds, measured in turns, on windows as long as SQuAD's.

python benchmarks/heads_cost.py [--rounds 7] [--windows 256] [--only compress]

`minilm` runs over windows of random tokens with lengths distributed like SQuAD's (median about 150, at most 384).
Writes results/heads_cost.csv: the two things compared, and the median over rounds of the ratio of their seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import bertvision as bv
from bertvision.core.config import ExtractConfig, FitConfig
from bertvision.core.records import LayerBatch, Shape, Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.heads.base import head_loss
from bertvision.store.batching import plan_batches, read_batches
from bertvision.store.shard_file import Shard, layer_batch
from bertvision.training.head_trainer import HeadTrainer, fuse_trainers
from bertvision.training.shard_builder import ShardBuilder
from memory_settings import default_memory
from ratio import time_ratio
from rows import Rows
from windows import SQUAD, random_windows, sample_lengths

MAX_LENGTH, BATCH = SQUAD[-1], 32
POOLS = tuple(("learned-pool", seed) for seed in range(8))
ELEVEN_HEADS = (*POOLS, ("compress:size=16", 0), ("compress:size=64", 0), ("compress:size=386", 0))
TWENTY_LIGHT_HEADS = (
    *POOLS,
    *(("mean-pool", seed) for seed in range(4)),
    *(("probe", seed) for seed in range(2)),
    *(("probe:layers=last1", seed) for seed in range(2)),
    *(("compress:size=16", seed) for seed in range(2)),
    *(("compress:size=64", seed) for seed in range(2)),
)
Heads = Sequence[tuple[str, int]]
CPU = torch.device("cpu")


def main() -> None:
    options = _options()
    setting = Setting(bv.load_encoder("minilm"), options.windows)
    rows = Rows(Path("results/heads_cost.csv"))
    for what, against, measured, reference in setting.comparisons():
        if options.only not in what:
            continue
        ratio = time_ratio(measured, reference, options.rounds)
        print(f"{what}: {ratio:.2f} of {against}", flush=True)
        rows.drop(what=what)
        rows.add({"what": what, "against": against, "ratio": round(ratio, 3), "rounds": options.rounds})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--windows", type=int, default=256)
    parser.add_argument("--only", default="", help="run comparisons whose name contains this; other rows are kept")
    return parser.parse_args()


class Setting:
    """The same windows for all comparisons: as tokens, planned batches and a shard of states."""

    def __init__(self, encoder: Encoder, windows: int) -> None:
        self.encoder, self.windows = encoder, _windows(windows)
        self.shape = Shape(encoder.layers, encoder.width, MAX_LENGTH, 2, "span")
        self.plan = plan_batches([len(window) for window in self.windows], 4096, 0)
        self.builder = ShardBuilder(encoder, range(encoder.layers), ExtractConfig(device="cpu"))
        self.shard = self.make_shard()

    def make_shard(self) -> Shard:
        return self.builder.shard(self.windows, self.plan, lambda _: None)

    def encode(self) -> None:
        """The encoder alone; all states are returned and none is kept."""
        with torch.inference_mode():
            for batch in self.plan:
                tokens = collate([self.windows[int(i)] for i in batch], 0, CPU)
                hidden_states(self.encoder.model, tokens, range(self.encoder.layers))

    def batches(self, shard: Shard) -> list[LayerBatch]:
        lengths = shard["lengths"].numpy().astype(np.int64)
        return [layer_batch(shard, chosen, "span") for chosen in read_batches(lengths, BATCH, np.random.default_rng(0))]

    def fitting(self, heads: Heads) -> Callable[[Sequence[LayerBatch]], None]:
        config = FitConfig(device="cpu")
        groups = fuse_trainers([HeadTrainer(spec, seed, self.shape, config, 100_000, CPU) for spec, seed in heads])

        def fit(batches: Sequence[LayerBatch]) -> None:
            for batch in batches:
                for group in groups:
                    group.step(batch)

        return fit

    def live(self, heads: Heads) -> Callable[[], None]:
        fit = self.fitting(heads)
        return lambda: fit(self.batches(self.make_shard()))

    def stored(self, heads: Heads, batches: Sequence[LayerBatch] | None = None) -> Callable[[], None]:
        fit = self.fitting(heads)
        return lambda: fit(self.batches(self.shard) if batches is None else batches)

    def as_published(self, size: int, padded: Sequence[LayerBatch]) -> Callable[[], None]:
        """The original implementation: padded to the maximum length, layers last, transposed before the projection."""
        layers, width = self.shape.layers, self.shape.width
        down, dense = nn.Linear(width, size), nn.Linear(size * layers, 2)
        optimizer = torch.optim.AdamW([*down.parameters(), *dense.parameters()], lr=1e-3, fused=True)
        transposed = [
            (batch, batch.hidden.transpose(2, 3).contiguous()) for batch in padded
        ]  # (batch, tokens, width, layers)

        @default_memory()
        def fit() -> None:
            for batch, states in transposed:
                compressed = F.gelu(down(states.transpose(2, 3)), approximate="tanh")  # (batch, tokens, layers, size)
                logits = dense(compressed.flatten(2))  # (batch, tokens, 2)
                loss = head_loss("span", logits, batch.targets, batch.mask)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()

        return fit

    def comparisons(self) -> list[tuple[str, str, Callable[[], object], Callable[[], object]]]:
        grouped, padded = self.batches(self.shard), [_padded(batch) for batch in self.batches(self.shard)]
        one_pool, eight_pools = self.stored(POOLS[:1], grouped), self.stored(POOLS, grouped)
        comparisons: list[tuple[str, str, Callable[[], object], Callable[[], object]]] = [
            ("8 learned pools", "one", _repeated(eight_pools), _repeated(one_pool)),
            ("live: encoder + 11 heads", "the encoder alone", self.live(ELEVEN_HEADS), self.encode),
            ("live: encoder + 20 light heads", "the encoder alone", self.live(TWENTY_LIGHT_HEADS), self.encode),
            ("an epoch of ladder on stored states", "an encoder pass", self.stored([("ladder", 0)]), self.encode),
        ]
        for size in (386, 64):
            spec = f"compress:size={size}"
            original, own = self.as_published(size, padded), self.stored([(spec, 0)], grouped)
            comparisons.append((f"{spec}, the original's way", "ours", _repeated(original), _repeated(own)))
        return comparisons


def _windows(count: int) -> list[Window]:
    random = np.random.default_rng(0)
    return random_windows(sample_lengths(SQUAD, count, random), random)


def _repeated(work: Callable[[], object]) -> Callable[[], object]:
    """Repeat work that is too short to be timed once."""
    return lambda: [work() for _ in range(4)]


def _padded(batch: LayerBatch) -> LayerBatch:
    """The same windows padded to the maximum length, as the original did."""
    count, tokens = batch.mask.shape
    hidden = torch.zeros(count, MAX_LENGTH, *batch.hidden.shape[2:])
    hidden[:, :tokens] = batch.hidden
    mask = torch.zeros(count, MAX_LENGTH, dtype=torch.bool)
    mask[:, :tokens] = batch.mask
    return LayerBatch(hidden, mask, batch.targets, batch.windows)


if __name__ == "__main__":
    main()
