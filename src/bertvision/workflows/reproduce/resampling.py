"""Bootstrap of scores on dev: intervals, the score of a constant answer, and whether a predictor beats it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.comparison import Comparison, PredictorScores, SeedGroup
from bertvision.evaluation.example_scores import score_answers
from bertvision.evaluation.metrics.bootstrap import DRAWS, draw_clustered_rows, percentile_interval
from bertvision.tasks.task import Task


def seed_group_of(comparison: Comparison, answers: Sequence[Mapping[str, Any]]) -> SeedGroup | None:
    """Bootstrap scores of answers, one mapping per seed; None if the metric cannot be resampled."""
    predictors = []
    for seed, seed_answers in enumerate(answers):
        example_scores = score_answers(comparison.task, "dev", seed_answers)
        # The score itself is computed from the scores of the examples.
        predictors.append(PredictorScores("", "head", seed, math.nan, example_scores))
    groups = comparison.seed_groups(predictors)
    return groups[0] if groups else None


def score_on_all(comparison: Comparison, group: SeedGroup) -> float:
    """The score on all examples, each drawn once, in points."""
    once = np.ones((1, comparison.num_units))
    return 100 * float(np.mean([score.of(once, comparison.members) for score in group.scores]))


def interval_of_rows(
    comparison: Comparison, statistic: Callable[[NDArray[np.int64]], float]
) -> tuple[float, float] | None:
    """Bootstrap interval of a statistic of example rows, drawn by whole contexts; None if it is not defined."""
    whole = statistic(np.arange(len(comparison.members)))
    drawn = np.array([statistic(rows) for rows in draw_clustered_rows(comparison.members, DRAWS, 0)])
    drawn = drawn[np.isfinite(drawn)]
    return None if math.isnan(whole) or not len(drawn) else percentile_interval(drawn, comparison.num_units)


def constant_answer_score(comparison: Comparison) -> tuple[float, NDArray[np.float64]]:
    """The best score of one answer to all examples, on the examples and on each draw; 0 if it has no score.

    On SQuAD 2.0 it is 50, the share of unanswerable questions.
    """
    task = comparison.task
    # Spans: no answer. Labels: each of them. A constant value correlates with nothing.
    constants = {"span": [""], "classify": list(task.labels)}.get(task.kind, [])
    scores = []
    for answer in constants:
        group = seed_group_of(comparison, [{example.id: answer for example in task["dev"]}])
        if group is not None:
            scores.append((score_on_all(comparison, group), group.drawn.mean(0)))
    return max(scores, key=lambda score: score[0], default=(0.0, np.zeros(1)))


def has_learned(answers: Sequence[Mapping[str, Any]], task: Task) -> bool:
    """Whether the whole 95 % interval of the score is above the best constant answer.

    Labels are scored by Matthews correlation: with mostly positive labels a constant answer has a high F1. Claims are
    not tested on predictors that have learned nothing, because their scores are equal for no interesting reason.
    """
    comparison = Comparison(replace(task, metric="matthews_correlation") if task.kind == "classify" else task, "dev")
    group = seed_group_of(comparison, answers)
    if group is None:
        return False
    ends = comparison.interval(group.drawn.mean(0) - constant_answer_score(comparison)[1])
    return ends is not None and ends[0] > 0
