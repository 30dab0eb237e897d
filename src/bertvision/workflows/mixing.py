"""Any rows of a finished run combined into one predictor: scored beside its members, and saved as a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.records import Board
from bertvision.core.registry import unknown
from bertvision.evaluation.ensemble import How, ensemble
from bertvision.evaluation.leaderboard import board_of
from bertvision.evaluation.scoring import Judged, judge_predictions
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import states_task
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.conclude import run_encoder, run_heads, run_states, save_row

ENCODER = "encoder"


def mix(folder: Path, names: Sequence[str], how: How, save: Path | None = None) -> Board:
    """A board of the members and their ensemble; ``save`` is a folder for it as a model.

    Members are ``encoder`` and heads, ``NAME@SEED`` or ``NAME``, which is the seed that is best on inner. Without
    names: the encoder and the best head.
    """
    states = run_states(folder)
    task, heads = states_task(states), run_heads(folder, states)
    judged = [judge_predictions(task, one) for one in predict(heads, states["dev"])]
    ranked = sorted(judged, key=lambda one: one.rank(task.metric))
    members = _members(list(names), ranked, states, task)
    mixed = ensemble([one.predictions for one in members], how)
    board = board_of([*members, judge_predictions(task, mixed)], task)
    if save is not None:
        _save(board, folder, heads, states, save)
    return board


def _members(names: list[str], ranked: Sequence[Judged], states: States, task: Task) -> list[Judged]:
    """By name; the first of a head's seeds is the best."""
    known: dict[str, Judged] = {}
    for one in reversed(ranked):
        name = one.predictions.name
        known |= {name: one, f"{name}@{one.predictions.seed}": one}
    if states.manifest["own"] is not None:
        known[ENCODER] = judge_predictions(task, predict_own(states["dev"]))
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
