"""Inference time with adapters relative to without, measured in turns.

python benchmarks/adapter_inference.py [--rounds 15] [--tokens 128]

`minilm` and a random encoder of BERT-base's shape, adapters of sizes 64 and 768 and LoRA where peft is there,
one text and sixteen at once. Writes results/adapter_inference.csv: a row each with the median ratio.
Hulburd reports about 20 % more for BERT-base and size 768 on a GPU, batches of eight.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import bertvision as bv
from bertvision.core.runtime import seeded
from bertvision.encoders.delta_weights import clone_sharing_weights
from bertvision.encoders.hidden_states import TokenBatch, collate, hidden_states
from bertvision.encoders.methods import inject
from ratio import time_ratio
from rows import Rows
from windows import random_windows

BATCHES = (1, 16)
INJECTED = ("adapters:size=64,share=none", "adapters:size=64,share=3", "adapters:size=768,share=none")


def main() -> None:
    options = _options()
    rows = Rows(options.results / "adapter_inference.csv", fresh=True)
    bases = {"minilm": bv.load_encoder("minilm").model, "random 12x768": _bert_base()}
    for name, model in bases.items():
        for injected in _injected_modules():
            with_modules = clone_sharing_weights(model)
            with seeded(0):
                inject(with_modules, injected)
            for size in BATCHES:
                windows = random_windows([options.tokens] * size, np.random.default_rng(0))
                batch = collate(windows, 0, torch.device("cpu"))
                with torch.inference_mode():
                    ratio = time_ratio(_encoding(with_modules, batch), _encoding(model, batch), options.rounds)
                settings = {"encoder": name, "inside": injected, "batch": size, "tokens": options.tokens}
                rows.add({**settings, "ratio": round(ratio, 3)})
                print(f"{name:>14}  {injected:<32} batch {size:>2}: {ratio:.3f} of the time without", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--results", type=Path, default=Path("results"))
    return parser.parse_args()


def _injected_modules() -> list[str]:
    peft_installed = importlib.util.find_spec("peft") is not None
    return [*INJECTED, *(["lora:r=8,alpha=16,dropout=0.0"] if peft_installed else [])]


def _bert_base() -> Any:
    with seeded(0):
        return transformers.BertModel(transformers.BertConfig()).eval()


def _encoding(model: Any, batch: TokenBatch) -> Callable[[], object]:
    model.eval()
    return lambda: hidden_states(model, batch, (model.config.num_hidden_layers,))


if __name__ == "__main__":
    main()
