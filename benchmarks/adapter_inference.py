"""What adapters cost when an encoder is used: time with them by time without, in turns.

python benchmarks/adapter_inference.py [--rounds 15] [--tokens 128]

`minilm` and a random encoder of BERT-base's shape, adapters of sizes 64 and 768 and LoRA where peft is there,
one text and sixteen at once. Writes results/adapter_inference.csv: a row each with the median ratio.
Hulburd reports about 20 % more for BERT-base and size 768 on a GPU, batches of eight.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers

import bertvision as bv
from bertvision.encoder.hidden import TokenBatch, collate, hidden_states
from bertvision.encoder.methods import put_in
from bertvision.encoder.small import with_same_weights
from bertvision.runtime import Timer, seeded
from rows import Rows
from windows import random_windows

BATCHES = (1, 16)
INSIDE = ("adapters:size=64,share=none", "adapters:size=64,share=3", "adapters:size=768,share=none")


def main() -> None:
    options = _options()
    rows = Rows(options.results / "adapter_inference.csv", fresh=True)
    bases = {"minilm": bv.load_encoder("minilm").model, "random 12x768": _bert_base()}
    for name, model in bases.items():
        for what in _inside():
            with_them = with_same_weights(model)
            with seeded(0):
                put_in(with_them, what)
            for size in BATCHES:
                windows = random_windows([options.tokens] * size, np.random.default_rng(0))
                ratio = _ratio(with_them, model, collate(windows, 0, torch.device("cpu")), options.rounds)
                settings = {"encoder": name, "inside": what, "batch": size, "tokens": options.tokens}
                rows.add({**settings, "ratio": round(ratio, 3)})
                print(f"{name:>14}  {what:<32} batch {size:>2}: {ratio:.3f} of the time without", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--results", type=Path, default=Path("results"))
    return parser.parse_args()


def _inside() -> list[str]:
    there = importlib.util.find_spec("peft") is not None
    return [*INSIDE, *(["lora:r=8,alpha=16,dropout=0.0"] if there else [])]


def _bert_base() -> Any:
    with seeded(0):
        return transformers.BertModel(transformers.BertConfig()).eval()


def _ratio(one: Any, other: Any, batch: TokenBatch, rounds: int) -> float:
    """Median over rounds of one's seconds by the other's; who goes first changes, and the first round warms up."""
    ratios = []
    with torch.inference_mode():
        for turn in range(rounds + 1):
            order = [("one", one.eval()), ("other", other.eval())]
            seconds = {}
            for name, model in order if turn % 2 else order[::-1]:
                timer = Timer()
                hidden_states(model, batch, (model.config.num_hidden_layers,))
                seconds[name] = timer.seconds
            ratios.append(seconds["one"] / seconds["other"])
    return median(ratios[1:])


if __name__ == "__main__":
    main()
