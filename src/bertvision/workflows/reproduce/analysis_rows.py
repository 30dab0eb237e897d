"""Rows that look closer: analyses of a run, shares of its data, epochs of a fit, adapters switched off."""

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
from bertvision.encoders.loading import RECORD, load_encoder
from bertvision.evaluation.analyses.answers import Said, context_words, hear
from bertvision.evaluation.analyses.breakdowns import answer_types, context_length
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.second_best import rescue_row, rescues
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.scoring import score_predictions
from bertvision.heads.base import canonical_spec
from bertvision.runs.prepare import fit_into
from bertvision.runs.reader import FINDINGS, Run, row_title
from bertvision.store.states import Portion, States
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.predict import predict, predict_own
from bertvision.training.tune import SAVED, tune
from bertvision.workflows.analyse import ranked_answers
from bertvision.workflows.refit_analyses import NONE, drawn, without_spans
from bertvision.workflows.reproduce.experiments import Workshop
from bertvision.workflows.reproduce.resampling import drawn_ends, point, side_of
from bertvision.workflows.reproduce.row_sources import Entry, board_entry, head_of, predicted, told, tune_entry
from bertvision.workflows.reproduce.specs import Line

ALL = "all"
SURE = 0.95
"""Share of draws in which the last layer must be better than the first before it is told how early that comes."""


