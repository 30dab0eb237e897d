"""Rows that look closer: analyses of a run, shares of its data, epochs of a fit, adapters switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bertvision.analyse.answer_types import answer_types
from bertvision.analyse.context_length import context_length
from bertvision.analyse.finding import Finding
from bertvision.analyse.said import Said, context_words, hear
from bertvision.config import read_recipe
from bertvision.encoder.adapters import switched_off
from bertvision.encoder.load import RECORD, Encoder, load_encoder
from bertvision.model import Model
from bertvision.pipeline import fit_into
from bertvision.refits import Study, drawn
from bertvision.report.facts import FINDINGS, Run
from bertvision.reproduce.entries import Entry, board_entry, head_of, read_json, told, tune_entry
from bertvision.reproduce.recipes import Line
from bertvision.reproduce.verdicts import wilson
from bertvision.reproduce.workshop import Workshop
from bertvision.runtime import write_json
from bertvision.steps.extract import extract
from bertvision.steps.fitted import FittedHead
from bertvision.steps.judge import judge, judge_inner, judge_predictions
from bertvision.steps.predict import predict
from bertvision.steps.tune import tune
from bertvision.steps.tune_loop import SAVED
from bertvision.store.fingerprint import hash_json
from bertvision.store.portion import Portion
from bertvision.store.split import States
from bertvision.study import study
from bertvision.tasks.base import Task

ALL = "all"


def looked_at(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """A row of an analysis, with the answers that it is about."""
    board = board_entry(shop, line, heads)
    place, _, run = shop.run(str(line.run), line.data, heads)
    name = head_of(line.who) or "encoder"
    if line.study == "layer-weights":
        return replace(board, **_weights(run, name))
    if line.study == "layers":
        return replace(board, **_by_layer(shop, place))
    finding = _finding(line, run, place, name)
    row = next((row for row in finding.rows if _is_about(row, name, line.against)), {})
    values = {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
    ends = {"share": wilson(values["second_right"], values["wrong"])} if values.get("wrong") and "share" in row else {}
    return replace(board, values=values, ends=ends)


def _is_about(row: Any, name: str, against: str | None) -> bool:
    other = None if against is None else head_of(against) or "encoder"
    return _without_seed(row["name"]) == name and _without_seed(row.get("against")) == other


def _without_seed(title: Any) -> str | None:
    return None if title is None else str(title).rpartition("@")[0] or str(title)


def _finding(line: Line, run: Run, place: Path, name: str) -> Finding:
    """Analyses of answers are asked of the rows that matter here, all others of the whole run."""
    others = [] if line.against is None else [head_of(line.against) or "encoder"]
    examples = run.task[run.board.split]
    if line.study == "context-length":
        return context_length(context_words(examples), [_said(run, one) for one in [name, *others]])
    if line.study == "answer-types":
        return answer_types(examples, [_said(run, name)])
    return study(Study(place), [str(line.study)])[0][0]


def _said(run: Run, name: str) -> Said:
    """The best seed on inner, which is the first of its name on the board."""
    row = next(row for row in run.board.rows if row.name == name)
    title = row.name if row.seed is None else f"{row.name}@{row.seed}"
    return hear(run.task, run.board.split, title, row.kind, run.answers[row.name, row.seed])


def _weights(run: Run, name: str) -> dict[str, Any]:
    """Weight of every state, and their centre: 0 is all on the first state, 1 all on the last."""
    heads = [head for head in run.heads if head.spec == name and head.weights]
    means = [fmean(column) for column in zip(*(head.weights for head in heads), strict=True)]
    centres = [_centre(head.weights) for head in heads]
    values = {f"state {state}": weight for state, weight in zip(heads[0].states, means, strict=True)}
    return {"values": {**values, "centre": fmean(centres)}, "ends": _range("centre", centres)}


def _centre(weights: Sequence[float]) -> float:
    return sum(place * weight for place, weight in enumerate(weights)) / ((len(weights) - 1) * sum(weights))


def _range(key: str, values: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Over seeds; one alone shows no spread."""
    return {key: (min(values), max(values))} if len(values) > 1 else {}


def _by_layer(shop: Workshop, place: Path) -> dict[str, Any]:
    """Score of a linear head on every state, and how early it rises: the mean of (s_k - s_0) / (s_last - s_0)."""
    config = read_recipe(place / "recipe.toml").fit
    series = []
    for seed in shop.shared.seeds:
        rows = study(Study(place, seeds=(seed,), config=config), ["layers"])[0][0].rows
        series.append([float(str(row["dev"])) for row in rows])
    means = [fmean(column) for column in zip(*series, strict=True)]
    early = [rise for scores in series if (rise := early_rise(scores)) is not None]
    values = {f"state {state}": score for state, score in enumerate(means)}
    told = {**values, "early": fmean(early)} if early else values
    return {"values": told, "ends": _range("early", early)}


