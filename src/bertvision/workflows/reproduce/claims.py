"""Tests of claims: the difference of two rows with an interval for sampling error, and the resulting verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.answers import context_word_counts, grade_answers
from bertvision.evaluation.analyses.cost import points_per_decade
from bertvision.evaluation.comparison import Comparison
from bertvision.tasks.task import Task
from bertvision.workflows.reproduce.published import Check, published_of
from bertvision.workflows.reproduce.resampling import (
    constant_answer_score,
    has_learned,
    interval_of_rows,
    score_on_all,
    seed_group_of,
)
from bertvision.workflows.reproduce.rows import RowResult

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided at this scale"
ALPHA_HALF = 0.025
"""Probability beyond either end of an interval."""
STAR = "*"
COUNTED_METRICS = ("parameters", "percent", "trained")
"""Metrics that are counted: they have no sampling error."""
ANSWER_METRICS = ("share",)
"""Metrics that depend on answers: like scores they are only tested on predictors that have learned something."""
NOTHING_LEARNED = "neither is better than one answer to everything"
"""Why a comparison has no interval; part of saved documents."""


@dataclass(frozen=True)
class Measured:
    """A difference (or a number) with its 95 % interval; without an interval it decides nothing."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""  # why there is no interval
    note: str = ""  # what a mean consists of

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Lower end, difference and upper end; None without finite ends."""
        if self.low is None or self.difference is None or self.high is None:
            return None
        return (self.low, self.difference, self.high) if math.isfinite(self.low) and math.isfinite(self.high) else None


def verdict(measured: Measured, says: str, margin: float = 0.0, comparisons: int = 1) -> str:
    """A rule holds if the whole interval agrees with it, fails if the whole interval contradicts it, else is open.

    A claim fails if any of its comparisons does, which happens by chance more easily with many of them. Failing
    therefore needs the interval that is widened for their number.
    """
    if measured.interval is None:
        return OPEN
    low, difference, high = measured.interval
    lowest, highest = allowed_range(says, margin)
    strict = says == "more"  # more is strictly more
    if lowest <= low and high <= highest and not (strict and low <= margin):
        return HOLDS
    low, high = bonferroni_interval(low, difference, high, comparisons)
    if high < lowest or low > highest or (strict and high <= lowest):
        return FAILS
    return OPEN


def bonferroni_interval(low: float, difference: float, high: float, comparisons: int) -> tuple[float, float]:
    """The interval of level 1 - 0.05 / comparisons: each side is scaled as for a normal distribution."""
    scale = NormalDist().inv_cdf(1 - ALPHA_HALF / comparisons) / NormalDist().inv_cdf(1 - ALPHA_HALF) - 1
    return low - scale * (difference - low), high + scale * (high - difference)


def allowed_range(says: str, margin: float) -> tuple[float, float]:
    """The range of a minus b that agrees with a rule."""
    return {
        "more": (margin, math.inf),
        "as-good": (-margin, math.inf),
        "about": (-margin, margin),
        "not-more": (-math.inf, margin),
    }[says]


def is_too_wide(low: float, high: float, says: str, margin: float) -> bool:
    """Whether an interval is wider than the allowed range, so that no result on so few examples could hold."""
    lowest, highest = allowed_range(says, margin)
    return high - low > highest - lowest


def combine_verdicts(verdicts: Sequence[str]) -> str:
    """Holds if all hold, does not hold if any fails, else (also without verdicts) open."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and all(verdict == HOLDS for verdict in verdicts) else OPEN


def mean_difference(parts: Sequence[Measured]) -> Measured:
    """Mean of independent differences; each half-width is sqrt(sum of squares) / n."""
    intervals = [part.interval for part in parts if part.interval is not None]
    if not parts or len(intervals) < len(parts):
        return Measured(why=next((part.why for part in parts if part.interval is None), "no rows"))
    count = len(parts)
    mean = sum(difference for _, difference, _ in intervals) / count
    below = math.sqrt(sum((difference - low) ** 2 for low, difference, _ in intervals)) / count
    above = math.sqrt(sum((high - difference) ** 2 for _, difference, high in intervals)) / count
    return Measured(mean, mean - below, mean + above)


def measure(check: Check, rows: Mapping[str, RowResult]) -> Measured:
    """The difference that a check tests; with a star, the mean over matching pairs that have learned something."""
    if STAR not in check.a:
        return _measure_pair(check, rows.get(check.a), None if check.b is None else rows.get(check.b))
    begin, end = check.a.split(STAR, 1)
    pairs: dict[str, Measured] = {}
    for row in rows:
        if fnmatchcase(row, check.a):
            name = row[len(begin) : len(row) - len(end)]
            a, b = rows[begin + name + end], rows.get(str(check.b).replace(STAR, name))
            if b is not None and a.answers and b.answers:
                pairs[name] = _measure_pair(check, a, b)
    used = {name: pair for name, pair in pairs.items() if pair.why != NOTHING_LEARNED}
    if not used:
        return Measured(why=NOTHING_LEARNED if pairs else "no data")
    # The note lists every difference, because a single one may dominate the mean.
    parts = [name if pair.difference is None else f"{name} {pair.difference:+.1f}" for name, pair in used.items()]
    left_out = [name for name in pairs if name not in used]
    note = f"mean of {', '.join(parts)}" + (f"; nothing learned: {', '.join(left_out)}" if left_out else "")
    note += _published_difference(check, list(used))
    return replace(mean_difference(list(used.values())), note=note)


