"""Predictions into a leaderboard that says how far its numbers can be trusted; two predictors side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.core.errors import BadInput
from bertvision.core.records import CONTROL, SURE, Board, PairedTest, Predictions, Reliability, Row, compared_with
from bertvision.evaluation.calibration import calibration, reliability
from bertvision.evaluation.comparison import Comparison, Ends, PredictorScores
from bertvision.evaluation.example_scores import SPAN_SCORES, SpanScores, golds_of
from bertvision.evaluation.metrics.squad import best_by_sweep
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.tasks.task import Task

Several = Predictions | Sequence[Predictions]


def thresholds(task: Task, scored: ScoredPredictions) -> dict[str, dict[str, float]]:
    """``zero``, ``fitted`` (where there was an inner to fit it on) and ``oracle``; nothing for other tasks."""
    result = scored.result
    if result.threshold is None or result.example_scores is None or result.example_scores.spans is None:
        return {}
    spans = result.example_scores.spans
    found = {"zero": _scores_at(spans, 0.0)}
    if scored.inner is not None:
        found["fitted"] = _scores_at(spans, result.threshold)
    return {**found, "oracle": _oracle(task, scored.predictions.split, spans)}


def _scores_at(spans: SpanScores, threshold: float) -> dict[str, float]:
    means = 100 * spans.at(threshold).mean(0)  # (2,)
    return {**dict(zip(SPAN_SCORES, means.tolist(), strict=True)), "threshold": threshold}


def _oracle(task: Task, split: str, spans: SpanScores) -> dict[str, float]:
    """The official names. A question that there is nothing to answer with counts as left empty.

    Where silence throughout is best, the official script names 0 as threshold, which is meant for
    probabilities; a threshold below all scores says the same of scores.
    """
    golds, names = golds_of(task[split]), [example.id for example in task[split]]
    silence = 100 * sum(not gold for gold in golds.values()) / len(golds)
    said = {name: "a span" if there else "" for name, there in zip(names, np.isfinite(spans.spans[:, 0]), strict=True)}
    scores = dict(zip(names, spans.no_answer.tolist(), strict=True))
    found: dict[str, float] = {}
    for column, name in enumerate(SPAN_SCORES):
        single = dict(zip(names, spans.answered[:, column].tolist(), strict=True))
        best, threshold = best_by_sweep(golds, said, single, scores)
        below = float(spans.no_answer.min()) - 1
        found |= {f"best_{name}": best, f"best_{name}_thresh": threshold if best > silence else below}
    return found


def evaluate(predictions: Several, task: Task) -> Board:
    """One row a predictor, best on inner first; what is fitted comes from inner, never from the split shown."""
    return board_of([score_predictions(task, member) for member in _listed(predictions)], task)


def compare(a: Several, b: Several, task: Task) -> PairedTest:
    """One predictor minus another on the same examples; of one with several seeds the mean over them.

    Where the metric is no mean over examples (an F1 of labels, a correlation) the seed that is best
    on inner stands for its predictor.
    """
    sides = [_ranked([score_predictions(task, member) for member in _listed(side)], task) for side in (a, b)]
    comparison = Comparison(task, _split([*sides[0], *sides[1]]))
    found = [side for scored in sides for side in comparison.seed_groups(_predictor_scores(scored, task))]
    if len(found) != 2:
        raise BadInput(f"compare needs two predictors, and a metric that can be resampled; got {task.metric}")
    return comparison.compare(*found)


def board_of(scored: Sequence[ScoredPredictions], task: Task) -> Board:
    """The leaderboard of predictors that are judged already."""
    split, ranked = _split(scored), _ranked(scored, task)
    comparison, best = Comparison(task, split), _best_head(ranked, task)
    sides = comparison.seed_groups(_predictor_scores(ranked, task))
    ends = comparison.row_intervals(sides)
    rows = tuple(_row(one, task, ends.get(place)) for place, one in enumerate(ranked))
    return Board(
        task=task.name,
        split=split,
        metric=task.metric,
        rows=rows,
        summary=tuple(comparison.summarize(side) for side in sides),
        best_head=best,
        comparisons=comparison.comparisons(sides, best),
        reliability=_pictured(ranked, rows, best),
        resampling_info=comparison.resampling_info() if sides else {},
    )


def _listed(predictions: Several) -> list[Predictions]:
    return [predictions] if isinstance(predictions, Predictions) else list(predictions)


def _split(scored: Sequence[ScoredPredictions]) -> str:
    splits = sorted({one.predictions.split for one in scored})
    if len(splits) != 1:
        raise BadInput(f"a leaderboard needs predictions of one split, got {', '.join(splits) or 'none'}")
    return splits[0]


def _ranked(scored: Sequence[ScoredPredictions], task: Task) -> list[ScoredPredictions]:
    return sorted(scored, key=lambda one: one.rank(task.metric))


def _best_head(ranked: Sequence[ScoredPredictions], task: Task) -> str | None:
    """The head with the best mean over its seeds on inner."""
    found: dict[str, list[float]] = {}
    for one in ranked:
        if one.predictions.kind == "head":
            found.setdefault(one.predictions.name, []).append(one.choice_score(task.metric))
    return max(found, key=lambda name: sum(found[name]) / len(found[name]), default=None)


def _predictor_scores(ranked: Sequence[ScoredPredictions], task: Task) -> list[PredictorScores]:
    return [
        PredictorScores(
            one.predictions.name,
            one.predictions.kind,
            one.predictions.seed,
            one.result.scores[task.metric],
            one.result.example_scores,
        )
        for one in ranked
        if one.result.example_scores is not None
    ]


def _pictured(ranked: Sequence[ScoredPredictions], rows: Sequence[Row], best: str | None) -> tuple[Reliability, ...]:
    """Reliability of the best head's best seed and of the encoder."""
    chosen: dict[str, list[Reliability]] = {}
    for one, row in zip(ranked, rows, strict=True):
        if row.kind == "encoder" or (row.kind, row.name) == ("head", best):
            chosen.setdefault(row.kind, reliability(one, row.calibration))
    return tuple(entry for kind in ("head", "encoder") for entry in chosen.get(kind, []))


