"""Tune the last layer from stored states and from text: same score, and the speed-up.

python benchmarks/from_store.py --data DATA --scratch FOLDER [--epochs 3] [--seeds 0 1 2] [--k 5]

MRPC (DATA/glue/MRPC) with `minilm`. The state below the last layer is stored once, and its seconds are a row of
their own; each seed is tuned both ways, one after the other. Writes results/from_store.csv; existing rows are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import bertvision as bv
from bertvision.core.config import ExtractConfig
from bertvision.core.progress import Timer
from bertvision.training.tune_from_store import tune_from_store
from bertvision.workflows.tuning_costs import score_encoder
from rows import Rows


def main() -> None:
    options = _options()
    rows = Rows(options.to)
    encoder, task = bv.load_encoder("minilm"), bv.load_task("mrpc", data=options.data / "glue" / "MRPC")
    settings = {"method": f"freeze:k={options.k}", "epochs": options.epochs}
    threads = {"threads": torch.get_num_threads()}
    store = options.scratch / f"state{options.k}"
    if not rows.has(way="write the store", seed=""):
        timer = Timer()
        bv.extract(encoder, task, store, ExtractConfig(layers=str(options.k)))
        seconds = {"seconds": round(timer.seconds, 1)}
        rows.add({"way": "write the store", "seed": "", **settings, **seconds, **_EMPTY, **threads})
    for seed in options.seeds:
        for way in ("ordinary", "from store"):
            if not rows.has(way=way, seed=seed):
                measured = _measure(way, encoder, task, store, settings, seed)
                rows.add({"way": way, "seed": seed, **settings, **measured, **threads})


_EMPTY = {"metric": "", "inner": "", "dev": ""}


def _measure(
    way: str, encoder: bv.Encoder, task: bv.Task, store: Path, settings: dict[str, object], seed: int
) -> dict[str, object]:
    if way == "ordinary":
        tuned = bv.tune(encoder, task, seed=seed, **settings)
    else:
        tuned = tune_from_store(encoder, task, store, seed=seed, **settings)
    scored = score_encoder(tuned, task)
    assert scored.inner is not None
    inner, dev = (round(split_scores.scores[task.metric], 3) for split_scores in (scored.inner, scored.result))
    return {"seconds": round(tuned.record["cost"]["seconds"], 1), "metric": task.metric, "inner": inner, "dev": dev}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--k", type=int, default=5, help="state that is read; the layers above it are tuned")
    parser.add_argument("--to", type=Path, default=Path("results/from_store.csv"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
