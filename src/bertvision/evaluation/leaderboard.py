"""Predictions into a leaderboard that says how far its numbers can be trusted; two predictors side by side."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.errors import BadInput
from bertvision.core.records import Board, Compared, Predictions, Reliability, Row
from bertvision.evaluation.calibration import calibration, reliability
from bertvision.evaluation.comparison import Court, Ends, Witness
from bertvision.evaluation.no_answer import thresholds
from bertvision.evaluation.scoring import Judged, judge_predictions
from bertvision.tasks.task import Task

Several = Predictions | Sequence[Predictions]


def evaluate(predictions: Several, task: Task) -> Board:
    """One row a predictor, best on inner first; what is fitted comes from inner, never from the split shown."""
    return board_of([judge_predictions(task, member) for member in _listed(predictions)], task)


def compare(a: Several, b: Several, task: Task) -> Compared:
    """One predictor minus another on the same examples; of one with several seeds the mean over them.

    Where the metric is no mean over examples (an F1 of labels, a correlation) the seed that is best
    on inner stands for its predictor.
    """
    sides = [_ranked([judge_predictions(task, member) for member in _listed(side)], task) for side in (a, b)]
    court = Court(task, _split([*sides[0], *sides[1]]))
    found = [side for judged in sides for side in court.sides(_witnesses(judged, task))]
    if len(found) != 2:
        raise BadInput(f"compare needs two predictors, and a metric that can be resampled; got {task.metric}")
    return court.compare(*found)


def board_of(judged: Sequence[Judged], task: Task) -> Board:
    """The leaderboard of predictors that are judged already."""
    split, ranked = _split(judged), _ranked(judged, task)
    court, best = Court(task, split), _best_head(ranked, task)
    sides = court.sides(_witnesses(ranked, task))
    ends = court.row_ends(sides)
    rows = tuple(_row(one, task, ends.get(place)) for place, one in enumerate(ranked))
    return Board(
        task=task.name,
        split=split,
        metric=task.metric,
        rows=rows,
        lines=tuple(court.standing(side) for side in sides),
        best_head=best,
        comparisons=court.comparisons(sides, best),
        reliability=_pictured(ranked, rows, best),
        basis=court.basis() if sides else {},
    )


def _listed(predictions: Several) -> list[Predictions]:
    return [predictions] if isinstance(predictions, Predictions) else list(predictions)


def _split(judged: Sequence[Judged]) -> str:
    splits = sorted({one.predictions.split for one in judged})
    if len(splits) != 1:
        raise BadInput(f"a leaderboard needs predictions of one split, got {', '.join(splits) or 'none'}")
    return splits[0]


def _ranked(judged: Sequence[Judged], task: Task) -> list[Judged]:
    return sorted(judged, key=lambda one: one.rank(task.metric))


def _best_head(ranked: Sequence[Judged], task: Task) -> str | None:
    """The head with the best mean over its seeds on inner."""
    found: dict[str, list[float]] = {}
    for one in ranked:
        if one.predictions.kind == "head":
            found.setdefault(one.predictions.name, []).append(one.choice_score(task.metric))
    return max(found, key=lambda name: sum(found[name]) / len(found[name]), default=None)


def _witnesses(ranked: Sequence[Judged], task: Task) -> list[Witness]:
    return [
        Witness(
            one.predictions.name,
            one.predictions.kind,
            one.predictions.seed,
            one.verdict.scores[task.metric],
            one.verdict.evidence,
        )
        for one in ranked
        if one.verdict.evidence is not None
    ]


def _pictured(ranked: Sequence[Judged], rows: Sequence[Row], best: str | None) -> tuple[Reliability, ...]:
    """Reliability of the best head's best seed and of the encoder."""
    chosen: dict[str, list[Reliability]] = {}
    for one, row in zip(ranked, rows, strict=True):
        if row.kind == "encoder" or (row.kind, row.name) == ("head", best):
            chosen.setdefault(row.kind, reliability(one, row.calibration))
    return tuple(entry for kind in ("head", "encoder") for entry in chosen.get(kind, []))


def _row(judged: Judged, task: Task, ends: Ends) -> Row:
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
        interval=ends,
        thresholds=thresholds(task, judged),
        calibration=calibration(judged),
    )
