"""Cost of a tuning step with frozen layers relative to the full step: ratios, measured in turns in one run.

python benchmarks/tune_cost.py [--layers 12] [--width 384] [--rounds 7]

A random BERT of that shape, and `minilm`, on random tokens. Writes results/tune_cost.csv: one row per method with the
median ratio to the full step and the number of trained parameters. An extraction pass over the same tokens is a row
too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers

import bertvision as bv
from bertvision.core.config import ExtractConfig, TuneConfig
from bertvision.core.progress import Timer
from bertvision.core.records import Shape, Window
from bertvision.core.runtime import choose_device, seeded
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.encoders.partial import upper_layers
from bertvision.heads.base import build_head
from bertvision.training.shard_builder import ShardBuilder
from bertvision.training.tune_from_store import PrefixTuner, PrefixWindow
from bertvision.training.tuner import Tuner
from rows import Rows
from windows import random_windows

BATCH, TOKENS = 16, 128


def main() -> None:
    options = _options()
    random = _random_encoder(options.layers, options.width)
    rows = Rows(Path("results/tune_cost.csv"), fresh=True)
    for name, encoder in ((f"random {options.layers}x{options.width}", random), ("minilm", bv.load_encoder("minilm"))):
        depth = encoder.layers - 1
        for method, ratio, trained in _ratios(encoder, options.rounds):
            rows.add({"encoder": name, "method": method, "layers": depth, "ratio": round(ratio, 3), "trained": trained})
            print(f"{name:>16}  {method:<38} {ratio:.3f} of a full step, {trained:,} trained", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def _random_encoder(layers: int, width: int) -> Encoder:
    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 32, intermediate_size=4 * width
    )
    with seeded(0):
        model = transformers.BertModel(config)
    return Encoder(f"random {layers}x{width}", model, bv.load_encoder("minilm").tokenizer)


def _ratios(encoder: Encoder, rounds: int) -> list[tuple[str, float, int]]:
    """All kinds of step in turns, so that a busy machine slows all equally; ratios to the full step of each round."""
    depth = encoder.layers - 1
    methods = ["full", f"freeze:k={depth},norms=true", f"freeze:k={depth}", f"freeze:k={depth - 3}"]
    methods += [f"freeze:k={depth - 1}"]
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        steps = {method: stack.enter_context(_stepping(encoder, method)) for method in methods}
        steps[f"freeze:k={depth - 1} from store"] = stack.enter_context(_from_store(encoder, depth - 1))
        steps["extraction pass"] = stack.enter_context(_extraction(encoder))
        for round_number in range(rounds + 1):
            for name, (step, _) in steps.items():
                timer = Timer()
                step()
                if round_number:  # the first round allocates buffers and optimiser states
                    seconds.setdefault(name, []).append(timer.seconds)
        full = seconds["full"]
        return [
            (name, median(a / b for a, b in zip(seconds[name], full, strict=True)), trained)
            for name, (_, trained) in steps.items()
        ]


TimedStep = tuple[Callable[[], Any], int]


def _windows() -> list[Window]:
    return random_windows([TOKENS] * BATCH, np.random.default_rng(0))


def _head(encoder: Encoder) -> Any:
    return build_head("probe:layers=last1", Shape(encoder.layers, encoder.width, TOKENS, 2, "span"))


@contextmanager
def _stepping(encoder: Encoder, method: str) -> Iterator[TimedStep]:
    config = TuneConfig(method=method, lr=1e-5, batch=BATCH)
    tuner = Tuner(encoder.copy(), _head(encoder), config, 1000, choose_device("cpu"))
    windows = _windows()
    yield (lambda: tuner.step(windows)), tuner.trained


@contextmanager
def _from_store(encoder: Encoder, k: int) -> Iterator[TimedStep]:
    copy, windows = encoder.copy(), _windows()
    config = TuneConfig(method=f"freeze:k={k}", lr=1e-5, batch=BATCH)
    with torch.inference_mode():
        states = hidden_states(copy.model.eval(), collate(windows, 0, choose_device("cpu")), (k,)).layers[0].half()
    batch = [PrefixWindow(window, state) for window, state in zip(windows, states.clone(), strict=True)]
    with upper_layers(copy.model, k) as feed:
        tuner = PrefixTuner(copy, _head(encoder), config, 1000, choose_device("cpu"), below=k, feed=feed)
        yield (lambda: tuner.step(batch)), tuner.trained


@contextmanager
def _extraction(encoder: Encoder) -> Iterator[TimedStep]:
    """A forward pass that encodes every state into shard buffers, without writing to disk."""
    windows, builder = _windows(), ShardBuilder(encoder.copy(), range(encoder.layers), ExtractConfig(device="cpu"))
    buffers = builder.codec.buffers(BATCH * TOKENS, encoder.layers, encoder.width)
    yield (lambda: builder.run_batch(windows, buffers, builder.codec, {})), 0


if __name__ == "__main__":
    main()
