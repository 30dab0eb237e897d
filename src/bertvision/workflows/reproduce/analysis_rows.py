"""Rows of analyses, of subsets of the training data, of epochs of a fit, and of adapters switched off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.config import read_recipe
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty, reuse
from bertvision.core.records import Predictions
from bertvision.encoders.loading import ENCODER_FILE, load_encoder
from bertvision.evaluation.analyses.adapter_ablation import percent_lost
from bertvision.evaluation.analyses.answers import context_word_counts
from bertvision.evaluation.analyses.breakdowns import answer_types, context_length
from bertvision.evaluation.analyses.layer_weights import weighted_centre
from bertvision.evaluation.analyses.second_best import second_answers_correct, second_best_row
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.scoring import score_predictions
from bertvision.runs.folder import head_folder
from bertvision.runs.prepare import fit_into, load_recipe_task
from bertvision.runs.reader import FINDINGS, Run
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fitted_head import load_fitted
from bertvision.training.predict import predict, predict_own
from bertvision.training.tune import TUNING_CHECKPOINT, tune
from bertvision.workflows.analyse import ranked_answers
from bertvision.workflows.file_analyses import named_answers
from bertvision.workflows.refit_analyses import NONE, draw_subset, fit_on_subset, scores_without_adapters, subset_size
from bertvision.workflows.reproduce.defaults import recipe_head
from bertvision.workflows.reproduce.experiments import Experiments
from bertvision.workflows.reproduce.resampling import interval_of_rows, score_on_all, seed_group_of
from bertvision.workflows.reproduce.rows import RowResult, board_row, mean_result, scores_and_answers, tuned_row
from bertvision.workflows.reproduce.specs import AblationRow, AnalysisRow, EpochRow, SubsetRow, board_name, head_of

ALL = "all"
MIN_RISING_SHARE = 0.95
"""Share of resamples in which the last layer must be better than the first before "early" is reported."""

Values = dict[str, float]
Intervals = dict[str, tuple[float, float]]


def analysis_row(experiments: Experiments, row: AnalysisRow) -> RowResult:
    """A row of an analysis, with the answers that it analyses."""
    board = board_row(experiments, row)
    states, run = experiments.run(row.run, row.data, row.required_heads)
    name = board_name(row.predictor, row.shape)
    values: Values
    intervals: Intervals = {}
    if row.study == "layer-weights":
        values, intervals = _layer_weights(run, name)
    elif row.study == "layers":
        values, intervals = _layers(experiments, row, run, states)
    elif row.study == "second-best":
        values, intervals = _second_best(run, name, states)
    else:
        versus = None if row.versus is None else board_name(row.versus, row.shape)
        values = _finding_row(experiments, row.study, run, name, versus)
    return replace(board, values=values, intervals=intervals)


def _finding_row(experiments: Experiments, study: str, run: Run, name: str, versus: str | None) -> Values:
    """Numbers of a finding's row; analyses of answers are made of these predictors only."""
    examples = run.task[run.board.split]
    if study == "context-length":
        names = [name] if versus is None else [name, versus]
        answers = [named_answers(run, predictor, "row") for predictor in names]
        finding = context_length(context_word_counts(examples), answers)
    elif study == "answer-types":
        finding = answer_types(examples, [named_answers(run, name, "row")])
    else:
        finding = experiments.finding(study, run.folder)
    for row in finding.rows:
        if _without_seed(row["name"]) == name and _without_seed(row.get("against")) == versus:
            return _numbers(row)
    return {}


def _numbers(row: Mapping[str, Any]) -> Values:
    return {key: float(value) for key, value in row.items() if isinstance(value, int | float)}


def _without_seed(title: Any) -> str | None:
    return None if title is None else str(title).rpartition("@")[0] or str(title)


def _second_best(run: Run, name: str, states: States) -> tuple[Values, Intervals]:
    """The share of wrong answers whose second best is right, with an interval over whole contexts."""
    task = run.task
    seed = next(row.seed for row in run.board.rows if row.name == name)  # the first is the best on inner
    if seed is None:
        predictions = predict_own(states["dev"])
    else:
        predictions = predict(load_fitted(head_folder(run.folder, name, seed))[0], states["dev"])[0]
    ranked = ranked_answers(task, predictions, score_predictions(task, predictions).result.threshold)
    second = second_answers_correct(task, task["dev"], ranked)
    wrong = np.array([right is not None for right in second])
    rescued = np.array([bool(right) for right in second])

    def share(rows: NDArray[np.int64]) -> float:
        return 100 * float(rescued[rows].sum() / wrong[rows].sum()) if wrong[rows].any() else math.nan

    ends = interval_of_rows(Comparison(task, "dev"), share)
    return _numbers(second_best_row(task, name, task["dev"], second)), {} if ends is None else {"share": ends}


