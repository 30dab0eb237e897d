"""All heads that support a task on one leaderboard; expensive ones with one seed and one epoch.

python benchmarks/leaderboards.py squad --data DATA --out RUNS --encoder spans=RUN/encoder --encoder more=RUN/encoder
python benchmarks/leaderboards.py mrpc  --data DATA --out RUNS
python benchmarks/leaderboards.py airline --data DATA --out RUNS

DATA holds squad/, glue/ and crowdflower/. For SQuAD, the given encoders (tuned for two different
durations) are used without further tuning, and heads are fitted on a fixed sample of the training questions; for the
others `minilm` is tuned for an epoch first. Everything is kept in RUNS; rerun the same command to resume. Writes
results/heads_NAME.csv, one row per predictor.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from bertvision.core.config import DataConfig, FitConfig, Recipe, TuneConfig, built_in_recipe
from bertvision.core.records import CONTROL, Kind, Shape
from bertvision.heads.base import HEADS
from bertvision.heads.info import compatible_heads
from bertvision.runs.prepare import fit_into, prepare_run
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.workflows.conclude import conclude
from collect import save_leaderboard

EXPENSIVE_PREFIXES = (
    "inception",
    "text-xception",
    "xception:full=true",
    "token-cnn",
    "compress-twice",
    "ngrams",
    "compress:size=386",
)
"""Specs with these prefixes cost as much as all others together."""

SQUAD_LIMIT = 3000


@dataclass(frozen=True)
class LeaderboardPlan:
    """One leaderboard: its recipe, and the shape that its heads are built for."""

    name: str
    recipe: Recipe
    shape: Shape


def main() -> None:
    options = _options()
    for board in _leaderboard_plans(options):
        folder = options.out / board.name
        cheap, expensive = _split_by_cost(board)
        prepared = prepare_run(replace(board.recipe, heads=cheap), folder, [CONTROL, *cheap])
        states, specs = prepared.states, prepared.heads
        fit_into(folder, states, specs, board.recipe.seeds, board.recipe.fit)
        for spec in expensive:  # one by one, so that each finished fit is kept
            fit_into(folder, states, [spec], (0,), replace(board.recipe.fit, epochs=1))
        conclude(folder)
        save_leaderboard(f"heads_{board.name}", folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["squad", "mrpc", "airline"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--limit", type=int, default=None, help="fewer examples, to try it out")
    return parser.parse_args()


def _leaderboard_plans(options: argparse.Namespace) -> list[LeaderboardPlan]:
    if options.task == "squad":
        return [_squad(options, *pair.split("=", 1)) for pair in options.encoder]
    if options.task == "mrpc":
        data = DataConfig(data=str(options.data / "glue" / "MRPC"), limit=options.limit)
        recipe = replace(built_in_recipe("mrpc", recipe_defaults), data=data, seeds=(0, 1, 2))
        return [LeaderboardPlan("mrpc", recipe, _shape(2, "classify"))]
    table = str(options.data / "crowdflower" / "Airline-Sentiment-2-w-AA.csv")
    data = DataConfig(train=(table,), text_column="text", label_column=("airline_sentiment",), limit=options.limit)
    return [LeaderboardPlan("airline", Recipe("text", data=data, seeds=(0, 1, 2)), _shape(3, "classify"))]


def _squad(options: argparse.Namespace, name: str, encoder: str) -> LeaderboardPlan:
    folder = options.data / "squad"
    train, dev = (str(folder / f"squad2-{split}.json") for split in ("train", "dev"))
    data = DataConfig(train=(train,), dev=(dev,), limit=options.limit or SQUAD_LIMIT)
    tune, fit = TuneConfig(epochs=0), FitConfig(epochs=3)
    recipe = Recipe("squad2", encoder, seeds=(0, 1), data=data, tune=tune, fit=fit)
    return LeaderboardPlan(f"squad_{name}", recipe, _shape(2, "span"))


def _shape(outputs: int, kind: Kind) -> Shape:
    return Shape(7, 384, 384, outputs, kind)


def _split_by_cost(board: LeaderboardPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Cheap and expensive variants of all compatible heads."""
    compatible = compatible_heads(board.shape)
    expensive = tuple(
        spec for spec in compatible if spec.startswith(EXPENSIVE_PREFIXES) and not _sees_one_token(spec, board.shape)
    )
    return tuple(spec for spec in compatible if spec not in expensive), expensive


def _sees_one_token(spec: str, shape: Shape) -> bool:
    """Pointwise heads see a single token on label tasks, so only the largest is expensive."""
    return shape.kind != "span" and HEADS[spec.partition(":")[0]].pointwise and "full=true" not in spec


if __name__ == "__main__":
    main()
