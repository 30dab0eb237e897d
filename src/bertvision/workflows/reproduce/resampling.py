"""Answers to dev under resampling: what a score would be on other examples, and whether anything was learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.comparison import Comparison, PredictorScores, SeedGroup
from bertvision.evaluation.example_scores import score_answers
from bertvision.evaluation.metrics.bootstrap import draw_clustered_rows, percentile_interval
from bertvision.tasks.task import Task

DRAWS = 2000


def seed_group_of(comparison: Comparison, answers: Sequence[Mapping[str, Any]]) -> SeedGroup | None:
    """Answers, a mapping per seed, as something to be resampled; None if the metric cannot be."""
    predictors = []
    for seed, of_seed in enumerate(answers):
        example_scores = score_answers(comparison.task, "dev", of_seed)
        # The score itself is computed from the scores of the examples.
        predictors.append(PredictorScores("", "head", seed, math.nan, example_scores))
    sides = comparison.seed_groups(predictors)
    return sides[0] if sides else None


def point(comparison: Comparison, side: SeedGroup) -> float:
    """The score on the examples themselves, each drawn once, in points."""
    once = np.ones((1, comparison.num_units))
    return 100 * float(np.mean([score.of(once, comparison.members) for score in side.scores]))


def interval_of_rows(
    comparison: Comparison, number: Callable[[NDArray[np.int64]], float]
) -> tuple[float, float] | None:
    """Interval of a number of the examples (by their rows), whole contexts drawn; None if there is nothing to draw."""
    whole = number(np.arange(len(comparison.members)))
    drawn = np.array([number(rows) for rows in draw_clustered_rows(comparison.members, DRAWS, 0)])
    drawn = drawn[np.isfinite(drawn)]
    return None if math.isnan(whole) or not len(drawn) else percentile_interval(drawn, comparison.num_units)


def constant_answer_score(comparison: Comparison) -> tuple[float, NDArray[np.float64]]:
    """What one answer to everything is worth at best, on the examples and on each draw; 0 where it has no score.

    On SQuAD 2.0 it is 50, the share of questions that have no answer.
    """
    task = comparison.task
    # Nothing of spans, each of the labels; a constant value correlates with none.
    constants = {"span": [""], "classify": list(task.labels)}.get(task.kind, [])
    floors = []
    for answer in constants:
        side = seed_group_of(comparison, [{example.id: answer for example in task["dev"]}])
        if side is not None:
            floors.append((point(comparison, side), side.drawn.mean(0)))
    return max(floors, key=lambda floor: floor[0], default=(0.0, np.zeros(1)))


def has_learned(answers: Sequence[Mapping[str, Any]], task: Task) -> bool:
    """The score is above that of every answer that is the same to all, by the whole 95 % interval.

    Of labels it is Matthews' correlation: where most are positive, F1 is high for who says so of everything.
    Two that have learned nothing are equal to the last digit: no claim is shown by that.
    """
    comparison = Comparison(replace(task, metric="matthews_correlation") if task.kind == "classify" else task, "dev")
    mine = seed_group_of(comparison, answers)
    if mine is None:
        return False
    ends = comparison.interval(mine.drawn.mean(0) - constant_answer_score(comparison)[1])
    return ends is not None and ends[0] > 0
