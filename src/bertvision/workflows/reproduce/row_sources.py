"""A row of a recipe into numbers: what it needs is made, and its values, intervals and answers are read off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from bertvision.core.files import read_json_or_empty, reuse
from bertvision.core.records import Kind, Predictions, Shape
from bertvision.core.registry import parse_spec
from bertvision.encoders.loading import load_encoder
from bertvision.encoders.methods import METHODS, count_method
from bertvision.evaluation.analyses.cost import efficiency
from bertvision.evaluation.comparison import Comparison
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.scoring import SplitScores, score_predictions
from bertvision.heads.base import canonical_spec
from bertvision.heads.summary import count_head
from bertvision.runs.reader import Run
from bertvision.store.states import States
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import load_fitted
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.reproduce.experiments import Failed, Missing, NotHere, Workshop, scaled_method
from bertvision.workflows.reproduce.resampling import floor_of
from bertvision.workflows.reproduce.specs import MIX, Line

NOBODY = "nobody"
NO_HEADS = ("encoder", NOBODY)


@dataclass(frozen=True)
class Entry:
    """A row of ours: values by metric, intervals where there are any, and answers to dev, a mapping a seed."""

    row: str
    values: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    answers: tuple[Mapping[str, Any], ...] = ()
    task: Task | None = None
    made: str = ""  # where it comes from
    missing: Missing | None = None  # why there are no scores


def head_of(who: str) -> str | None:
    """The head that a row is about; None where it is the encoder's or nobody's."""
    spec = who.removeprefix(MIX)
    return None if spec in NO_HEADS else canonical_spec(spec)


def run_label(line: Line) -> str:
    return f"{line.run}/{line.data or ''}"


def heads_by_run(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Heads that must be on the leaderboard of every run that the lines name."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.run is not None:
            named = [head_of(one) for one in (line.who, line.against) if one is not None]
            mine = found.setdefault(run_label(line), [])
            mine += [spec for spec in named if spec is not None and spec not in mine]
    return found


def board_entry(shop: Workshop, line: Line, heads: Sequence[str]) -> Entry:
    """A row of a leaderboard: the mean over seeds, and the interval of the task's metric."""
    place, states, run = shop.run(str(line.run), line.data, heads)
    if line.who == NOBODY:
        return _silent(line, run, place)
    if line.who.startswith(MIX):
        return _mixed(line, run, place, states)
    name = head_of(line.who) or "encoder"
    rows = [row for row in run.board.rows if row.name == name]
    if not rows:
        raise Failed(f"{name} is not on the leaderboard of {place}: its loss was no number")
    values = {key: fmean(row.scores[key] for row in rows) for key in rows[0].scores}
    intervals = [one.interval for one in run.board.summary if one.name == name and one.interval is not None]
    ends = {run.board.metric: intervals[0]} if intervals else {}
    answers = tuple(run.answers[row.name, row.seed] for row in rows if (row.name, row.seed) in run.answers)
    values |= {"parameters": float(rows[0].parameters), "fit_seconds": rows[0].seconds}
    values |= {"inner": fmean(row.inner[run.board.metric] for row in rows)} if rows[0].inner else {}
    return Entry(line.row, values, ends, answers, run.task, str(place))


def _silent(line: Line, run: Run, place: Path) -> Entry:
    """Who never answers is right about every question that has no answer."""
    answers = {example.id: "" for example in run.task[run.board.split]}
    right = 100 * sum(not example.answers for example in run.task[run.board.split]) / len(answers)
    return Entry(line.row, {"exact": right, "f1": right}, {}, (answers,), run.task, str(place))


def _mixed(line: Line, run: Run, place: Path, states: States) -> Entry:
    """The encoder and a head, the larger probability of both; each seed of the head by itself."""
    spec = head_of(line.who)
    seeds = sorted(row.seed for row in run.board.rows if row.name == spec and row.seed is not None)
    if not seeds:
        raise Failed(f"{spec} is not on the leaderboard of {place}: its loss was no number")
    found = [_mixed_seed(place, str(spec), seed, states, run.task) for seed in seeds]
    values = {key: fmean(one["scores"][key] for one in found) for key in found[0]["scores"]}
    return Entry(line.row, values, {}, tuple(one["answers"] for one in found), run.task, str(place))


