"""Leaderboards: scores, intervals and paired tests of many predictors; comparison of two; advice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertvision.core.errors import BadInput
from bertvision.core.records import ALPHA, CONTROL, Board, PairedTest, Predictions, Reliability, Row, paired_test_with
from bertvision.evaluation.calibration import calibration, reliability
from bertvision.evaluation.comparison import Comparison, Interval, PredictorScores
from bertvision.evaluation.example_scores import SPAN_SCORES, SpanScores, gold_answers
from bertvision.evaluation.metrics.squad import official_best_threshold
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.tasks.task import Task

Several = Predictions | Sequence[Predictions]


def evaluate(predictions: Several, task: Task) -> Board:
    """One row per predictor, best on inner first; everything fitted comes from inner, never from the split shown."""
    return build_leaderboard(_scored(predictions, task), task)


def compare(a: Several, b: Several, task: Task) -> PairedTest:
    """One predictor minus another on the same examples; several seeds of one predictor are averaged.

    If the metric is not a mean over examples (an F1 of labels, a correlation), the seed that is best on inner
    represents its predictor.
    """
    scored = [_ranked(_scored(predictions, task), task) for predictions in (a, b)]
    comparison = Comparison(task, _split([*scored[0], *scored[1]]))
    groups = [group for part in scored for group in comparison.seed_groups(_predictor_scores(part, task))]
    if len(groups) != 2:
        raise BadInput(f"compare needs two predictors, and a metric that can be resampled; got {task.metric}")
    return comparison.compare(*groups)


def build_leaderboard(scored: Sequence[ScoredPredictions], task: Task) -> Board:
    """The leaderboard of scored predictions."""
    split, ranked = _split(scored), _ranked(scored, task)
    comparison, best = Comparison(task, split), _best_head(ranked, task)
    groups = comparison.seed_groups(_predictor_scores(ranked, task))
    intervals = comparison.row_intervals(groups)
    rows = tuple(_row(member, task, intervals.get(index)) for index, member in enumerate(ranked))
    return Board(
        task=task.name,
        split=split,
        metric=task.metric,
        rows=rows,
        summary=tuple(comparison.summarize(group) for group in groups),
        best_head=best,
        comparisons=comparison.comparisons(groups, best),
        reliability=_reliability(ranked, rows, best),
        resampling_info=comparison.resampling_info() if groups else {},
    )


def _scored(predictions: Several, task: Task) -> list[ScoredPredictions]:
    listed = [predictions] if isinstance(predictions, Predictions) else predictions
    return [score_predictions(task, member) for member in listed]


def _split(scored: Sequence[ScoredPredictions]) -> str:
    splits = sorted({member.predictions.split for member in scored})
    if len(splits) != 1:
        raise BadInput(f"a leaderboard needs predictions of one split, got {', '.join(splits) or 'none'}")
    return splits[0]


def _ranked(scored: Sequence[ScoredPredictions], task: Task) -> list[ScoredPredictions]:
    return sorted(scored, key=lambda member: member.rank(task.metric))


def _best_head(ranked: Sequence[ScoredPredictions], task: Task) -> str | None:
    """The head with the best mean over its seeds on inner."""
    by_name: dict[str, list[float]] = {}
    for member in ranked:
        if member.predictions.kind == "head":
            by_name.setdefault(member.predictions.name, []).append(member.selection_score(task.metric))
    return max(by_name, key=lambda name: sum(by_name[name]) / len(by_name[name]), default=None)


def _predictor_scores(ranked: Sequence[ScoredPredictions], task: Task) -> list[PredictorScores]:
    predictors = []
    for member in ranked:
        predictions, result = member.predictions, member.result
        if result.example_scores is not None:
            names = (predictions.name, predictions.kind, predictions.seed)
            predictors.append(PredictorScores(*names, result.scores[task.metric], result.example_scores))
    return predictors


def _reliability(ranked: Sequence[ScoredPredictions], rows: Sequence[Row], best: str | None) -> tuple[Reliability, ...]:
    """Reliability bins of the best head's best seed and of the encoder."""
    chosen: dict[str, list[Reliability]] = {}
    for member, row in zip(ranked, rows, strict=True):
        if row.kind == "encoder" or (row.kind, row.name) == ("head", best):
            chosen.setdefault(row.kind, reliability(member, row.calibration))
    return tuple(entry for kind in ("head", "encoder") for entry in chosen.get(kind, []))