def early_rise(scores: Sequence[float]) -> float | None:
    """1/2 for a straight line up, near 0 where only the last layers gain; not known where nothing is gained."""
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
    """A head on a share of the training data, a draw a seed; where the learning curve of the run keeps it."""
    place, states, run = shop.run(str(line.run), line.data, heads)
    share, spec = float(line.share or 1.0), str(head_of(line.who))
    config = read_recipe(place / "recipe.toml").fit
    fitted = []
    for seed in shop.shared.seeds:
        count = max(1, round(share * len(run.task["train"])))
        shown = states if share == 1.0 else Portion(states, drawn(run.task, count, seed))
        folder = place / FINDINGS / "shares" / f"{share:g}" / f"draw{seed}"
        fitted += fit_into(folder, shown, [spec], [seed], config)
    return _of_fitted(line, fitted, states, run.task, place)


def _of_fitted(line: Line, fitted: Sequence[FittedHead], states: States, task: Task, place: Path) -> Entry:
    judged = [told(judge_predictions(task, one)) for one in predict(fitted, states["dev"])]
    values = {key: fmean(one["scores"][key] for one in judged) for key in judged[0]["scores"]}
    return Entry(line.row, values, {}, tuple(one["answers"] for one in judged), task, str(place))


def limited_share(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """The same share for the encoder too: tuned on the draw of the first seed alone, as long as the curve was there."""
    source = shop.source("run", str(line.run))
    curve, _, epochs = source.encoder.partition("@")
    recipe = shop.recipe(shop.source("curve", curve), epochs=float(epochs), decay="constant")
    task, seed = shop.task(str(line.run), line.data), shop.shared.seeds[0]
    count = max(1, round(float(line.share or 1.0) * len(task["train"])))
    chosen = drawn(task, count, seed)
    less = replace(task, splits={**task.splits, "train": tuple(task["train"][i] for i in sorted(chosen))})
    made_from = hash_json([recipe.encoder, asdict(recipe.data), asdict(recipe.tune)])
    place = shop.out / "limited" / f"{line.run}-{line.share:g}-{made_from[:8]}"
    target = place / "encoder"
    if not (target / RECORD).exists():
        tune(load_encoder(recipe.encoder), less, recipe.tune, place / SAVED).save_pretrained(target)
    states = extract(load_encoder(str(target)), less, place / "store", recipe.extract)
    config = shop.recipe(source).fit
    fitted = fit_into(place, states, [str(head_of(line.who))], shop.shared.seeds, config)
    return _of_fitted(line, fitted, states, less, place)


def ablated(shop: Workshop, line: Line) -> Entry:
    """An adapted encoder without some of its adapters: all of them, or the one layer that is missed most."""
    whole = tune_entry(shop, line)
    place, task = Path(whole.made), whole.task
    assert task is not None
    path = place / "ablated.json"
    known = read_json(path) or _switched(load_encoder(str(place / "encoder")), task)
    write_json(path, known)
    metric, score = task.metric, whole.values[task.metric]
    spans = {key: one for key, one in known.items() if (key == ALL) == (line.without == ALL)}
    worst = min(spans.values(), key=lambda one: float(one["scores"][metric]))
    lost = {"decrease": 100 * (score - worst["scores"][metric]) / score} if score > 0 else {}
    return Entry(line.row, {**worst["scores"], **lost}, {}, (worst["answers"],), task, str(place))


def _switched(encoder: Encoder, task: Task) -> dict[str, Any]:
    """Scores and answers without the adapters of each layer and without all."""
    layers = encoder.layers - 1
    needs_one = task.no_answer or task.kind == "multilabel"
    model = Model(encoder, "encoder", task, threshold=0.0 if needs_one else None)
    threshold = judge_inner(task, *model.outputs(task["inner"])).threshold
    found = {}
    for name, first, last in [*((str(k), k, k) for k in range(1, layers + 1)), (ALL, 1, layers)]:
        with switched_off(encoder.model, first, last):
            verdict = judge(task, "dev", *model.outputs(task["dev"]), threshold)
        found[name] = {"scores": verdict.scores, "answers": verdict.answers}
    return found