def _published_difference(check: Check, names: Sequence[str]) -> str:
    """End of a note: the paper's mean difference of the same pairs, or "" if it has no numbers for one of them.

    The metric is the check's or, if it names none, the first published one that is not a count.
    """
    published, differences = published_of(check.item), []
    for name in names:
        a, b = (published.get(str(row).replace(STAR, name), {}) for row in (check.a, check.b))
        candidates = [check.metric] if check.metric else [metric for metric in a if metric not in COUNTED_METRICS]
        shared_metrics = [metric for metric in candidates if metric in a and metric in b]
        differences += [a[metric] - b[metric] for metric in shared_metrics[:1]]
    return f"; the paper's difference there {fmean(differences):+.1f}" if len(differences) == len(names) else ""


def _measure_pair(check: Check, a: RowResult | None, b: RowResult | None) -> Measured:
    """The difference of two rows, or of a row and a number."""
    compared = [(check.a, a)] if check.b is None else [(check.a, a), (check.b, b)]
    for name, row in compared:
        if row is None or row.missing:
            return Measured(why=f"{name}: {row.missing if row else 'not in the table'}")
    assert a is not None
    if check.of == "value":
        if check.metric in ANSWER_METRICS and a.task is not None and not has_learned(a.answers, a.task):
            return Measured(why=NOTHING_LEARNED)
        return _value_difference(check, a, b)
    if b is None or not a.answers or not b.answers or a.task is None:
        return Measured(why="there are no answers to compare")
    task = replace(a.task, metric=metric_of(check, a.task))
    if not check.nothing_learned and not any(has_learned(row.answers, task) for row in (a, b)):
        return Measured(why=NOTHING_LEARNED)
    if check.of == "length":
        return _length_difference(a, b, a.task)
    if check.among != "all":  # questions that have an answer, or those that have none
        answerable = check.among == "answerable"
        examples = tuple(example for example in task["dev"] if bool(example.answers) == answerable)
        task = replace(task, splits={**task.splits, "dev": examples})
    return _score_difference(check, a, b, task)


def _value_difference(check: Check, a: RowResult, b: RowResult | None) -> Measured:
    """Difference of numbers of the table, with the widest interval that the intervals of both allow."""
    without = [row.name for row in (a, b) if row is not None and check.metric not in row.values]
    if without:
        return Measured(why=f"{' and '.join(without)} without a value (see the note there)")
    other = check.number if b is None else b.values[check.metric]
    assert other is not None
    difference = a.values[check.metric] - other
    if check.metric in COUNTED_METRICS:
        return Measured(difference, difference, difference)
    interval = a.intervals.get(check.metric)
    other_interval = (other, other) if b is None else b.intervals.get(check.metric)
    if interval is None or other_interval is None or any(map(math.isnan, (*interval, *other_interval))):
        return Measured(difference, why="one value, and no spread to judge it by")
    return Measured(difference, interval[0] - other_interval[1], interval[1] - other_interval[0])


def metric_of(check: Check, task: Task | None) -> str:
    """The metric of a check: the one that it names, else the task's."""
    return check.metric or ("" if task is None else task.metric)


def _score_difference(check: Check, a: RowResult, b: RowResult, task: Task) -> Measured:
    """Paired difference of scores, or of their efficiency, on the same examples; whole contexts are drawn.

    Efficiency is (score - floor) / log10(trained), where the floor is the score of the best constant answer on the
    same draw.
    """
    if not task["dev"]:
        return Measured(why="nothing to draw from")
    comparison = Comparison(task, "dev")
    groups = [seed_group_of(comparison, row.answers) for row in (a, b)]
    scores = [group for group in groups if group is not None]
    if len(scores) < 2:
        return Measured(why="nothing to draw from")
    points = [score_on_all(comparison, group) for group in scores]
    drawn = [group.drawn.mean(0) for group in scores]  # (resamples,) each
    if check.of == "efficiency":
        floor, floors = constant_answer_score(comparison)
        trained = [row.values["trained"] for row in (a, b)]
        points = [points_per_decade(score, count, floor) for score, count in zip(points, trained, strict=True)]
        drawn = [points_per_decade(score, count, floors) for score, count in zip(drawn, trained, strict=True)]
    difference = points[0] - points[1]
    ends = comparison.interval(drawn[0] - drawn[1])
    return Measured(difference, why="one context only") if ends is None else Measured(difference, *ends)


def _length_difference(a: RowResult, b: RowResult, task: Task) -> Measured:
    """Mean context length, in words, of answers that only a has right minus those that only b has right."""
    right = [grade_answers(task, "dev", row.name, "head", row.answers[0]).right for row in (a, b)]
    sizes = np.array(context_word_counts(task["dev"]), np.float64)
    only = right[0] & ~right[1], right[1] & ~right[0]

    def gap(rows: NDArray[np.int64]) -> float:
        means = [sizes[rows][mask[rows]] for mask in only]
        return float(means[0].mean() - means[1].mean()) if all(len(mean) for mean in means) else math.nan

    ends = interval_of_rows(Comparison(task, "dev"), gap)
    if ends is None:
        return Measured(why="one of them gets nothing right alone")
    return Measured(gap(np.arange(len(sizes))), *ends)
