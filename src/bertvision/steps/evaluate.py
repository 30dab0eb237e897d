"""Predictions into a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.errors import BadInput
from bertvision.records import Board, Predictions, Row
from bertvision.steps.judge import Judged, judge_predictions
from bertvision.tasks.base import Task


def evaluate(predictions: Predictions | Sequence[Predictions], task: Task) -> Board:
    """One row a predictor, best on inner first; thresholds come from inner, never from the split shown."""
    members = [predictions] if isinstance(predictions, Predictions) else list(predictions)
    return board_of([judge_predictions(task, member) for member in members], task)


def board_of(judged: Sequence[Judged], task: Task) -> Board:
    """The leaderboard of predictors that are judged already."""
    splits = sorted({one.predictions.split for one in judged})
    if len(splits) != 1:
        raise BadInput(f"a leaderboard needs predictions of one split, got {', '.join(splits) or 'none'}")
    ranked = sorted(judged, key=lambda one: -one.choice_score(task.metric))
    return Board(task.name, splits[0], task.metric, tuple(_row(one) for one in ranked))


def _row(judged: Judged) -> Row:
    one = judged.predictions
    return Row(
        name=one.name,
        spec=one.spec,
        kind=one.kind,
        seed=one.seed,
        parameters=one.parameters,
        percent=100 * one.parameters / one.encoder_parameters if one.encoder_parameters else 0.0,
        scores=judged.verdict.scores,
        inner={} if judged.inner is None else judged.inner.scores,
        seconds=one.seconds,
        threshold=judged.verdict.threshold,
        members=one.members,
        weights=one.weights,
    )
