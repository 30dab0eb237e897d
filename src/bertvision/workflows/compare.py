"""Evaluate a finished run again: compare two rows, decode spans as in the paper, combine rows into an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.records import Board
from bertvision.core.registry import unknown_name
from bertvision.core.row_title import row_title
from bertvision.core.text_table import align_columns
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import ENCODER_FILE, load_encoder
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.evaluation.ensemble import How, ensemble
from bertvision.evaluation.leaderboard import build_leaderboard
from bertvision.evaluation.metrics.paper import paper_scores
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.runs.folder import run_encoder, run_heads, run_states, states_folder
from bertvision.runs.reader import Run, gather, predictor_scores
from bertvision.store.states import States
from bertvision.tasks.paper_decoding import Golds, golds_by_text, golds_by_window, paper_decode
from bertvision.tasks.task import Task, read_task
from bertvision.training.live_states import task_of_states
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.conclude import save_row_model, score_all

ENCODER = "encoder"


def compare_rows(folder: Path, a: str, b: str) -> tuple[dict[str, Any], str]:
    """Paired test of two rows, from the saved predictions of the run: as data and as a sentence.

    Rows are named as on the leaderboard: ``name@seed`` is one seed of a head, ``name`` is all of its seeds.
    """
    run = gather(folder, read_task(states_folder(folder) / "task"))
    metric, split = run.board.metric, run.board.split
    comparison = Comparison(run.task, split)
    test = comparison.compare(_seed_group(run, folder, comparison, a), _seed_group(run, folder, comparison, b))
    facts = {key: getattr(test, key) for key in ("a", "b", "difference", "low", "high", "p", "a_seeds", "b_seeds")}
    titles = []
    for name, seeds in ((test.a, test.a_seeds), (test.b, test.b_seeds)):
        titles.append(f"{name} (mean of seeds {', '.join(map(str, seeds))})" if len(seeds) > 1 else name)
    interval = "" if test.low is None else f", 95 % {test.low:+.2f} to {test.high:+.2f}"
    return {"metric": metric, "split": split, **facts}, (
        f"{titles[0]} minus {titles[1]}: {metric} {test.difference:+.2f} on {split}{interval}, "
        f"p {test.p:.2g} (paired, {comparison.num_units:,} {comparison.unit_name}; not corrected for other comparisons)"
    )


def _seed_group(run: Run, folder: Path, comparison: Comparison, name: str) -> SeedGroup:
    """The rows with this name, best on inner first as on the leaderboard."""
    rows = [row for row in run.board.rows if name in (row.name, row_title(row))]
    if not rows:
        names = dict.fromkeys(title for row in run.board.rows for title in (row.name, row_title(row)))
        raise BadInput(f"{folder}: {unknown_name('row', name, list(names))}")
    for row in rows:
        if (row.name, row.seed) not in run.answers:
            raise BadInput(
                f"{folder} has no predictions of {row_title(row)}; write them with: bertvision evaluate {folder}"
            )
    groups = comparison.seed_groups([predictor_scores(run, row, name) for row in rows])
    if not groups:
        raise BadInput(f"rows of {folder} cannot be compared: {run.board.metric} cannot be resampled")
    return groups[0]


def paper_board(folder: Path) -> tuple[dict[str, Any], str]:
    """Official scores and the paper's word-piece scores of every row of a span task, as data and as a table."""
    states = run_states(folder)
    task = task_of_states(states)
    if task.kind != "span":
        raise BadInput(f"--decode legacy: expected a span task, the task of {folder} is of kind {task.kind}")
    golds = _read_golds(folder, states, task)
    scored = score_all(run_heads(folder, states), states, task)
    rows: list[dict[str, Any]] = []
    for row in sorted(scored, key=lambda row: row.rank(task.metric)):
        predictions = row.predictions
        pieces = [answer.pieces for answer in paper_decode(predictions.logits, predictions.table, len(golds))]
        scores = {name: row.result.scores[name] for name in ("exact", "f1")}
        facts = {"name": predictions.name, "seed": predictions.seed, "scores": scores}
        rows.append({**facts, "legacy": paper_scores(golds, pieces)})
    names = ["exact", "f1", *rows[0]["legacy"]]
    cells = [["predictor", "seed", *names]]
    for document in rows:
        seed = "" if document["seed"] is None else str(document["seed"])
        scores = {**document["scores"], **document["legacy"]}
        cells.append([document["name"], seed, *(f"{scores[name]:.2f}" for name in names)])
    note = "legacy_: the paper's decoding and word pieces; comparable with the paper's tables only"
    return {"task": task.name, "split": "dev", "decode": "legacy", "rows": rows}, "\n".join(
        [*align_columns(cells), note]
    )


def _read_golds(folder: Path, states: States, task: Task) -> Golds:
    """Gold answers in word pieces: from the run's tokenizer, or from the windows if that is missing."""
    path = folder / "encoder"
    if (path / ENCODER_FILE).exists():
        encoder = load_encoder(str(path))
        if tokenizer_hash(encoder.tokenizer) == states.manifest["fingerprint"]["tokenizer"]:
            return golds_by_text(task["dev"], encoder.tokenizer)
    return golds_by_window(task["dev"], states["dev"].table())


def ensemble_rows(folder: Path, names: Sequence[str], how: How, save: Path | None = None) -> Board:
    """A leaderboard of these rows and their ensemble; ``save`` is a folder for the ensemble as a model.

    Rows are ``encoder`` and heads: ``NAME@SEED``, or ``NAME`` for its best seed on inner. Without names: the encoder
    and the best head.
    """
    states = run_states(folder)
    task, heads = task_of_states(states), run_heads(folder, states)
    scored = [score_predictions(task, predictions) for predictions in predict(heads, states["dev"])]
    scored.sort(key=lambda row: row.rank(task.metric))
    by_name: dict[str, ScoredPredictions] = {}
    for row in reversed(scored):  # the best seed of a head is written last, and so keeps its name
        name = row.predictions.name
        by_name |= {name: row, f"{name}@{row.predictions.seed}": row}
    if states.manifest["own"] is not None:
        by_name[ENCODER] = score_predictions(task, predict_own(states["dev"]))
    names = names or [name for name in (ENCODER, scored[0].predictions.name) if name in by_name]
    for name in names:
        if name not in by_name:
            raise BadInput(unknown_name("row", name, list(by_name)))
    members = [by_name[name] for name in dict.fromkeys(names)]
    combined = ensemble([member.predictions for member in members], how)
    board = build_leaderboard([*members, score_predictions(task, combined)], task)
    if save is not None:
        encoder = run_encoder(folder, states)
        if encoder is None:
            raise BadInput(f"--save: the encoder of {folder} is missing, so no model can be saved; leave --save out")
        save_row_model(next(row for row in board.rows if row.kind == "ensemble"), encoder, heads, task, save)
    return board
