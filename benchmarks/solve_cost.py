"""CPU time of solving ridge heads, relative to one encoder pass over the same texts.

python benchmarks/solve_cost.py [--texts 10000] [--tokens 60] [--rounds 3]

The features are those of real states: the mean over tokens of random words in every layer of the embedded encoder.
Labels and values depend on them, with noise. The encoder pass is measured on a sample of the texts, in turns with the
solvers. Writes results/solve_cost.csv.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bertvision.core.summaries import summarise
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import load_encoder
from bertvision.heads.solvers import Design, best_ridge, logistic_path
from bertvision.training.solve import FeatureBuffer
from rows import Rows
from windows import random_windows

BATCH, SAMPLE, FOLDS, PATIENCE = 64, 1024, 5, 2


@torch.inference_mode()
def read_states(count: int, tokens: int) -> Tensor:
    """The mean over tokens of random texts, in every layer: (texts, layers x width)."""
    encoder, random = load_encoder("minilm"), np.random.default_rng(0)
    means = []
    for first in range(0, count, BATCH):
        windows = random_windows([tokens] * min(BATCH, count - first), random)
        batch = collate(windows, encoder.tokenizer.pad_token_id, torch.device("cpu"))
        states = hidden_states(encoder.model, batch, range(encoder.layers)).layers
        means.append(torch.cat([summarise(layer, batch.mask, "mean") for layer in states], dim=1))
    return torch.cat(means)


def buffer_of(features: Tensor) -> FeatureBuffer:
    buffer = FeatureBuffer(*features.shape, on_disk=False)
    buffer.write(torch.arange(len(features)), features)
    return buffer


def solve_labels(buffer: FeatureBuffer, labels: Tensor, folds: Tensor) -> None:
    """The path of penalties of a head on two labels, to the end that ``fit`` gives it."""
    losses: list[float] = []
    for solution in logistic_path(Design(buffer), F.one_hot(labels, 2).float(), folds):
        assert solution.held_out is not None
        losses.append(float(F.cross_entropy(solution.held_out, labels)))
        if len(losses) - 1 - losses.index(min(losses)) >= PATIENCE:
            return


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("texts", 10_000), ("tokens", 60), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    features = read_states(options.texts, options.tokens)
    generator = torch.Generator().manual_seed(0)
    scores = F.normalize(features - features.mean(0)) @ torch.randn(features.shape[1], generator=generator)
    values = scores / scores.std() + torch.randn(len(scores), generator=generator)
    buffer, folds = buffer_of(features), torch.randint(FOLDS, (len(features),), generator=generator)
    works: dict[str, Callable[[], object]] = {
        "encoder pass": lambda: read_states(SAMPLE, options.tokens),
        "values": lambda: list(best_ridge(Design(buffer), values[:, None], folds)),
        "two labels": lambda: solve_labels(buffer, (values > 0).long(), folds),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            seconds[name].append(cpu_seconds(work))
    encoder = median(seconds["encoder pass"]) * options.texts / SAMPLE
    rows = Rows(Path("results/solve_cost.csv"), fresh=True)
    for name in ("values", "two labels"):
        taken = median(seconds[name])
        facts = {
            "texts": options.texts,
            "tokens": options.tokens,
            "features": features.shape[1],
            "head": f"ridge, {name}",
        }
        rows.add({**facts, "cpu_seconds": round(taken, 2), "of_encoder_pass": round(taken / encoder, 4)})
        print(f"ridge, {name}: {taken:.1f} s, {100 * taken / encoder:.1f} % of an encoder pass of {encoder:.0f} s")


if __name__ == "__main__":
    main()