def _mixed_seed(place: Path, spec: str, seed: int, states: States, task: Task) -> dict[str, Any]:
    """Kept in the run, for as long as the head is that."""
    fitted, origin = load_fitted(place / "heads" / spec / f"seed{seed}")

    def mixed() -> dict[str, Any]:
        both = ensemble([predict_own(states["dev"]), *predict(fitted, states["dev"])], "max")
        return told(score_predictions(task, both).result)

    return reuse(place / "mixed" / spec / f"{seed}.json", origin, mixed)


def predicted(who: str, run: Run, place: Path, states: States) -> list[Predictions]:
    """What a predictor says of dev, by seed; the one that is best on inner first."""
    spec = head_of(who)
    seeds = [row.seed for row in run.board.rows if row.name == spec and row.seed is not None]
    heads = [load_fitted(place / "heads" / str(spec) / f"seed{seed}")[0] for seed in seeds]
    return predict(heads, states["dev"]) if spec else [predict_own(states["dev"])]


def told(verdict: SplitScores) -> dict[str, Any]:
    """A verdict as plain data."""
    return {"scores": verdict.scores, "answers": verdict.answers}


def curve_entry(shop: Workshop, line: Line) -> Entry:
    """A checkpoint of a tuning curve; epochs that this scale does not go to are left out."""
    points = shop.source("curve", str(line.curve)).at
    if line.at not in points:
        raise NotHere(f"only {', '.join(f'{at:g}' for at in points)} epochs are tuned")
    document = shop.curve(str(line.curve))
    row = next(row for row in document["rows"] if row["epochs"] == line.at)
    return Entry(line.row, {**row["scores"], "seconds": row["seconds"]}, made=row["encoder"])


def tune_entry(shop: Workshop, line: Line) -> Entry:
    """An encoder tuned by a method, with its own head."""
    place = tuned_place(shop, line)
    own = read_json_or_empty(place / "own.json")
    task = read_task(place / "store" / "task")
    values = {**own["scores"], "trained": float(own["trained"]), "minutes": own["seconds"] / 60}
    worth = efficiency(own["scores"][task.metric], own["trained"], floor_of(Comparison(task, "dev"))[0])
    values |= {} if worth is None else {"efficiency": worth}
    return Entry(line.row, values, {}, (own["answers"],), task, str(place))


def tuned_place(shop: Workshop, line: Line) -> Path:
    """The folder of a row's tuned encoder, made if it is not there."""
    source = shop.source("tune", str(line.tune))
    method = line.method
    if method != "full":
        shop.paths(shop.dataset(line.data or source.data))  # without data no encoder has to be looked at
        encoder = load_encoder(shop.encoder_of(source.encoder, line.data))
        method = scaled_method(method, encoder.layers - 1, encoder.width)
    return shop.tuned(str(line.tune), line.data, method, line.head)


def count_entry(line: Line) -> Entry:
    """Parameters of a head or of a method on the shape that the row names."""
    spec = str(line.count)
    if parse_spec(spec).name in METHODS:
        trained, whole = (count_method(one, line.layers, line.width) for one in (spec, "full"))
        return Entry(line.row, {"parameters": float(trained), "percent": 100 * trained / whole}, made="counted")
    return Entry(line.row, counted(line, spec), made="counted")


def counted(line: Line, spec: str) -> dict[str, float]:
    kinds: dict[str, Kind] = {"span": "span", "classify": "classify", "regress": "regress"}
    shape = Shape(line.layers + 1, line.width, line.tokens, line.outputs, kinds[line.shape])
    found = count_head(spec, shape)
    return {key: float(str(found[key])) for key in ("parameters", "percent")}
