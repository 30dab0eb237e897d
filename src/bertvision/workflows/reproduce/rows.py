"""Rows of leaderboards, curves, tunings and counts: run what a row of a recipe needs, and read its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from bertvision.core.files import read_json_or_empty, reuse
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import parse_spec
from bertvision.encoders.loading import load_encoder
from bertvision.encoders.methods import METHODS, count_trained_parameters
from bertvision.evaluation.analyses.cost import efficiency
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.scoring import SplitScores, score_predictions
from bertvision.heads.info import head_info
from bertvision.runs.folder import head_folder
from bertvision.store.states import States
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import load_fitted
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.reproduce.defaults import recipe_head
from bertvision.workflows.reproduce.experiments import Experiments, Failed, Missing, NotAtScale, scaled_method
from bertvision.workflows.reproduce.resampling import constant_answer_score
from bertvision.workflows.reproduce.specs import (
    ENCODER,
    MAX_PREFIX,
    NO_ANSWER_ROW,
    BoardRow,
    CountRow,
    CurveRow,
    RowSpec,
    TunedRow,
    board_name,
)


@dataclass(frozen=True)
class RowResult:
    """Our numbers of a row: values and intervals by metric, and the answers to dev, one mapping per seed."""

    name: str
    values: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    answers: tuple[Mapping[str, Any], ...] = ()
    task: Task | None = None
    folder: str = ""  # of the run or tuning
    missing: Missing | None = None  # why there are no scores


def scores_and_answers(result: SplitScores) -> dict[str, Any]:
    """Scores and answers as plain data, to be saved."""
    return {"scores": result.scores, "answers": result.answers}


def mean_result(name: str, seeds: Sequence[Mapping[str, Any]], task: Task, folder: Path) -> RowResult:
    """Mean over seeds, each as :func:`scores_and_answers` returns it."""
    values = {key: fmean(seed["scores"][key] for seed in seeds) for key in seeds[0]["scores"]}
    return RowResult(name, values, {}, tuple(seed["answers"] for seed in seeds), task, str(folder))


def board_row(experiments: Experiments, row: BoardRow) -> RowResult:
    """A row of a leaderboard: the mean over seeds, and the interval of the task's metric."""
    states, run = experiments.run(row.run, row.data, row.required_heads)
    folder = run.folder
    if row.predictor == NO_ANSWER_ROW:
        # A predictor that never answers is right on every question without an answer.
        dev = run.task[run.board.split]
        right = 100 * sum(not example.answers for example in dev) / len(dev)
        empty = {example.id: "" for example in dev}
        return RowResult(row.name, {"exact": right, "f1": right}, {}, (empty,), run.task, str(folder))
    name = board_name(row.predictor, row.shape)
    rows = [seed for seed in run.board.rows if seed.name == name]
    if not rows and row.predictor == ENCODER:  # as it came: nothing of it was trained, so it predicts nothing
        return RowResult(row.name, {}, {}, (), run.task, str(folder))
    if not rows:
        raise Failed(f"{name} is not on the leaderboard of {folder}: its loss was not finite")
    if row.predictor.startswith(MAX_PREFIX):
        seeds = sorted(seed.seed for seed in rows if seed.seed is not None)
        ensembles = [_max_with_encoder(folder, name, seed, states, run.task) for seed in seeds]
        return mean_result(row.name, ensembles, run.task, folder)
    values = {key: fmean(seed.scores[key] for seed in rows) for key in rows[0].scores}
    values |= {"parameters": float(rows[0].parameters), "fit_seconds": rows[0].seconds}
    if rows[0].inner:
        values["inner"] = fmean(seed.inner[run.board.metric] for seed in rows)
    means = [mean.interval for mean in run.board.summary if mean.name == name and mean.interval is not None]
    intervals = {run.board.metric: means[0]} if means else {}
    answers = tuple(run.answers[name, seed.seed] for seed in rows if (name, seed.seed) in run.answers)
    return RowResult(row.name, values, intervals, answers, run.task, str(folder))


def _max_with_encoder(folder: Path, spec: str, seed: int, states: States, task: Task) -> dict[str, Any]:
    """The ensemble of encoder and head by the larger probability; cached in the run until the head changes."""
    fitted, fingerprint = load_fitted(head_folder(folder, spec, seed))

    def combine() -> dict[str, Any]:
        both = ensemble([predict_own(states["dev"]), *predict(fitted, states["dev"])], "max")
        return scores_and_answers(score_predictions(task, both).result)

    return reuse(folder / "mixed" / spec / f"{seed}.json", fingerprint, combine)


def curve_row(experiments: Experiments, row: CurveRow) -> RowResult:
    """A checkpoint of a tuning curve; not every scale has all epochs."""
    points = experiments.source("curve", row.curve).at
    if row.at not in points:
        raise NotAtScale(f"the curve has {', '.join(f'{at:g}' for at in points)} epochs")
    document = experiments.curve(row.curve)
    checkpoint = next(checkpoint for checkpoint in document["rows"] if checkpoint["epochs"] == row.at)
    values = {**checkpoint["scores"], "seconds": checkpoint["seconds"]}
    return RowResult(row.name, values, folder=checkpoint["encoder"])


def tuned_row(experiments: Experiments, row: TunedRow) -> RowResult:
    """An encoder tuned by a method, with its own head."""
    method, source = row.method, experiments.source("tune", row.tune)
    if method != "full":
        experiments.paths(experiments.dataset(row.data or source.data))  # raises NoData before the encoder is loaded
        encoder = load_encoder(experiments.encoder_of(source.encoder, row.data))
        method = scaled_method(method, encoder.layers - 1, encoder.width)
    folder = experiments.tuned(row.tune, row.data, method, row.head and recipe_head(row.head, row.shape))
    own, task = read_json_or_empty(folder / "own.json"), read_task(folder / "store" / "task")
    values = {**own["scores"], "trained": float(own["trained"]), "minutes": own["seconds"] / 60}
    points_per_tenfold = efficiency(
        own["scores"][task.metric], own["trained"], constant_answer_score(Comparison(task, "dev"))[0]
    )
    if points_per_tenfold is not None:
        values["efficiency"] = points_per_tenfold
    return RowResult(row.name, values, {}, (own["answers"],), task, str(folder))


def count_row(experiments: Experiments, row: CountRow) -> RowResult:
    """Parameters of a head or of a tuning method on the encoder shape of the row."""
    if parse_spec(row.count).name in METHODS:
        trained, whole = (count_trained_parameters(method, row.layers, row.width) for method in (row.count, "full"))
        values = {"parameters": float(trained), "percent": 100 * trained / whole}
    else:
        values = count_on_shape(row, recipe_head(row.count, row.shape))
    return RowResult(row.name, values, folder="counted")


def count_on_shape(row: RowSpec, spec: str) -> dict[str, float]:
    """Parameters of a head on the paper's encoder, and their percentage of it."""
    count = head_info(spec, Shape(row.layers + 1, row.width, row.tokens, row.outputs, cast(Kind, row.shape)))
    return {key: float(str(count[key])) for key in ("parameters", "percent")}
