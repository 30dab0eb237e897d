"""Select the learning rate of the embedded encoder: one tuned encoder per learning rate, scored on inner.

python benchmarks/tune_rates.py --data FOLDER [--task squad mrpc airline] [--rates 5e-5 1.5e-4 3e-4]

Writes results/tune_rates.csv, one row per setting; existing rows are not computed again. A sample of the training
examples is used (2,500 questions, 3,000 texts); dev is not used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import bertvision as bv
from bertvision.evaluation.scoring import score_inner, score_split
from data import load_named, sample_task
from rows import Rows

SAMPLES = {"squad": (2500, 600), "mrpc": (None, None), "airline": (3000, None)}


def main() -> None:
    options = _options()
    rows = Rows(Path("results/tune_rates.csv"))
    for name in options.task:
        train, inner = SAMPLES[name]
        task = sample_task(load_named(name, options.data), train, inner, 1)
        for lr in options.rates:
            settings = {
                "task": name,
                "lr": f"{lr:g}",
                "batch": options.batch,
                "epochs": options.epochs,
                "head": options.head or "plain",
                "seed": options.seed,
            }
            if rows.has(**settings):
                continue
            rows.add({**settings, **_measure(task, lr, options)})
            print(rows.read()[-1], flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", nargs="+", default=["squad", "mrpc", "airline"], choices=sorted(SAMPLES))
    parser.add_argument("--rates", nargs="+", type=float, default=[5e-5, 1.5e-4, 3e-4])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--head", default=None)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _measure(task: bv.Task, lr: float, options: argparse.Namespace) -> dict[str, object]:
    """Tune on train, score the native head on inner."""
    settings = {"epochs": options.epochs, "batch": options.batch, "head": options.head, "seed": options.seed}
    tuned = bv.tune(bv.load_encoder("minilm"), task, lr=lr, **settings)
    model = bv.Model(tuned, "encoder", task, threshold=0.0 if task.no_answer else None)
    logits, table = model.outputs(task["inner"])
    fitted_threshold = score_inner(task, logits, table)
    zero_threshold = score_split(task, "inner", logits, table)
    return {
        "train": len(task["train"]),
        "inner": len(task["inner"]),
        "steps": tuned.record["tune"]["steps"],
        "loss": round(tuned.record["cost"]["loss"], 4),
        "metric": task.metric,
        "score": round(fitted_threshold.scores[task.metric], 3),
        "score_at_zero": round(zero_threshold.scores[task.metric], 3),
        "has_answer_f1": round(fitted_threshold.scores.get("HasAns_f1", float("nan")), 3),
        "seconds": round(tuned.record["cost"]["seconds"], 1),
    }


if __name__ == "__main__":
    main()
