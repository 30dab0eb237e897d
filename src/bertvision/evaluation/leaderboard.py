"""Leaderboards: scores, intervals and paired tests of many predictors; comparison of two; baseline and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertvision.core.errors import BadInput
from bertvision.core.records import (
    ALPHA,
    CONTROL,
    FOLDS,
    Board,
    PairedTest,
    Predictions,
    Reliability,
    Row,
    paired_test_with,
)
from bertvision.core.row_title import row_title
from bertvision.evaluation.calibration import calibration, reliability
from bertvision.evaluation.comparison import Comparison, Interval, PredictorScores
from bertvision.evaluation.example_scores import SPAN_SCORES, SpanScores, gold_answers, label_indicators
from bertvision.evaluation.metrics.labels import classification_scores, multilabel_scores
from bertvision.evaluation.metrics.squad import official_best_threshold, squad_scores
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.evaluation.recommendation import recommend
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.tasks.task import Task

OneOrMore = Predictions | Sequence[Predictions]


def evaluate(predictions: OneOrMore, task: Task) -> Board:
    """Score predictors and rank them on a leaderboard.

    Everything that is fitted after training (no-answer and label thresholds, temperatures) is fitted on inner, and the
    rows are ordered by their scores on inner, so that the scores shown stay unbiased.

    Args:
        predictions: The outputs of one or more predictors on the same split, from :func:`predict`,
            :func:`predict_own` or :func:`ensemble`.
        task: The task that they predict.

    Returns:
        The leaderboard: one row per predictor and seed with 95 % confidence intervals, a summary over seeds, and
        paired tests against the encoder and the control. ``print(board)`` shows it as a table.

    Example:
        >>> import numpy as np
        >>> from bertvision import Example, Predictions, Task, evaluate
        >>> from bertvision.core.records import WindowTable
        >>> dev = tuple(Example(str(i), "text", label=i % 2) for i in range(4))
        >>> task = Task("tones", "classify", {"train": (), "dev": dev}, metric="accuracy", labels=("no", "yes"))
        >>> table = WindowTable(np.arange(4), np.zeros(4, int), [np.zeros((1, 2), int)] * 4, np.zeros((4, 1)))
        >>> always_yes = Predictions("probe", "probe", "head", "dev", [np.array([0.0, 1.0])] * 4, table, seed=0)
        >>> board = evaluate(always_yes, task)
        >>> board.rows[0].scores["accuracy"]
        50.0
    """
    return build_leaderboard(_score_all(predictions, task), task)


def compare(a: OneOrMore, b: OneOrMore, task: Task) -> PairedTest:
    """Test whether two predictors differ in the metric of the task, on the same examples.

    Args:
        a: One predictor: its predictions with one seed, or with several seeds, which are averaged. If the metric is
            not a mean over examples (an F1 of labels, a correlation), only the seed that is best on inner is tested.
        b: The other predictor, in the same form and on the same split.
        task: The task that they predict.

    Returns:
        The difference ``a`` minus ``b`` in points, its 95 % confidence interval, and the p value of a paired
        permutation test.

    Example:
        >>> test = compare(predict("probe", store), predict("learned-pool", store), task)  # doctest: +SKIP
        >>> test.difference, test.low, test.high, test.p  # doctest: +SKIP
        (-0.4, -1.1, 0.3, 0.27)
    """
    scored = [_rank(_score_all(predictions, task), task) for predictions in (a, b)]
    comparison = Comparison(task, _common_split([*scored[0], *scored[1]]))
    groups = [group for part in scored for group in comparison.seed_groups(_predictor_scores(part, task))]
    if len(groups) != 2:
        raise BadInput(f"compare needs two predictors and a metric that can be resampled, got metric {task.metric}")
    return comparison.compare(*groups)


def build_leaderboard(
    scored: Sequence[ScoredPredictions],
    task: Task,
    control: str = CONTROL,
    prefer: str = "best",
) -> Board:
    """The leaderboard of scored predictions, with tests against the control and a recommended row."""
    split, ranked = _common_split(scored), _rank(scored, task)
    selection_scores = _mean_selection_scores(ranked, task)
    best = max(selection_scores, key=lambda name: selection_scores[name], default=None)
    comparison = Comparison(task, split)
    groups = comparison.seed_groups(_predictor_scores(ranked, task))
    intervals = comparison.row_intervals(groups)
    rows = tuple(_row(member, task, intervals.get(index), control) for index, member in enumerate(ranked))
    choice = recommend(ranked, task, prefer)
    return Board(
        task=task.name,
        split=split,
        metric=task.metric,
        rows=rows,
        summary=tuple(comparison.summarize(group) for group in groups),
        best_head=best,
        comparisons=comparison.comparisons(groups, best, control),
        reliability=_reliability(ranked, rows, best),
        resampling_info=comparison.resampling_info() if groups else {},
        control=control,
        recommended=None if choice is None else choice.title,
        selection={} if choice is None else choice.facts,
    )


def _mean_selection_scores(ranked: Sequence[ScoredPredictions], task: Task) -> dict[str, float]:
    """The mean score of each head over its seeds, on the validation split."""
    scores: dict[str, list[float]] = {}
    for member in ranked:
        if member.predictions.kind == "head":
            scores.setdefault(member.predictions.name, []).append(member.selection_score(task.metric))
    return {name: sum(values) / len(values) for name, values in scores.items()}


def _score_all(predictions: OneOrMore, task: Task) -> list[ScoredPredictions]:
    members = [predictions] if isinstance(predictions, Predictions) else predictions
    return [score_predictions(task, member) for member in members]


def _common_split(scored: Sequence[ScoredPredictions]) -> str:
    splits = sorted({member.predictions.split for member in scored})
    if len(splits) != 1:
        raise BadInput(f"a leaderboard needs predictions of one split, got {', '.join(splits) or 'none'}")
    return splits[0]


def _rank(scored: Sequence[ScoredPredictions], task: Task) -> list[ScoredPredictions]:
    return sorted(scored, key=lambda member: member.rank(task.metric))


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
    diagrams: dict[str, list[Reliability]] = {}
    for member, row in zip(ranked, rows, strict=True):
        if row.kind == "encoder" or (row.kind, row.name) == ("head", best):
            diagrams.setdefault(row.kind, reliability(member, row.calibration))
    return (*diagrams.get("head", ()), *diagrams.get("encoder", ()))


def _row(scored: ScoredPredictions, task: Task, interval: Interval, control: str) -> Row:
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
        control=(predictions.kind, predictions.name) == ("head", control),
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
    return {**table, "oracle": _oracle_scores(task, scored.predictions.split, spans)}


def _scores_at(spans: SpanScores, threshold: float) -> dict[str, float]:
    means = 100 * spans.scores_at(threshold).mean(0)  # (2,)
    return {**dict(zip(SPAN_SCORES, means.tolist(), strict=True)), "threshold": threshold}


def _oracle_scores(task: Task, split: str, spans: SpanScores) -> dict[str, float]:
    """Best scores over all thresholds, under the official names; a question without candidates counts as empty.

    If leaving every question unanswered is best, the official script reports the threshold 0, which is meant for
    probabilities; for scores it is a threshold below all of them.
    """
    golds, ids = gold_answers(task[split]), [example.id for example in task[split]]
    unanswerable = 100 * sum(not gold for gold in golds.values()) / len(golds)
    has_span = np.isfinite(spans.spans[:, 0])  # (examples,)
    answers = {name: "a span" if answered else "" for name, answered in zip(ids, has_span, strict=True)}
    no_answer = dict(zip(ids, spans.no_answer.tolist(), strict=True))
    table: dict[str, float] = {}
    for column, metric in enumerate(SPAN_SCORES):
        answered = dict(zip(ids, spans.answered[:, column].tolist(), strict=True))
        best, threshold = official_best_threshold(golds, answers, answered, no_answer)
        if best <= unanswerable:
            threshold = float(spans.no_answer.min()) - 1
        table |= {f"best_{metric}": best, f"best_{metric}_thresh": threshold}
    return table


def baseline(task: Task, split: str) -> tuple[str, dict[str, float]]:
    """Name and scores of the best predictor that ignores the text, chosen by the metric of the task on train.

    It gives no answer, always the same label or set of labels, or the mean of train.
    """
    if task.kind == "span":
        golds = gold_answers(task[split])
        return "always no answer", dict(squad_scores(golds, dict.fromkeys(golds, "")))
    if task.kind == "regress":
        gold = [float(example.label or 0.0) for example in task[split]]
        return "always the mean", regression_scores(gold, [task.center] * len(gold))
    constants = _constant_answers(task)
    best = max(constants, key=lambda labels: _constant_scores(task, "train", labels)[task.metric])
    names = " + ".join(task.labels[label] for label in best) or "no label"
    return f"always {names}", _constant_scores(task, split, best)


def _constant_answers(task: Task) -> list[tuple[int, ...]]:
    """Answers that are the same for every text, most common in train first."""
    if task.kind == "classify":
        counts = Counter(int(example.label or 0) for example in task["train"])
        return [(label,) for label, _ in counts.most_common()]
    sets = Counter(example.labels or () for example in task["train"])
    every = tuple(range(task.outputs))
    return list(dict.fromkeys([sets.most_common(1)[0][0], every, *((label,) for label in every), ()]))


def _constant_scores(task: Task, split: str, labels: tuple[int, ...]) -> dict[str, float]:
    examples = task[split]
    if task.kind == "multilabel":
        predicted = label_indicators([replace(example, labels=labels) for example in examples], task.outputs)
        return multilabel_scores(label_indicators(examples, task.outputs), predicted)
    gold = [int(example.label or 0) for example in examples]
    return classification_scores(gold, [labels[0]] * len(gold), len(task.labels))


def advise(board: Board, floor: tuple[str, float] | None = None) -> str:
    """What to use, why, and how it compares with the encoder, the control and ``floor``, the best constant answer."""
    row = next((row for row in board.rows if row_title(row) == board.recommended), board.rows[0])
    metric, chosen = board.metric, _mean(board, row.name, "scores")
    references = [("the encoder alone", other.name) for other in board.rows if other.kind == "encoder"]
    references.append((f"the control, {board.control},", board.control))
    compared = [
        f"{title} has {_mean(board, name, 'scores'):.2f} ({_significance(board, row.name, name)})"
        for title, name in references
        if name != row.name and any(other.name == name for other in board.rows)
    ]
    seeds = sum(other.name == row.name for other in board.rows)
    means = f" (means over {seeds} seeds)" if seeds > 1 else ""
    parts = [f"Use {row_title(row)}: {_reason(board, row)}; {metric} {chosen:.2f} on {board.split}{means}."]
    if compared:
        parts.append(f"There, {'; '.join(compared)}.")
    test = paired_test_with(board, row.name, board.control)
    if test is not None:
        help_here = test.p_holm < ALPHA and test.difference > 0
        parts.append(
            "The layers below the last help here."
            if help_here
            else "There is no sign that the layers below the last help here."
        )
    if floor is not None and not (row.interval and row.interval[0] > floor[1]):
        name, score = floor
        parts.append(f"It is not clearly better than {name} ({score:.2f}): collect more data.")
    return " ".join(parts)


def _mean(board: Board, name: str, split: str) -> float:
    values = [getattr(row, split)[board.metric] for row in board.rows if row.name == name]
    return float(sum(values) / len(values))


def _reason(board: Board, row: Row) -> str:
    """Why a row is recommended: its score on the validation split, with standard error, and the rows tied with it."""
    facts = board.selection
    if not facts:
        return f"best of {len(board.rows)} rows"
    what = f"{facts['rows']:,} training rows, each predicted without it" if facts["split"] == FOLDS else "inner"
    text = f"{board.metric} {facts['score']:.2f} (standard error {facts['error']:.2f}) on {what}"
    tied = facts["tied"]
    if facts["prefer"] != "best":
        return f"the {'smallest' if facts['prefer'] == 'small' else 'fastest'} of the best rows, {text}"
    return f"{text}, tied with {len(tied)} other predictor{'' if len(tied) == 1 else 's'}" if tied else text


def _significance(board: Board, best: str, reference: str) -> str:
    test = paired_test_with(board, best, reference)
    if test is None:
        return "not tested"
    p_text = f"p = {test.p_holm:.2g}" if test.p_holm >= 0.001 else "p < 0.001"
    if test.p_holm >= ALPHA:
        return f"no significant difference, {p_text}"
    return f"significantly {'better' if test.difference > 0 else 'worse'}, {p_text}"
