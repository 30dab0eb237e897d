"""Speed of extraction, compared with the original code, a plain loop, the forward pass and matrix products.

python benchmarks/extraction.py [--encoder minilm|base] [--lengths squad|glue] [--batches 12] [--rounds 5] [--out F]

4,096 windows of random tokens have lengths distributed like SQuAD's or GLUE's. Our extraction runs some batches of the
plan over all of them; the other implementations run some windows in random order in a process of their own
(plain_ways.py). All take turns in every round, and a ratio is the median over rounds of the quotient of their valid
tokens per second.
`base` has BERT-base's shape with random weights. OMP_NUM_THREADS=1 measures one thread. The original implementation
needs h5py (pip install -e '.[bench]').
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from bertvision.core.config import ExtractConfig
from bertvision.core.progress import Timer
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.store.batching import plan_batches, read_batches
from bertvision.store.shard_file import layer_batch, read_shard
from bertvision.store.writer import StoreWriter
from bertvision.training.shard_builder import ExtractionPlan, ShardBuilder, ShardJob, make_shards
from plain_ways import BATCH, SeparateProcess, named_encoder
from rows import Rows
from windows import GLUE, SQUAD, random_windows, sample_lengths

POOL, EPOCHS, ORIGINAL, MAX_PLAIN_WINDOWS = 4096, 5, 384, 128
PRODUCT_SECONDS = 2.0
"""Seconds of matrix products: enough for the processor's clock to drop to its sustained rate."""
CPU = torch.device("cpu")
LENGTHS = {"squad": SQUAD, "glue": GLUE}


def main() -> None:
    options = _options()
    setting = Setting(options.encoder, options.lengths, options.batches)
    rates: dict[str, list[float]] = {}
    for number in range(options.rounds + 1):
        measured = {name: way() for name, way in setting.ways().items()}
        for name, rate in measured.items() if number else ():  # the first round only warms up
            rates.setdefault(name, []).append(rate)
    setting.close()
    rows, threads = Rows(Path(options.out)), torch.get_num_threads()
    setup = {"encoder": options.encoder, "lengths": options.lengths, "threads": threads}
    rows.drop(**setup)
    for what, against in PAIRS:
        if what in rates and against in rates:
            ratio = median(
                numerator / denominator for numerator, denominator in zip(rates[what], rates[against], strict=True)
            )
            print(f"{what}: {ratio:.3f} of {against}", flush=True)
            facts = {**setup, "what": what, "against": against, "ratio": round(ratio, 3)}
            sizes = {"batches": options.batches, "rounds": options.rounds}
            rows.add({**facts, "rate": round(median(rates[what])), **sizes})


