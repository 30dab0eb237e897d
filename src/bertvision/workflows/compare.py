"""A finished run looked at again: any two of its rows side by side, and its spans decoded as the paper did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.records import Board, PairedTest, aligned
from bertvision.core.registry import unknown
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import RECORD, load_encoder
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.evaluation.ensemble import How, ensemble
from bertvision.evaluation.leaderboard import board_of
from bertvision.evaluation.metrics.paper import legacy_scores
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.runs.folder import run_encoder, run_heads, run_place, run_states
from bertvision.runs.reader import Run, gather, predictor_scores, row_title
from bertvision.store.states import States
from bertvision.tasks.paper_decoding import Golds, golds_by_text, golds_by_window, legacy_decode
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import states_task
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.conclude import save_row, score_all

ENCODER = "encoder"


def compare_rows(folder: Path, a: str, b: str) -> tuple[dict[str, Any], str]:
    """One row minus another, from the answers that the run wrote down: as data and as a sentence.

    A row is named as on the board; ``name@seed`` is one seed of a head and ``name`` all of them.
    """
    run = gather(folder, read_task(run_place(folder) / "task"))
    comparison = Comparison(run.task, run.board.split)
    found = comparison.compare(*(_side(run, folder, comparison, name) for name in (a, b)))
    facts = {key: getattr(found, key) for key in ("a", "b", "difference", "low", "high", "p", "a_seeds", "b_seeds")}
    return {"metric": run.board.metric, "split": run.board.split, **facts}, _sentence(run, comparison, found)


def _sentence(run: Run, comparison: Comparison, found: PairedTest) -> str:
    first, second = (_title(*side) for side in ((found.a, found.a_seeds), (found.b, found.b_seeds)))
    ends = "" if found.low is None else f", 95 % {found.low:+.2f} to {found.high:+.2f}"
    return (
        f"{first} minus {second}: {run.board.metric} {found.difference:+.2f} on {run.board.split}{ends}, "
        f"p {found.p:.2g} (paired, {comparison.num_units:,} {comparison.unit_name}; "
        "not corrected for other comparisons)"
    )


def _title(name: str, seeds: Sequence[int]) -> str:
    return f"{name} (mean of seeds {', '.join(map(str, seeds))})" if len(seeds) > 1 else name


def _side(run: Run, folder: Path, comparison: Comparison, name: str) -> SeedGroup:
    """The rows of a name, best on inner first as on the board."""
    rows = [row for row in run.board.rows if name in (row.name, row_title(row))]
    if not rows:
        known = dict.fromkeys(title for row in run.board.rows for title in (row.name, row_title(row)))
        raise BadInput(f"{folder}: {unknown('row', name, list(known))}")
    missing = [row_title(row) for row in rows if (row.name, row.seed) not in run.answers]
    if missing:
        raise BadInput(f"{folder} has no predictions of {missing[0]}; write them with: bertvision evaluate {folder}")
    sides = comparison.seed_groups([predictor_scores(run, row, name) for row in rows])
    if not sides:
        raise BadInput(f"{run.board.metric} cannot be resampled, so that rows of {folder} cannot be compared")
    return sides[0]


def legacy_board(folder: Path) -> tuple[dict[str, Any], str]:
    """Every row of a run of spans with the paper's word-piece scores beside the official ones."""
    states = run_states(folder)
    task = states_task(states)
    if task.kind != "span":
        raise BadInput(f"--decode legacy is the paper's way with spans; the task of {folder} is {task.kind}")
    golds = _golds(folder, states, task)
    judged = score_all(run_heads(folder, states), states, task)
    ranked = sorted(judged, key=lambda one: one.rank(task.metric))
    rows = [_legacy_row(one, golds) for one in ranked]
    document = {"task": task.name, "split": "dev", "decode": "legacy", "rows": rows}
    return document, _legacy_text(rows)


def _golds(folder: Path, states: States, task: Task) -> Golds:
    """Gold texts cut by the tokenizer of the windows; where that is not at hand, the pieces of the windows."""
    place = folder / "encoder"
    if (place / RECORD).exists():
        encoder = load_encoder(str(place))
        if tokenizer_hash(encoder.tokenizer) == states.manifest["fingerprint"]["tokenizer"]:
            return golds_by_text(task["dev"], encoder.tokenizer)
    return golds_by_window(task["dev"], states["dev"].table())


def _legacy_row(judged: ScoredPredictions, golds: Golds) -> dict[str, Any]:
    one = judged.predictions
    said = [answer.pieces for answer in legacy_decode(one.logits, one.table, len(golds))]
    scores = {name: judged.result.scores[name] for name in ("exact", "f1")}
    return {"name": one.name, "seed": one.seed, "scores": scores, "legacy": legacy_scores(golds, said)}


def _legacy_text(rows: Sequence[dict[str, Any]]) -> str:
    names = ["exact", "f1", *rows[0]["legacy"]]
    lines = [["predictor", "seed", *names]]
    for row in rows:
        scores = {**row["scores"], **row["legacy"]}
        seed = "" if row["seed"] is None else str(row["seed"])
        lines.append([row["name"], seed, *(f"{scores[name]:.2f}" for name in names)])
    told = "legacy_: the paper's decoding and word pieces; compare them with its tables and nothing else"
    return "\n".join([*aligned(lines), told])


def mix(folder: Path, names: Sequence[str], how: How, save: Path | None = None) -> Board:
    """A board of the members and their ensemble; ``save`` is a folder for it as a model.

    Members are ``encoder`` and heads, ``NAME@SEED`` or ``NAME``, which is the seed that is best on inner. Without
    names: the encoder and the best head.
    """
    states = run_states(folder)
    task, heads = states_task(states), run_heads(folder, states)
    judged = [score_predictions(task, one) for one in predict(heads, states["dev"])]
    ranked = sorted(judged, key=lambda one: one.rank(task.metric))
    members = _members(list(names), ranked, states, task)
    mixed = ensemble([one.predictions for one in members], how)
    board = board_of([*members, score_predictions(task, mixed)], task)
    if save is not None:
        _save(board, folder, heads, states, save)
    return board


def _members(
    names: list[str], ranked: Sequence[ScoredPredictions], states: States, task: Task
) -> list[ScoredPredictions]:
    """By name; the first of a head's seeds is the best."""
    known: dict[str, ScoredPredictions] = {}
    for one in reversed(ranked):
        name = one.predictions.name
        known |= {name: one, f"{name}@{one.predictions.seed}": one}
    if states.manifest["own"] is not None:
        known[ENCODER] = score_predictions(task, predict_own(states["dev"]))
    names = names or [name for name in (ENCODER, ranked[0].predictions.name) if name in known]
    for name in names:
        if name not in known:
            raise BadInput(unknown("row", name, list(known)))
    return [known[name] for name in dict.fromkeys(names)]


def _save(board: Board, folder: Path, heads: Sequence[FittedHead], states: States, place: Path) -> None:
    encoder = run_encoder(folder, states)
    if encoder is None:
        raise BadInput(f"the encoder of {folder} is not there, so that no model can be saved; leave --save out")
    row = next(row for row in board.rows if row.kind == "ensemble")
    save_row(row, encoder, heads, states_task(states), place)
