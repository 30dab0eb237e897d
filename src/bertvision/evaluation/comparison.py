"""Confidence intervals, means over seeds, and paired tests between the predictors of a split.

All predictors are evaluated on the same bootstrap resamples, which draw whole contexts. A predictor with several seeds
is represented by their mean: per example if the metric is a mean over examples, otherwise per score. Tests compare two
predictors on the same examples; p values are corrected (Holm) over all tests of a leaderboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import CONTROL, PairedTest, SeedSummary
from bertvision.evaluation.example_scores import ExampleScores, example_clusters
from bertvision.evaluation.metrics.bootstrap import (
    DRAWS,
    Score,
    clopper_pearson_lower,
    cluster_ids_of,
    cluster_sums,
    holm,
    mean_score,
    percentile_interval,
    resample_scores,
    sign_flip_p,
    swap_p,
)
from bertvision.evaluation.metrics.labels import LABEL_SCORES, label_score
from bertvision.evaluation.metrics.values import SpearmanScore, pearson_score
from bertvision.tasks.task import Task

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None

PERFECT = 100.0


@dataclass(frozen=True)
class PredictorScores:
    """One row of a leaderboard with its scores per example."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seed: int | None
    score: float  # the metric on the split, in points
    example_scores: ExampleScores


@dataclass(frozen=True)
class SeedGroup:
    """All seeds of one predictor, best on inner first."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seeds: tuple[int, ...]
    scores: tuple[Score, ...]
    points: tuple[float, ...]  # the metric of each seed, in points
    drawn: Floats  # (seeds, draws) the metric on each resample, in points
    values: Floats | None  # (examples,) mean over seeds, if the metric is a mean over examples
    rows: tuple[int, ...]  # index of each seed among the predictors

    def for_tests(self) -> SeedGroup:
        """All seeds or, if the metric is not a mean over examples, the best one on inner."""
        if self.values is not None:
            return self
        return replace(self, seeds=self.seeds[:1], scores=self.scores[:1], points=self.points[:1], drawn=self.drawn[:1])


def metric_score(task: Task, example_scores: ExampleScores) -> Score | None:
    """The metric of a task in a form that can be resampled; None for other metrics."""
    if task.metric in example_scores.means:
        return mean_score(example_scores.means[task.metric])
    if task.labels and task.metric in LABEL_SCORES:
        return label_score(task.metric, example_scores.gold, example_scores.predicted, len(task.labels))
    if task.metric == "pearson":
        return pearson_score(example_scores.gold, example_scores.predicted)
    return SpearmanScore(example_scores.gold, example_scores.predicted) if task.metric == "spearmanr" else None


def cluster_members(task: Task, split: str) -> NDArray[np.int64]:
    """The number of the cluster of each example, which resamples draw whole: (examples,)."""
    return np.asarray(cluster_ids_of(example_clusters(task, split), len(task[split])))


class Comparison:
    """Compares predictors on the examples of one split."""

    def __init__(self, task: Task, split: str) -> None:
        self.task = task
        self.members = cluster_members(task, split)  # (examples,)
        self.num_units = int(self.members.max()) + 1
        self.unit_name = "rows" if example_clusters(task, split) is None else "contexts"

    def resampling_info(self) -> dict[str, Any]:
        """How intervals and tests are computed; stored in leaderboard.json."""
        return {"level": 0.95, "draws": DRAWS, "clusters": self.num_units, "of": self.unit_name, "seeds_vary": "head"}

    def seed_groups(self, predictors: Sequence[PredictorScores]) -> list[SeedGroup]:
        """Group predictors over their seeds, in order of appearance; no groups if the metric cannot be resampled."""
        scores: list[Score] = []
        rows_of: dict[tuple[str, str], list[int]] = {}
        for row, predictor in enumerate(predictors):
            score = metric_score(self.task, predictor.example_scores)
            if score is None:
                return []
            scores.append(score)
            rows_of.setdefault((predictor.kind, predictor.name), []).append(row)
        if not scores:
            return []
        drawn = 100 * resample_scores(scores, self.members.tolist(), len(self.members))  # (rows, draws)
        groups = []
        for rows in rows_of.values():
            runs = [predictors[row] for row in rows]  # one per seed
            means = [run.example_scores.means for run in runs]
            values = [mean[self.task.metric] for mean in means if self.task.metric in mean]
            groups.append(
                SeedGroup(
                    name=runs[0].name,
                    kind=runs[0].kind,
                    seeds=tuple(run.seed for run in runs if run.seed is not None),
                    scores=tuple(scores[row] for row in rows),
                    points=tuple(run.score for run in runs),
                    drawn=drawn[rows],
                    values=np.mean(values, axis=0) if values else None,
                    rows=tuple(rows),
                )
            )
        return groups

    def interval(self, drawn: Floats) -> Interval:
        """95 % interval; None if there is only one context."""
        return percentile_interval(drawn, self.num_units)

    def score_interval(self, score: float, drawn: Floats) -> Interval:
        """95 % interval of a score; if every resample is perfect, from an exact lower bound (Clopper-Pearson)."""
        interval = self.interval(drawn)
        return (score * clopper_pearson_lower(self.num_units), score) if interval == (PERFECT, PERFECT) else interval

    def row_intervals(self, groups: Sequence[SeedGroup]) -> dict[int, Interval]:
        """95 % interval of each predictor, by its index."""
        return {
            row: self.score_interval(group.points[seed], group.drawn[seed])
            for group in groups
            for seed, row in enumerate(group.rows)
        }

    def summarize(self, group: SeedGroup) -> SeedSummary:
        """Mean, standard deviation (with n - 1) and range over seeds, and the interval of the mean."""
        points = np.asarray(group.points, dtype=np.float64)
        mean = float(points.mean())
        return SeedSummary(
            name=group.name,
            kind=group.kind,
            seeds=tuple(sorted(group.seeds)),
            mean=mean,
            std=float(points.std(ddof=1)) if len(points) > 1 else None,
            min=float(points.min()),
            max=float(points.max()),
            interval=self.score_interval(mean, group.drawn.mean(0)),
        )

    def compare(self, first: SeedGroup, second: SeedGroup) -> PairedTest:
        """First minus second, with uncorrected p."""
        a, b = first.for_tests(), second.for_tests()
        difference = float(np.mean(a.points) - np.mean(b.points))
        low, high = self.interval(a.drawn.mean(0) - b.drawn.mean(0)) or (None, None)
        if a.values is not None and b.values is not None:
            p = sign_flip_p(cluster_sums(self.members, a.values - b.values))
        else:
            p = swap_p(a.scores[0], b.scores[0], self.members.tolist())
        a_seeds, b_seeds = tuple(sorted(a.seeds)), tuple(sorted(b.seeds))
        return PairedTest(a.name, b.name, difference, low, high, p, p, a_seeds=a_seeds, b_seeds=b_seeds)

    def comparisons(
        self, groups: Sequence[SeedGroup], best: str | None, control: str = CONTROL
    ) -> tuple[PairedTest, ...]:
        """Tests of all predictors against the encoder and the control, and of the best head against all others."""
        return self.corrected_tests(tested_pairs(groups, best, control))

    def corrected_tests(self, pairs: Sequence[tuple[SeedGroup, SeedGroup]]) -> tuple[PairedTest, ...]:
        """First minus second of each pair, with p corrected (Holm) over all pairs."""
        tests = [self.compare(*pair) for pair in pairs]
        corrected = holm([test.p for test in tests])
        return tuple(replace(test, p_holm=p) for test, p in zip(tests, corrected, strict=True))


def tested_pairs(groups: Sequence[SeedGroup], best: str | None, control: str) -> list[tuple[SeedGroup, SeedGroup]]:
    """The pairs that a leaderboard tests, each once and with the best head first."""
    best_heads = [group for group in groups if (group.kind, group.name) == ("head", best)]
    references = [group for group in groups if group.kind == "encoder"]
    references += [group for group in groups if (group.kind, group.name) == ("head", control)]
    pairs = [*product(best_heads, groups), *((group, reference) for reference in references for group in groups)]
    distinct: dict[frozenset[str], tuple[SeedGroup, SeedGroup]] = {}
    for first, second in pairs:
        if first is not second:
            distinct.setdefault(frozenset((first.name, second.name)), (first, second))
    return list(distinct.values())