def _layer_weights(run: Run, name: str) -> tuple[Values, Intervals]:
    """Mean weight of every state, and the centre of the weights: 0 is the first state, 1 the last."""
    heads = [head for head in run.heads if head.spec == name and head.weights]
    means = [fmean(column) for column in zip(*(head.weights for head in heads), strict=True)]
    centres = [weighted_centre(list(enumerate(head.weights))) for head in heads]
    values = {f"state {state}": weight for state, weight in zip(heads[0].states, means, strict=True)}
    values["centre"] = fmean(centres)
    rise = rise_start(means)
    if rise is not None:
        values["rises_after"] = float(heads[0].states[rise])
    return values, _range_over_seeds("centre", centres)


def rise_start(weights: Sequence[float]) -> int | None:
    """The index from which on every weight exceeds the one before; None if the last one does not."""
    index = len(weights) - 1
    while index > 0 and weights[index - 1] < weights[index]:
        index -= 1
    return index if index < len(weights) - 1 else None


def _range_over_seeds(key: str, values: Sequence[float]) -> Intervals:
    """The range over seeds as an interval; a single seed has none."""
    return {key: (min(values), max(values))} if len(values) > 1 else {}


def _layers(experiments: Experiments, row: AnalysisRow, run: Run, states: States) -> tuple[Values, Intervals]:
    """Score of a linear head on each state (mean over tokens), and how early it rises, with a bootstrap interval."""
    specs = [recipe_head(f"probe:layers={state},read=mean", row.shape) for state in range(len(states.layers))]
    task, config = run.task, read_recipe(run.folder / "recipe.toml").fit
    fitted = fit_into(run.folder / FINDINGS / "by-layer", states, specs, experiments.shared.seeds, config)
    answers: dict[str, list[Mapping[str, Any]]] = {spec: [] for spec in specs}
    for head, predictions in zip(fitted, predict(fitted, states["dev"]), strict=True):
        answers[head.spec].append(score_predictions(task, predictions).result.answers)
    comparison = Comparison(task, "dev")
    groups = [seed_group_of(comparison, seeds) for seeds in answers.values()]
    by_state = [group for group in groups if group is not None]
    scores = [score_on_all(comparison, group) for group in by_state]
    values = {f"state {state}": score for state, score in enumerate(scores)}
    resampled = np.stack([group.drawn.mean(0) for group in by_state])  # (states, resamples)
    rises = [rise for column in resampled.T.tolist() if (rise := early_rise(column)) is not None]
    rise = early_rise(scores)
    if rise is None or len(rises) < MIN_RISING_SHARE * resampled.shape[1]:
        return values, {}
    ends = comparison.interval(np.array(rises))
    return {**values, "early": rise}, {} if ends is None else {"early": ends}


def early_rise(scores: Sequence[float]) -> float | None:
    """Mean over k of (s_k - s_0) / (s_last - s_0); None if the last score is not above the first.

    1/2 for a linear rise, near 0 if only the last layers gain.
    """
    gain = scores[-1] - scores[0]
    if gain <= 0:
        return None
    return fmean((score - scores[0]) / gain for score in scores[1:-1]) if len(scores) > 2 else 0.5


def epoch_row(experiments: Experiments, row: EpochRow) -> RowResult:
    """Score on inner after an epoch of a fit (dev is scored only once, at the end)."""
    _, run = experiments.run(row.run, row.data, row.required_heads)
    inner = []
    for head in run.heads:
        if head.spec == head_of(row.predictor, row.shape):
            inner += [float(epoch["inner"]) for epoch in head.history if epoch["epoch"] == row.epoch]
    values = {"inner": fmean(inner)} if inner else {}
    return RowResult(row.name, values, _range_over_seeds("inner", inner), folder=str(run.folder))