def looked_at(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """A row of an analysis, with the answers that it is about."""
    board = board_entry(shop, line, heads)
    place, states, run = shop.run(str(line.run), line.data, heads)
    name = head_of(line.who) or "encoder"
    if line.study == "layer-weights":
        return replace(board, **_weights(run, name))
    if line.study == "layers":
        return replace(board, **_by_layer(shop, place, states, run.task))
    if line.study == "second-best":
        return replace(board, **_second_best(line, run, predicted(line.who, run, place, states)[0]))
    finding = _finding(shop, line, run, board)
    return replace(board, values=_numbers(finding, name, line.against), ends={})


def _numbers(finding: Finding, name: str, against: str | None = None) -> dict[str, float]:
    row = next((row for row in finding.rows if _is_about(row, name, against)), {})
    return _floats(row)


def _floats(row: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in row.items() if isinstance(value, int | float)}


def _second_best(line: Line, run: Run, said: Predictions) -> dict[str, Any]:
    """The share of rescued answers among the wrong ones, whole contexts drawn together."""
    ranked = ranked_answers(run.task, said, score_predictions(run.task, said).result.threshold)
    name = head_of(line.who) or "encoder"
    found = rescues(run.task, run.task["dev"], ranked)
    wrong, right = (np.array([keep(one) for one in found]) for keep in (lambda one: one is not None, bool))

    def share(rows: NDArray[np.int64]) -> float:
        return 100 * float(right[rows].sum() / wrong[rows].sum()) if wrong[rows].any() else math.nan

    ends = drawn_ends(Comparison(run.task, "dev"), share)
    row = rescue_row(run.task, name, run.task["dev"], found)
    return {"values": _floats(row), "ends": {} if ends is None else {"share": ends}}


def _is_about(row: Any, name: str, against: str | None) -> bool:
    other = None if against is None else head_of(against) or "encoder"
    return _without_seed(row["name"]) == name and _without_seed(row.get("against")) == other


def _without_seed(title: Any) -> str | None:
    return None if title is None else str(title).rpartition("@")[0] or str(title)


def _finding(shop: Workshop, line: Line, run: Run, board: Entry) -> Finding:
    """Analyses of answers are asked of the rows that matter here, all others of the whole run."""
    examples, name, place = run.task[run.board.split], head_of(line.who) or "encoder", Path(board.made)
    said = [_said(run, name)]
    if line.study == "context-length":
        rivals = [] if line.against is None else [_said(run, head_of(line.against) or "encoder")]
        return context_length(context_words(examples), [*said, *rivals])
    if line.study == "answer-types":
        return answer_types(examples, said)
    return shop.finding(str(line.study), place)


def _said(run: Run, name: str) -> Said:
    """The best seed on inner, which is the first of its name on the board."""
    row = next(row for row in run.board.rows if row.name == name)
    return hear(run.task, run.board.split, row_title(row), row.kind, run.answers[row.name, row.seed])


def _weights(run: Run, name: str) -> dict[str, Any]:
    """Weight of every state, and their centre: 0 is all on the first state, 1 all on the last."""
    heads = [head for head in run.heads if head.spec == name and head.weights]
    means = [fmean(column) for column in zip(*(head.weights for head in heads), strict=True)]
    centres = [_centre(head.weights) for head in heads]
    values = {f"state {state}": weight for state, weight in zip(heads[0].states, means, strict=True)}
    rise = rising_from(means)
    values |= {"centre": fmean(centres)} | ({} if rise is None else {"rises_after": float(heads[0].states[rise])})
    return {"values": values, "ends": _range("centre", centres)}


def rising_from(weights: Sequence[float]) -> int | None:
    """The place from which on every weight is above the one before; None if the last is not."""
    place = len(weights) - 1
    while place > 0 and weights[place - 1] < weights[place]:
        place -= 1
    return place if place < len(weights) - 1 else None


def _centre(weights: Sequence[float]) -> float:
    return sum(place * weight for place, weight in enumerate(weights)) / ((len(weights) - 1) * sum(weights))


def _range(key: str, values: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Over seeds; one alone shows no spread."""
    return {key: (min(values), max(values))} if len(values) > 1 else {}


def _by_layer(shop: Workshop, place: Path, states: States, task: Task) -> dict[str, Any]:
    """Score of a linear head on the mean of every state's tokens, and how early it rises, drawn from dev."""
    specs = [canonical_spec(f"probe:layers={state},read=mean") for state in range(len(states.layers))]
    config = read_recipe(place / "recipe.toml").fit
    fitted = fit_into(place / FINDINGS / "by-layer", states, specs, shop.shared.seeds, config)
    answers: dict[str, list[Mapping[str, Any]]] = {spec: [] for spec in specs}
    for head, one in zip(fitted, predict(fitted, states["dev"]), strict=True):
        answers[head.spec].append(score_predictions(task, one).result.answers)
    comparison = Comparison(task, "dev")
    sides = [side for some in answers.values() if (side := side_of(comparison, some)) is not None]
    scores = [point(comparison, side) for side in sides]
    values = {f"state {state}": score for state, score in enumerate(scores)}
    rise = early_rise(scores)
    drawn = [early_rise(column) for column in np.stack([side.drawn.mean(0) for side in sides]).T.tolist()]
    known = [one for one in drawn if one is not None]
    if rise is None or len(known) < SURE * len(drawn):
        return {"values": values, "ends": {}}
    ends = comparison.interval(np.array(known))
    return {"values": {**values, "early": rise}, "ends": {} if ends is None else {"early": ends}}


def early_rise(scores: Sequence[float]) -> float | None:
    """Mean over k of (s_k - s_0) / (s_last - s_0); not known where nothing is gained.

    1/2 for a straight line up, near 0 where only the last layers gain.
    """
    gain = scores[-1] - scores[0]
    if gain <= 0:
        return None
    return fmean((score - scores[0]) / gain for score in scores[1:-1]) if len(scores) > 2 else 0.5


def history(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """Score on inner after an epoch of a fit: dev is looked at once, at the end."""
    place, _, run = shop.run(str(line.run), line.data, heads)
    facts = [head.history for head in run.heads if head.spec == head_of(line.who)]
    found = [float(row["inner"]) for rows in facts for row in rows if row["epoch"] == line.epoch]
    return Entry(line.row, {"inner": fmean(found)} if found else {}, _range("inner", found), made=str(place))


def on_share(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """A head on a share of the training data, a draw a seed; on all of it, as on the run's leaderboard."""
    if line.share == 1.0:
        return board_entry(shop, line, heads)
    place, states, run = shop.run(str(line.run), line.data, heads)
    share, spec = float(line.share or 1.0), str(head_of(line.who))
    config = read_recipe(place / "recipe.toml").fit
    fitted = []
    for seed in shop.shared.seeds_of(spec):
        count = max(1, round(share * len(run.task["train"])))
        shown = Portion(states, drawn(run.task, count, seed))
        folder = place / FINDINGS / "shares" / f"{share:g}" / f"draw{seed}"
        fitted += fit_into(folder, shown, [spec], [seed], config)
    return _of_said(line, predict(fitted, states["dev"]), run.task, place)


def _of_said(line: Line, said: Sequence[Predictions], task: Task, place: Path) -> Entry:
    judged = [told(score_predictions(task, one).result) for one in said]
    values = {key: fmean(one["scores"][key] for one in judged) for key in judged[0]["scores"]}
    return Entry(line.row, values, {}, tuple(one["answers"] for one in judged), task, str(place))


def limited_share(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """The same share for the encoder too: tuned on the draw of the first seed alone, as long as the curve was there."""
    source, share = shop.source("run", str(line.run)), float(line.share or 1.0)
    name, _, at = source.encoder.partition("@")
    curve, epochs = shop.source("curve", name), float(at)
    # As many steps of warm-up as the whole curve has: the same share of so few steps would be none.
    warmup = min(1.0, curve.tune.get("warmup", 0.0) * max(curve.at) / (epochs * share))
    recipe = shop.recipe(curve, epochs=epochs, decay="constant", warmup=warmup)
    task, seed = shop.task(str(line.run), line.data), shop.shared.seeds[0]
    count = max(1, round(share * len(task["train"])))
    chosen = drawn(task, count, seed)
    less = replace(task, splits={**task.splits, "train": tuple(task["train"][i] for i in sorted(chosen))})
    made_from = hash_json([recipe.encoder, hashed_fields(recipe.data), hashed_fields(recipe.tune)])
    place = shop.out / "limited" / f"{line.run}-{line.share:g}-{made_from[:8]}"
    target = place / "encoder"
    if not (target / RECORD).exists():
        tune(load_encoder(recipe.encoder), less, recipe.tune, place / SAVED).save_pretrained(target)
    states = extract(load_encoder(str(target)), less, place / "store", recipe.extract)
    spec = head_of(line.who)
    if spec is None:
        return _of_said(line, [predict_own(states["dev"])], less, place)
    fitted = fit_into(place, states, [spec], shop.shared.seeds_of(spec), shop.recipe(source).fit)
    return _of_said(line, predict(fitted, states["dev"]), less, place)


def ablated(shop: Workshop, line: Line) -> Entry:
    """An adapted encoder without some of its adapters: all of them, or the one layer that is missed most.

    The row without any tells the share of the score that is lost for every span of layers.
    """
    whole = tune_entry(shop, line)
    place, task = Path(whole.made), whole.task
    assert task is not None
    made_from = hash_json(read_json_or_empty(place / "own.json"))
    known = reuse(place / "ablated.json", made_from, lambda: _switched(place, task))["spans"]
    score = whole.values[task.metric]
    lost = {key: 100 * (score - one["scores"][task.metric]) / score for key, one in known.items()} if score > 0 else {}
    singles = [key for key in known if len(set(key.split("-"))) == 1]
    asked = [f"1-{len(singles)}"] if line.without == ALL else singles
    worst = min(asked, key=lambda key: float(known[key]["scores"][task.metric]))
    values = {**known[worst]["scores"], **({"decrease": lost[worst]} if lost else {})}
    values |= {f"decrease {key}": one for key, one in lost.items()} if line.without == ALL else {}
    return Entry(line.row, values, {}, (known[worst]["answers"],), task, str(place))


def _switched(place: Path, task: Task) -> dict[str, Any]:
    """Scores and answers without the adapters of every span of layers, by "first-last"."""
    found = without_spans(load_encoder(str(place / "encoder")), task)
    return {"spans": {f"{first}-{last}": told(one) for (first, last), one in found.items() if (first, last) != NONE}}