def _row(scored: ScoredPredictions, task: Task, ends: Ends) -> Row:
    one = scored.predictions
    return Row(
        name=one.name,
        spec=one.spec,
        kind=one.kind,
        seed=one.seed,
        parameters=one.parameters,
        percent=100 * one.parameters / one.encoder_parameters if one.encoder_parameters else 0.0,
        scores=scored.result.scores,
        inner={} if scored.inner is None else scored.inner.scores,
        seconds=one.seconds,
        threshold=scored.result.threshold,
        members=one.members,
        weights=one.weights,
        interval=ends,
        thresholds=thresholds(task, scored),
        calibration=calibration(scored),
    )


def advise(board: Board) -> str:
    """The head with the best mean inner score over its seeds, beside the encoder and the control."""
    heads = [row for row in board.rows if row.kind == "head"]
    specs = list(dict.fromkeys(row.spec for row in heads))
    metric = board.metric

    def mean(spec: str, where: str) -> float:
        values = [getattr(row, where)[metric] for row in heads if row.spec == spec]
        return float(sum(values) / len(values))

    best = board.best_head
    assert best is not None, "advice is about heads"
    encoder = next((row for row in board.rows if row.kind == "encoder"), None)
    told = [] if encoder is None else [("the encoder alone", encoder.name, encoder.scores[metric])]
    told += [("the control", CONTROL, mean(CONTROL, "scores"))] if CONTROL in specs and best != CONTROL else []
    beside = "".join(f", {title} {score:.2f} ({_significance(board, best, name)})" for title, name, score in told)
    return (
        f"Use {best}: best of {len(specs)} heads on inner ({metric} {mean(best, 'inner'):.2f}, mean over seeds); "
        f"on {board.split} it has {metric} {mean(best, 'scores'):.2f}{beside}."
        f"{_caution(board, best)} Best row on inner: {board.rows[0].name}."
    )


def _significance(board: Board, best: str, reference: str) -> str:
    """Whether the examples can tell the two apart."""
    found = compared_with(board, best, reference)
    if found is None:
        return "not tested"
    chance = f"p {found.p_holm:.2g}" if found.p_holm >= 0.001 else "p < 0.001"
    if found.p_holm >= SURE:
        return f"not distinguishable, {chance}"
    return f"{'ahead' if found.difference > 0 else 'behind'} beyond chance, {chance}"


def _caution(board: Board, best: str) -> str:
    """What a gain may be credited to; nothing where the board did not test it."""
    found = compared_with(board, best, CONTROL)
    if found is None or best == CONTROL:
        return ""
    if found.p_holm < SURE and found.difference > 0:
        return " The layers below the last help here."
    return " Nothing shows that more layers than the last help here."
