"""Compare tuning methods: all weights, half of them, the last layer from the store, adapters, LoRA, biases.

python benchmarks/adapters.py --data DATA --out RUNS [--task mrpc sst2] [--seeds 0 1] [--lr adapters=1e-3]

DATA holds glue/. Every method tunes `minilm` for 3 epochs (one row, on MRPC, has the paper's 10), and heads are fitted
on the tuned encoder, so that each method is scored alone and with heads on top. Rows that are in results/adapters.csv
are not computed again; rerun the same command to resume. Stored states are removed once their rows are written;
`bertvision analyse RUN --ablation` still works. Draws results/adapters_TASK.svg. LoRA needs the extra peft.

Learning rates of methods that train few weights (LEARNING_RATES) were selected on inner of MRPC, seed 0, with
`--trial --task mrpc --seeds 0 --long 0 --method ... --lr NAME=X` (results/adapter_rates.csv). A trial with the settings
of a row of the comparison is copied to it. The long row has the paper's learning rate.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adapters_picture import FROM_STORE, METHODS, draw
from bertvision.core.config import Recipe, TuneConfig, built_in_recipe
from bertvision.core.files import folder_bytes
from bertvision.encoders.loading import ENCODER_FILE, load_encoder
from bertvision.runs.prepare import load_recipe_task
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.training.tune import TUNING_CHECKPOINT
from bertvision.training.tune_from_store import tune_from_store
from bertvision.workflows.run import run
from collect import read
from rows import Rows

LONG_CASE = ("mrpc", "adapters:size=64,share=none", 10.0)
"""One row with the paper's number of epochs."""

LEARNING_RATES = {"adapters": 1e-3, "lora": 2e-3, "bitfit": 3e-3}
"""The best learning rates tried, by method."""

HEADS = ("learned-pool", "compress:size=64,skip=true")
FOLDERS = {"mrpc": "MRPC", "sst2": "SST-2", "cola": "CoLA", "stsb": "STS-B"}
LIMITS = {"sst2": 10_000}


@dataclass(frozen=True)
class Case:
    """One tuned encoder and the heads on it."""

    task: str
    method: str
    epochs: float
    seed: int
    lr: float | None

    @property
    def key(self) -> dict[str, object]:
        asked_lr = "default" if self.lr is None else f"{self.lr:g}"
        length = {"epochs": f"{self.epochs:g}", "seed": self.seed, "asked_lr": asked_lr}
        return {"task": self.task, "method": self.method, **length}

    @property
    def folder(self) -> str:
        return "-".join(str(value).replace(" ", "-") for value in self.key.values())


def main() -> None:
    options = _options()
    trials = Rows(options.results / "adapter_rates.csv")
    rows = trials if options.trial else Rows(options.results / "adapters.csv")
    for case in _cases(options):
        if not rows.has(**case.key):
            rows.copy(trials, **case.key)
        if not rows.has(**case.key):
            folder = options.out / case.folder
            rows.add(*_measure(case, folder, options))
            for shard in (folder / "store").rglob("shard-*"):
                shard.unlink()
            print(f"done: {case.folder}", flush=True)
        if not options.trial:
            task_rows = [row for row in rows.read() if row["task"] == case.task]
            draw(task_rows, options.results / f"adapters_{case.task}.svg")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--task", nargs="+", default=["mrpc", "sst2"], choices=sorted(FOLDERS))
    parser.add_argument("--method", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--long", type=float, default=LONG_CASE[2], help="epochs of the one long row; 0 for none")
    parser.add_argument(
        "--lr", action="append", default=[], metavar="NAME=X", help="learning rate of all methods of this name"
    )
    parser.add_argument(
        "--trial", action="store_true", help="compare learning rates: rows go to adapter_rates.csv, no chart"
    )
    parser.add_argument("--limit", type=int, default=None, help="fewer examples, to try it out")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    given_rates = {name: float(rate) for name, _, rate in (pair.partition("=") for pair in options.lr)}
    rates = {**({} if options.trial else LEARNING_RATES), **given_rates}
    for task in options.task:
        settings = [(method, options.epochs, seed) for seed in options.seeds for method in options.method]
        if options.long and task == LONG_CASE[0] and LONG_CASE[1] in options.method:
            settings.append((LONG_CASE[1], options.long, options.seeds[0]))
        for method, epochs, seed in settings:
            lr = None if epochs == options.long else rates.get(method.partition(":")[0])
            yield Case(task, method, epochs, seed, lr)


def _measure(case: Case, folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for the encoder alone, and one for every head and ensemble on top of it."""
    recipe = _recipe(case, options)
    if case.method.endswith(FROM_STORE):
        recipe = _tune_from_store(recipe, folder.with_name(f"{folder.name}-encoder"))
    run(recipe, folder)
    board = read(folder / "leaderboard.json")
    tuned = folder / "encoder" if recipe.tune.epochs else Path(recipe.encoder)
    record = read(tuned / ENCODER_FILE)["record"]
    saved = folder_bytes(folder / "encoder")
    return [_row(case, row, board["metric"], record, saved) for row in board["rows"]]


def _recipe(case: Case, options: argparse.Namespace) -> Recipe:
    data = {"data": str(options.data / "glue" / FOLDERS[case.task]), "limit": options.limit or LIMITS.get(case.task)}
    method = case.method.removesuffix(FROM_STORE)
    tune = {"method": method, "epochs": case.epochs, "seed": case.seed, **({} if case.lr is None else {"lr": case.lr})}
    values = {"data": data, "tune": tune, "extract": {"tokens": "cls"}, "heads": HEADS, "seeds": [case.seed]}
    return built_in_recipe(case.task, recipe_defaults, **values)


def _tune_from_store(recipe: Recipe, folder: Path) -> Recipe:
    """Tune the upper layers from stored states first; the run then uses that encoder without tuning."""
    if not (folder / ENCODER_FILE).exists():
        task, states = load_recipe_task(recipe), folder.with_name(f"{folder.name}-states")
        tuned = tune_from_store(
            load_encoder(recipe.encoder), task, states, recipe.tune, folder.with_suffix(f".{TUNING_CHECKPOINT}")
        )
        tuned.save_pretrained(folder)
        shutil.rmtree(states)
    return replace(recipe, encoder=str(folder), tune=TuneConfig(epochs=0, seed=recipe.tune.seed))


def _row(case: Case, board_row: dict[str, Any], metric: str, record: dict[str, Any], saved: int) -> dict[str, object]:
    cost = record["cost"]
    return {
        **case.key,
        "lr": f"{record['tune']['lr']:g}",
        "trained": cost["trained"],
        "saved_bytes": saved,
        "tune_seconds": round(cost["seconds"], 1),
        "predictor": board_row["name"],
        "kind": board_row["kind"],
        "metric": metric,
        "score": round(board_row["scores"][metric], 3),
        "accuracy": round(board_row["scores"]["accuracy"], 3) if "accuracy" in board_row["scores"] else "",
        "inner": round(board_row["inner"][metric], 3),
    }


if __name__ == "__main__":
    main()
