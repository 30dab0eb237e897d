"""All heads that support a task on one leaderboard; expensive ones with one seed and one epoch.

python benchmarks/leaderboards.py squad --data DATA --out RUNS --encoder spans=RUN/encoder --encoder more=RUN/encoder
python benchmarks/leaderboards.py mrpc  --data DATA --out RUNS
python benchmarks/leaderboards.py airline --data DATA --out RUNS

DATA holds squad/, glue/ and crowdflower/. For SQuAD, the encoders given are taken as they are (two
amounts of tuning) and heads are fitted on a fixed sample of the training questions; for the others
`minilm` is tuned for an epoch first. Everything is kept in RUNS and not done twice: interrupted, the same
command goes on. Writes results/heads_NAME.csv, a row a predictor.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from bertvision.core.config import DataConfig, FitConfig, Recipe, TuneConfig, built_in_recipe
from bertvision.core.records import CONTROL, Kind, Shape
from bertvision.heads.base import HEADS
from bertvision.heads.summary import compatible_heads
from bertvision.runs.prepare import fit_into, prepare_run
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.workflows.conclude import conclude
from collect import keep_board

HEAVY = (
    "inception",
    "text-xception",
    "xception:full=true",
    "token-cnn",
    "compress-twice",
    "ngrams",
    "compress:size=386",
)
"""Specs that begin so cost as much as all the others together."""

SAMPLE = 3000


@dataclass(frozen=True)
class SearchBudget:
    """One leaderboard: what is run for it, and the shape that its heads are built for."""

    name: str
    recipe: Recipe
    shape: Shape


def main() -> None:
    options = _options()
    for plan in _plans(options):
        folder = options.out / plan.name
        light, heavy = _split(plan)
        prepared = prepare_run(replace(plan.recipe, heads=light), folder, [CONTROL, *light])
        states, specs = prepared.states, prepared.heads
        fit_into(folder, states, specs, plan.recipe.seeds, plan.recipe.fit)
        for spec in heavy:  # one by one: what is fitted is kept
            fit_into(folder, states, [spec], (0,), replace(plan.recipe.fit, epochs=1))
        conclude(folder)
        keep_board(f"heads_{plan.name}", folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["squad", "mrpc", "airline"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--limit", type=int, default=None, help="fewer examples, to try it out")
    return parser.parse_args()


def _plans(options: argparse.Namespace) -> list[SearchBudget]:
    if options.task == "squad":
        return [_squad(options, *pair.split("=", 1)) for pair in options.encoder]
    if options.task == "mrpc":
        data = DataConfig(data=str(options.data / "glue" / "MRPC"), limit=options.limit)
        recipe = replace(built_in_recipe("mrpc", recipe_defaults), data=data, seeds=(0, 1, 2))
        return [SearchBudget("mrpc", recipe, _shape(2, "classify"))]
    table = str(options.data / "crowdflower" / "Airline-Sentiment-2-w-AA.csv")
    data = DataConfig(train=(table,), text_column="text", label_column=("airline_sentiment",), limit=options.limit)
    return [SearchBudget("airline", Recipe("text", data=data, seeds=(0, 1, 2)), _shape(3, "classify"))]


def _squad(options: argparse.Namespace, name: str, encoder: str) -> SearchBudget:
    folder = options.data / "squad"
    train, dev = (str(folder / f"squad2-{split}.json") for split in ("train", "dev"))
    data = DataConfig(train=(train,), dev=(dev,), limit=options.limit or SAMPLE)
    tune, fit = TuneConfig(epochs=0), FitConfig(epochs=3)
    recipe = Recipe("squad2", encoder, seeds=(0, 1), data=data, tune=tune, fit=fit)
    return SearchBudget(f"squad_{name}", recipe, _shape(2, "span"))


def _shape(outputs: int, kind: Kind) -> Shape:
    return Shape(7, 384, 384, outputs, kind)


def _split(plan: SearchBudget) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Light and heavy variants of all heads that serve the kind."""
    serving = compatible_heads(plan.shape)
    heavy = tuple(spec for spec in serving if spec.startswith(HEAVY) and not _one_token(spec, plan.shape))
    return tuple(spec for spec in serving if spec not in heavy), heavy


def _one_token(spec: str, shape: Shape) -> bool:
    """Pointwise heads look at one pseudo-token for a label, so that none but the largest is heavy."""
    return shape.kind != "span" and HEADS[spec.partition(":")[0]].pointwise and "full=true" not in spec


if __name__ == "__main__":
    main()