def subset_row(experiments: Experiments, row: SubsetRow) -> RowResult:
    """A head on a subset of the training data, drawn for each seed; the leaderboard's row for all data."""
    if row.limited:
        return _subset_tuned_row(experiments, row)
    if row.share == 1.0:
        return board_row(experiments, row)
    states, run = experiments.run(row.run, row.data, row.required_heads)
    spec, config = board_name(row.predictor, row.shape), read_recipe(run.folder / "recipe.toml").fit
    fitted = []
    for seed in experiments.shared.seeds_of(spec):
        fitted += fit_on_subset(run.folder, states, run.task, spec, row.share, seed, config)
    return _predictions_row(row, predict(fitted, states["dev"]), run.task, run.folder)


def _predictions_row(row: SubsetRow, predictions: Sequence[Predictions], task: Task, folder: Path) -> RowResult:
    seeds = [scores_and_answers(score_predictions(task, seed).result) for seed in predictions]
    return mean_result(row.name, seeds, task, folder)


def _subset_tuned_row(experiments: Experiments, row: SubsetRow) -> RowResult:
    """Encoder and head on the same subset: the encoder is tuned on the first seed's, for the epochs of the curve."""
    source, shared = experiments.source("run", row.run), experiments.shared
    name, _, at = source.encoder.partition("@")
    curve, epochs = experiments.source("curve", name), float(at)
    # The same number of warm-up steps as the whole curve, because the same fraction of so few steps would be none.
    warmup = min(1.0, curve.tune.get("warmup", 0.0) * max(curve.at) / (epochs * row.share))
    recipe = experiments.recipe(curve, epochs=epochs, decay="constant", warmup=warmup)
    task = load_recipe_task(experiments.recipe(source, row.data))
    indices = draw_subset(task, subset_size(task, row.share), shared.seeds[0])
    subset = replace(task, splits={**task.splits, "train": tuple(task["train"][i] for i in sorted(indices))})
    made_from = hash_json([recipe.encoder, hashed_fields(recipe.data), hashed_fields(recipe.tune)])
    folder = experiments.out / "limited" / f"{row.run}-{row.share:g}-{made_from[:8]}"
    target = folder / "encoder"
    if not (target / ENCODER_FILE).exists():
        tune(load_encoder(recipe.encoder), subset, recipe.tune, folder / TUNING_CHECKPOINT).save_pretrained(target)
    states = extract(load_encoder(str(target)), subset, folder / "store", recipe.extract)
    spec = head_of(row.predictor, row.shape)
    if spec is None:
        return _predictions_row(row, [predict_own(states["dev"])], subset, folder)
    fitted = fit_into(folder, states, [spec], shared.seeds_of(spec), experiments.recipe(source).fit)
    return _predictions_row(row, predict(fitted, states["dev"]), subset, folder)


def ablation_row(experiments: Experiments, row: AblationRow) -> RowResult:
    """An adapted encoder without all of its adapters, or without those of the layer that costs most.

    The row without all adapters also has the percentage of the score that is lost for every span of layers.
    """
    whole = tuned_row(experiments, row)
    folder, task = Path(whole.folder), whole.task
    assert task is not None

    def score_spans() -> dict[str, Any]:
        results = scores_without_adapters(load_encoder(str(folder / "encoder")), task)
        del results[NONE]
        return {"spans": {f"{first}-{last}": scores_and_answers(result) for (first, last), result in results.items()}}

    made_from = hash_json(read_json_or_empty(folder / "own.json"))
    spans = reuse(folder / "ablated.json", made_from, score_spans)["spans"]
    score, scores = whole.values[task.metric], {key: span["scores"][task.metric] for key, span in spans.items()}
    lost = {key: percent_lost(score, scores[key]) for key in spans} if score > 0 else {}
    layers = [key for key in spans if len(set(key.split("-"))) == 1]
    # Of the spans of one layer, the one whose loss is largest.
    removed = f"1-{len(layers)}" if row.without == ALL else min(layers, key=lambda key: float(scores[key]))
    values = dict(spans[removed]["scores"])
    if lost:
        values["decrease"] = lost[removed]
    if row.without == ALL:
        values |= {f"decrease {key}": decrease for key, decrease in lost.items()}
    return RowResult(row.name, values, {}, (spans[removed]["answers"],), task, str(folder))
