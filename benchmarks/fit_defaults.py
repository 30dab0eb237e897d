"""Select learning rate, batch size and epochs for heads: a grid on finished runs, scored on inner.

python benchmarks/fit_defaults.py RUN RUN RUN [--rates 3e-4 1e-3 3e-3] [--batches 16 32 64] [--epochs 3 6 12]

Each RUN is a folder made by ``bertvision run``; its store is read, nothing in it is changed. Writes
results/fit_defaults.csv (or --to FILE), one row per run, setting, head and seed; existing rows are kept. With
other --heads it compares options of one head the same way, e.g. those of context-conv in
results/context_conv.csv.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import bertvision as bv
from bertvision.evaluation.scoring import score_inner
from bertvision.heads.base import is_solved
from bertvision.heads.info import expand_head_words
from bertvision.tasks.task import read_task
from rows import Rows


def main() -> None:
    options = _options()
    rows = Rows(options.to)
    for folder, lr, batch, epochs in itertools.product(options.runs, options.rates, options.batches, options.epochs):
        settings = {"run": folder.name, "lr": f"{lr:g}", "batch": batch, "epochs": epochs}
        store = bv.Store(folder / "store")
        specs = [spec for spec in expand_head_words(options.heads, store.shape) if not is_solved(spec)]
        heads = [spec for spec in specs if not rows.has(**settings, head=spec)]
        if not heads:
            continue
        task, table = read_task(store.folder / "task"), store["inner"].table()
        for head in bv.fit(heads, store, options.seeds, lr=lr, batch=batch, epochs=epochs, validation="inner"):
            score = score_inner(task, head.inner, table).scores[task.metric]
            facts = {"head": head.spec, "seed": head.seed, "metric": task.metric, "inner": round(score, 3)}
            rows.add({**settings, **facts, "best_epoch": head.best_epoch, "seconds": round(head.seconds, 2)})
        print(settings, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--batches", nargs="+", type=int, default=[32])
    parser.add_argument("--epochs", nargs="+", type=int, default=[3, 6])
    parser.add_argument("--heads", nargs="+", default=["quick"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--to", type=Path, default=Path("results/fit_defaults.csv"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