ORIGINAL_PADDED_TO_128 = "original's way, padded to 128"
PAIRS = (
    ("extraction", "original's way"),
    ("extraction", ORIGINAL_PADDED_TO_128),
    ("extraction", "plain loop"),
    ("extraction", "bare forward"),
    ("extraction", "matrix products"),
    ("bare forward", "matrix products"),
    ("shuffled reads", "bare forward"),
)
"""The comparisons; rates are valid tokens per second."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", choices=("minilm", "base"), default="minilm")
    parser.add_argument("--lengths", choices=tuple(LENGTHS), default="squad")
    parser.add_argument(
        "--batches", type=int, default=12, help="of 4,096 tokens; other implementations take 32 to 128 windows"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="results/extraction.csv")
    return parser.parse_args()


class WindowPlan(ExtractionPlan):
    """An extraction plan for windows that do not come from a task."""

    def __init__(self, encoder: Encoder, windows: Sequence[Window], config: ExtractConfig) -> None:
        self.encoder, self.config = encoder, config
        self.windows = {"train": list(windows)}
        self.builder = ShardBuilder(encoder, range(encoder.layers), config)
        self.jobs = [ShardJob("train", number, batches) for number, batches in enumerate(self.builder.plan(windows))]


class Setting:
    """Windows for all implementations; each method returns the valid tokens per second of one run."""

    def __init__(self, name: str, lengths: str, batches: int) -> None:
        encoder = named_encoder(name)
        random, self.longest = np.random.default_rng(0), LENGTHS[lengths][-1]
        pool = random_windows(sample_lengths(LENGTHS[lengths], POOL, random), random)
        planned = plan_batches([len(window) for window in pool], ExtractConfig.batch_tokens, 0)[:batches]
        self.encoder, self.windows = encoder, [pool[int(i)] for batch in planned for i in batch]
        self.work = WindowPlan(encoder, self.windows, ExtractConfig(device="cpu", shard_mb=64))
        self.plan = [batch for job in self.work.jobs for batch in job.batches]
        self.folder = Path(tempfile.mkdtemp(prefix="extraction-"))
        sample = _representative(pool, min(MAX_PLAIN_WINDOWS, max(2 * BATCH, len(self.windows) // 4)), random)
        self.separate_process = SeparateProcess(name, sample, self.folder)

    def close(self) -> None:
        self.separate_process.close()
        shutil.rmtree(self.folder)

    def ways(self) -> dict[str, Callable[[], float]]:
        ways: dict[str, Callable[[], float]] = {
            "extraction": self.extraction,
            "bare forward": self.bare,
            "matrix products": self.products,
            "plain loop": partial(self.separate_process.rate, "loop"),
            "shuffled reads": self.reads,
        }
        try:
            import h5py  # noqa: F401
        except ImportError:
            print("h5py is not installed: skipping the original implementation", flush=True)
            return ways
        originals: dict[str, Callable[[], float]] = {
            "original's way": partial(self.separate_process.rate, "original", ORIGINAL)
        }
        if self.longest < ORIGINAL:
            originals[ORIGINAL_PADDED_TO_128] = partial(self.separate_process.rate, "original", self.longest)
        return {**originals, **ways}

    def _tokens_per_second(self, work: Callable[[], object]) -> float:
        """Valid tokens per second."""
        timer = Timer()
        work()
        return sum(len(window) for window in self.windows) / timer.seconds

    def extraction(self) -> float:
        """Our extraction, including syncing to disk."""
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        writer = StoreWriter(self.folder / "store")
        return self._tokens_per_second(lambda: make_shards(self.work, range(len(self.work.jobs)), writer))

    def bare(self) -> float:
        """The encoder alone over the same batches; all states are returned and none is kept."""

        def work() -> None:
            for batch in self.plan:
                tokens = collate([self.windows[int(i)] for i in batch], 0, CPU)
                hidden_states(self.encoder.model, tokens, range(self.encoder.layers))

        with torch.inference_mode():
            return self._tokens_per_second(work)

    def products(self) -> float:
        """Tokens per second if the encoder consisted of its matrix products only."""
        config = self.encoder.model.config
        width, inner = int(config.hidden_size), int(config.intermediate_size)
        a, b = torch.randn(2048, width), torch.randn(width, inner)
        a @ b
        timer, products_done = Timer(), 0
        while timer.seconds < PRODUCT_SECONDS:
            a @ b
            products_done += 1
        flops = products_done * 2 * 2048 * width * inner / timer.seconds
        lengths = np.array([len(window) for window in self.windows], float)
        per_layer = 2 * (4 * width**2 + 2 * width * inner) * lengths + 4 * lengths**2 * width
        return float(lengths.sum() * flops / (per_layer.sum() * (self.encoder.layers - 1)))

    def reads(self) -> float:
        """Shuffled batches of 32 read from the extracted shards, for several epochs."""

        def work() -> None:
            for epoch in range(EPOCHS):
                for path in sorted((self.folder / "store").rglob("shard-*.safetensors")):
                    shard = read_shard(path)
                    lengths = shard["lengths"].numpy().astype(np.int64)
                    for chosen in read_batches(lengths, 32, np.random.default_rng(epoch)):
                        layer_batch(shard, chosen, "span").states.numel()

        return self._tokens_per_second(work) * EPOCHS


def _representative(pool: Sequence[Window], count: int, random: np.random.Generator) -> list[Window]:
    """``count`` windows in random order at even quantiles of length, as a small random sample would vary too much."""
    by_length = sorted(pool, key=len)
    positions = ((np.arange(count) + 0.5) * len(pool) / count).astype(int)
    return [by_length[int(position)] for position in random.permutation(positions)]


if __name__ == "__main__":
    main()