def _row(scored: ScoredPredictions, task: Task, interval: Interval) -> Row:
    predictions = scored.predictions
    total = predictions.encoder_parameters
    return Row(
        name=predictions.name,
        spec=predictions.spec,
        kind=predictions.kind,
        seed=predictions.seed,
        parameters=predictions.parameters,
        percent=100 * predictions.parameters / total if total else 0.0,
        scores=scored.result.scores,
        inner={} if scored.inner is None else scored.inner.scores,
        seconds=predictions.seconds,
        threshold=scored.result.threshold,
        members=predictions.members,
        weights=predictions.weights,
        interval=interval,
        thresholds=thresholds(task, scored),
        calibration=calibration(scored),
    )


def thresholds(task: Task, scored: ScoredPredictions) -> dict[str, dict[str, float]]:
    """Scores at the no-answer thresholds ``zero``, ``fitted`` (if there is an inner split) and ``oracle``."""
    result = scored.result
    if result.threshold is None or result.example_scores is None or result.example_scores.spans is None:
        return {}
    spans = result.example_scores.spans
    table = {"zero": _scores_at(spans, 0.0)}
    if scored.inner is not None:
        table["fitted"] = _scores_at(spans, result.threshold)
    return {**table, "oracle": _oracle(task, scored.predictions.split, spans)}


def _scores_at(spans: SpanScores, threshold: float) -> dict[str, float]:
    means = 100 * spans.at(threshold).mean(0)  # (2,)
    return {**dict(zip(SPAN_SCORES, means.tolist(), strict=True)), "threshold": threshold}


def _oracle(task: Task, split: str, spans: SpanScores) -> dict[str, float]:
    """Best scores over all thresholds, under the official names; a question without candidates counts as empty.

    If answering nothing is best, the official script reports the threshold 0, which is meant for probabilities;
    for scores it is a threshold below all of them.
    """
    golds, names = gold_answers(task[split]), [example.id for example in task[split]]
    silence = 100 * sum(not gold for gold in golds.values()) / len(golds)
    has_span = np.isfinite(spans.spans[:, 0])  # (examples,)
    answers = {name: "a span" if answered else "" for name, answered in zip(names, has_span, strict=True)}
    no_answer = dict(zip(names, spans.no_answer.tolist(), strict=True))
    table: dict[str, float] = {}
    for column, metric in enumerate(SPAN_SCORES):
        answered = dict(zip(names, spans.answered[:, column].tolist(), strict=True))
        best, threshold = official_best_threshold(golds, answers, answered, no_answer)
        below = float(spans.no_answer.min()) - 1
        table |= {f"best_{metric}": best, f"best_{metric}_thresh": threshold if best > silence else below}
    return table


def advise(board: Board) -> str:
    """Which head to use: the best mean over seeds on inner, next to the encoder and the control."""
    heads = [row for row in board.rows if row.kind == "head"]
    specs = list(dict.fromkeys(row.spec for row in heads))
    metric = board.metric

    def mean(spec: str, split: str) -> float:
        values = [getattr(row, split)[metric] for row in heads if row.spec == spec]
        return float(sum(values) / len(values))

    best = board.best_head
    assert best is not None, "advice is about heads"
    encoder = next((row for row in board.rows if row.kind == "encoder"), None)
    references = [] if encoder is None else [("the encoder alone", encoder.name, encoder.scores[metric])]
    references += [("the control", CONTROL, mean(CONTROL, "scores"))] if CONTROL in specs and best != CONTROL else []
    versus = "".join(f", {title} {score:.2f} ({_significance(board, best, name)})" for title, name, score in references)
    return (
        f"Use {best}: best of {len(specs)} heads on inner ({metric} {mean(best, 'inner'):.2f}, mean over seeds); "
        f"on {board.split} it has {metric} {mean(best, 'scores'):.2f}{versus}."
        f"{_caution(board, best)} Best row on inner: {board.rows[0].name}."
    )


def _significance(board: Board, best: str, reference: str) -> str:
    test = paired_test_with(board, best, reference)
    if test is None:
        return "not tested"
    chance = f"p {test.p_holm:.2g}" if test.p_holm >= 0.001 else "p < 0.001"
    if test.p_holm >= ALPHA:
        return f"not distinguishable, {chance}"
    return f"{'ahead' if test.difference > 0 else 'behind'} beyond chance, {chance}"


def _caution(board: Board, best: str) -> str:
    """Whether lower layers help; nothing if the leaderboard has no such test."""
    test = paired_test_with(board, best, CONTROL)
    if test is None or best == CONTROL:
        return ""
    if test.p_holm < ALPHA and test.difference > 0:
        return " The layers below the last help here."
    return " Nothing shows that more layers than the last help here."
