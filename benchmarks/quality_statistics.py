"""Scores of predictions, and paired comparisons of two methods over all draws of the training rows.

A resample draws rows of dev with replacement, the same for both methods, and a method's score is its mean over draws.
The intervals and p values are thus about the rows of dev; the training rows vary only as far as there are draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.metrics.bootstrap import (
    Score,
    SumScore,
    holm,
    mean_score,
    percentile_interval,
    resample_scores,
    sign_flip_p,
    swap_p,
)
from bertvision.evaluation.metrics.labels import label_score
from bertvision.evaluation.metrics.values import SpearmanScore
from bertvision.tasks.splits import stable_hash
from quality_tasks import LabelledText, QualityTask

Labels = NDArray[Any]  # (rows,) names of classes, or values
Floats = NDArray[np.float64]


def as_labels(task: QualityTask, answers: Sequence[object]) -> Labels:
    """Values of a regression task, else names of classes."""
    return np.array([float(str(answer)) if task.is_regression else str(answer) for answer in answers])


def gold_of(task: QualityTask, rows: Sequence[LabelledText]) -> Labels:
    """The labels of rows."""
    return as_labels(task, [row.label for row in rows])


def resampled_score(task: QualityTask, gold: Labels, predicted: Labels) -> Score:
    """The metric of a task in a form that can be resampled, as a fraction."""
    if task.is_regression:
        return SpearmanScore(gold, predicted)
    if task.metric == "accuracy":
        return mean_score(gold == predicted)
    names = np.unique(np.concatenate([gold, predicted]))
    gold, predicted = np.searchsorted(names, gold), np.searchsorted(names, predicted)
    return label_score(task.metric, gold, predicted, len(names))


def score_of(task: QualityTask, gold: Labels, predicted: Labels) -> float:
    """The metric of a task, in points."""
    score = resampled_score(task, gold, predicted)
    return 100 * float(score.of(np.ones((1, len(gold))), np.arange(len(gold)))[0])


@dataclass(frozen=True)
class Comparison:
    """Recommended minus another method on one task or, with ``task`` "", over several; in points."""

    group: str
    regime: str
    task: str
    rival: str
    tasks: int
    draws: int
    ours: float
    theirs: float
    difference: float
    low: float
    high: float
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Pairing:
    """The predictions of two methods for the dev of one task, a pair per draw of the training rows."""

    task: QualityTask
    regime: str
    rival: str
    gold: Labels
    ours: Sequence[Labels]
    theirs: Sequence[Labels]

    def scores(self) -> tuple[float, float]:
        """Mean over draws of both methods, in points."""
        ours, theirs = (
            float(np.mean([score_of(self.task, self.gold, one_draw) for one_draw in side]))
            for side in (self.ours, self.theirs)
        )
        return ours, theirs

    def resampled_differences(self) -> Floats:
        """Ours minus theirs on each resample (resamples,), in points."""
        # Tasks have different rows, so their resamples must be independent.
        seed = int(stable_hash(self.task.name)[:8], 16)
        drawn = 100 * resample_scores(self._resampled(), None, len(self.gold), seed=seed)  # (2 draws, resamples)
        ours, theirs = np.split(drawn, 2)
        return np.asarray(ours.mean(0) - theirs.mean(0))

    def p_value(self) -> float:
        """Two-sided p of the sign-flip test, or for metrics that are not means of swapping predictions."""
        scores = self._resampled()
        if self.task.metric == "accuracy":
            right = [np.mean([side == self.gold for side in draws], axis=0) for draws in (self.ours, self.theirs)]
            return sign_flip_p(right[0] - right[1])
        return swap_p(mean_of(scores[: len(self.ours)]), mean_of(scores[len(self.ours) :]), None)

    def _resampled(self) -> list[Score]:
        return [resampled_score(self.task, self.gold, predicted) for predicted in (*self.ours, *self.theirs)]


def mean_of(scores: Sequence[Score]) -> SumScore:
    """The mean of several scores on the same examples as one score."""
    parts = [score.sums() for score in scores]
    ends = np.cumsum([part.columns.shape[1] for part in parts])[:-1]

    def finish(sums: Floats) -> Floats:
        each = [part.finish(own) for part, own in zip(parts, np.split(sums, ends, axis=1), strict=True)]
        return np.asarray(np.mean(each, axis=0))

    return SumScore(np.concatenate([part.columns for part in parts], axis=1), finish)


def compare(pairings: Sequence[Pairing]) -> list[Comparison]:
    """A comparison of each pairing, with p corrected (Holm) over all of them, then means over tasks."""
    drawn = [pairing.resampled_differences() for pairing in pairings]
    on_tasks = [_on_task(*each) for each in zip(pairings, drawn, strict=True)]
    corrected = holm([1.0 if each.p is None else each.p for each in on_tasks])
    on_tasks = [replace(each, p_holm=p) for each, p in zip(on_tasks, corrected, strict=True)]
    members: dict[tuple[str, str, str], list[int]] = {}
    for index, each in enumerate(on_tasks):
        members.setdefault((each.group, each.regime, each.rival), []).append(index)
    means = [
        _over_tasks(
            [on_tasks[i] for i in chosen], [drawn[i] for i in chosen], sum(len(pairings[i].gold) for i in chosen)
        )
        for chosen in members.values()
    ]
    return [*on_tasks, *means]


def _on_task(pairing: Pairing, drawn: Floats) -> Comparison:
    ours, theirs = pairing.scores()
    task, p = pairing.task, pairing.p_value()
    low, high = _interval(drawn, len(pairing.gold))
    scores = (ours, theirs, ours - theirs, low, high, p)
    return Comparison(task.group, pairing.regime, task.name, pairing.rival, 1, len(pairing.ours), *scores)


def _over_tasks(on_tasks: Sequence[Comparison], drawn: Sequence[Floats], rows: int) -> Comparison:
    """The mean of comparisons with the same rival; its interval takes the tasks as given."""
    first, draws = on_tasks[0], min(each.draws for each in on_tasks)
    ours, theirs = fmean(each.ours for each in on_tasks), fmean(each.theirs for each in on_tasks)
    scores = (ours, theirs, ours - theirs, *_interval(np.mean(drawn, axis=0), rows))
    return Comparison(first.group, first.regime, "", first.rival, len(on_tasks), draws, *scores)


def _interval(drawn: Floats, rows: int) -> tuple[float, float]:
    interval = percentile_interval(drawn, rows)
    assert interval is not None  # only for a single row
    return interval
