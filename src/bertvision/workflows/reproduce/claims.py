"""A claim's tests on our rows: a difference with an interval for sampling error, and the verdict that follows."""

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
    point,
    seed_group_of,
)
from bertvision.workflows.reproduce.rows import RowResult

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided at this scale"
TAIL = 0.025
"""What lies beyond either end of an interval."""
STAR = "*"
EXACT = ("parameters", "percent", "trained")
"""Metrics that are counted and not measured."""
OF_ANSWERS = ("share",)
"""Metrics of a table that are drawn from answers: like scores they mean nothing before anything is learned."""
NOTHING = "neither is better than one answer to everything"


@dataclass(frozen=True)
class Measured:
    """A difference (or a number) with its 95 % interval; without one nothing is decided."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""  # there is no interval
    note: str = ""  # what it is the mean of

    @property
    def decided(self) -> bool:
        return all(end is not None and math.isfinite(end) for end in (self.low, self.high))


def verdict(measured: Measured, says: str, margin: float = 0.0, comparisons: int = 1) -> str:
    """A rule holds where the whole interval agrees with it, fails where none of it does, else it is open.

    A claim holds by all of its comparisons and fails by any: of several, one fails by chance sooner, so that it
    must fail by the interval that allows for their number.
    """
    if not measured.decided or measured.low is None or measured.high is None:
        return OPEN
    lowest, highest = allowed(says, margin)
    strict = says == "more"  # more is strictly more
    if lowest <= measured.low and measured.high <= highest and not (strict and measured.low <= margin):
        return HOLDS
    low, high = bonferroni_interval(measured, comparisons)
    if high < lowest or low > highest or (strict and high <= lowest):
        return FAILS
    return OPEN


def bonferroni_interval(measured: Measured, comparisons: int) -> tuple[float, float]:
    """Ends of an interval of 1 - 0.05 / comparisons: each side as much wider as a normal one would be."""
    middle, low, high = measured.difference or 0.0, measured.low or 0.0, measured.high or 0.0
    more = NormalDist().inv_cdf(1 - TAIL / comparisons) / NormalDist().inv_cdf(1 - TAIL) - 1
    return low - more * (middle - low), high + more * (high - middle)


def allowed(says: str, margin: float) -> tuple[float, float]:
    """What a minus b may be."""
    return {
        "more": (margin, math.inf),
        "as-good": (-margin, math.inf),
        "about": (-margin, margin),
        "not-more": (-math.inf, margin),
    }[says]


def is_too_wide(low: float, high: float, says: str, margin: float) -> bool:
    """Whether an interval could not lie within what is allowed, wherever it was: so few examples cannot show it."""
    lowest, highest = allowed(says, margin)
    return high - low > highest - lowest


def together(verdicts: Sequence[str]) -> str:
    """All hold: holds. One fails: does not hold. Else, and without any, it is open."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and all(verdict == HOLDS for verdict in verdicts) else OPEN


def mean_difference(parts: Sequence[Measured]) -> Measured:
    """Mean of independent differences: half-widths add up as squares, sqrt(sum w^2) / n, on either side."""
    if not parts or any(not part.decided for part in parts):
        return Measured(why=next((part.why for part in parts if not part.decided), "no rows"))
    count = len(parts)
    middle = sum(part.difference or 0.0 for part in parts) / count
    below = [(part.difference or 0.0) - (part.low or 0.0) for part in parts]
    above = [(part.high or 0.0) - (part.difference or 0.0) for part in parts]
    low, high = (math.sqrt(sum(width**2 for width in widths)) / count for widths in (below, above))
    return Measured(middle, middle - low, middle + high)


def weigh(test: Check, rows: Mapping[str, RowResult]) -> Measured:
    """The difference of a test; rows with a star are averaged over those with a partner that have learned something."""
    if STAR not in test.a:
        return _pair(test, rows.get(test.a), None if test.b is None else rows.get(test.b))
    begin, end = test.a.split(STAR, 1)
    pairs: dict[str, Measured] = {}
    for row in rows:
        if fnmatchcase(row, test.a):
            name = row[len(begin) : len(row) - len(end)]
            a, b = rows[begin + name + end], rows.get(str(test.b).replace(STAR, name))
            if b is not None and a.answers and b.answers:
                pairs[name] = _pair(test, a, b)
    used = {name: pair for name, pair in pairs.items() if pair.why != NOTHING}
    if not used:
        return Measured(why=NOTHING if pairs else "no data")
    # Every difference that the mean is made of: a single one may make it.
    parts = [name if pair.difference is None else f"{name} {pair.difference:+.1f}" for name, pair in used.items()]
    left_out = [name for name in pairs if name not in used]
    note = f"mean of {', '.join(parts)}" + (f"; nothing learned: {', '.join(left_out)}" if left_out else "")
    return replace(mean_difference(list(used.values())), note=note + _published_difference(test, list(used)))


def _published_difference(test: Check, names: Sequence[str]) -> str:
    """The paper's own mean difference over the same rows: of others than all it may be another one."""
    known, differences = published_of(test.item), []
    for name in names:
        a, b = (known.get(str(row).replace(STAR, name), {}) for row in (test.a, test.b))
        both = [metric for metric in a if metric in b and metric not in EXACT]
        differences += [a[metric] - b[metric] for metric in both[:1]]
    return f"; the paper's difference there {fmean(differences):+.1f}" if len(differences) == len(names) else ""


def _pair(test: Check, a: RowResult | None, b: RowResult | None) -> Measured:
    compared = [(test.a, a)] if test.b is None else [(test.a, a), (test.b, b)]
    for name, row in compared:
        if row is None or row.missing:
            return Measured(why=f"{name}: {row.missing if row else 'not in the table'}")
    assert a is not None
    if test.of == "value":
        if test.metric in OF_ANSWERS and a.task is not None and not has_learned(a.answers, a.task):
            return Measured(why=NOTHING)
        return _values(test, a, b)
    if b is None or not a.answers or not b.answers or a.task is None:
        return Measured(why="there are no answers to compare")
    task = replace(a.task, metric=metric_of(test, a.task))
    if not test.silence and not any(has_learned(row.answers, task) for row in (a, b)):
        return Measured(why=NOTHING)
    if test.of == "length":
        return _lengths(a, b, a.task)
    if test.among != "all":  # questions that have an answer, or those that have none
        asked = tuple(e for e in task["dev"] if bool(e.answers) == (test.among == "answerable"))
        task = replace(task, splits={**task.splits, "dev": asked})
    return _scores(test, a, b, task)


def _values(test: Check, a: RowResult, b: RowResult | None) -> Measured:
    """Numbers of the table: against a constant their own interval, against another the widest difference.

    A number without an interval that was counted is sure; one that was measured is not.
    """
    without = [row.name for row in (a, b) if row is not None and test.metric not in row.values]
    if without:
        return Measured(why=f"{' and '.join(without)} without a value (see the note there)")
    low, high = _ends(a, test.metric)
    other = test.number if b is None else b.values[test.metric]
    assert other is not None
    below, above = (other, other) if b is None else _ends(b, test.metric)
    if any(math.isnan(end) for end in (low, high, below, above)):
        return Measured(a.values[test.metric] - other, why="one value, and no spread to judge it by")
    return Measured(a.values[test.metric] - other, low - above, high - below)


def _ends(row: RowResult, metric: str) -> tuple[float, float]:
    if metric in EXACT:
        return row.values[metric], row.values[metric]
    return row.intervals.get(metric, (math.nan, math.nan))


def metric_of(test: Check, task: Task | None) -> str:
    """What is compared: what the test names, else the task's own metric."""
    return test.metric or ("" if task is None else task.metric)


def _scores(test: Check, a: RowResult, b: RowResult, task: Task) -> Measured:
    """Paired on the same examples, whole contexts drawn together: scores, or their efficiency.

    Efficiency is (score - floor) / log10(trained), the floor being what one answer to everything is worth on the
    same draw.
    """
    comparison = Comparison(task, "dev") if task["dev"] else None
    sides = (
        []
        if comparison is None
        else [side for row in (a, b) if (side := seed_group_of(comparison, row.answers)) is not None]
    )
    if comparison is None or len(sides) < 2:
        return Measured(why="nothing to draw from")
    points = [point(comparison, side) for side in sides]
    drawn = [side.drawn.mean(0) for side in sides]  # (resamples,) each
    if test.of == "efficiency":
        floor, floors = constant_answer_score(comparison)
        trained = [row.values["trained"] for row in (a, b)]
        points = [points_per_decade(score, count, floor) for score, count in zip(points, trained, strict=True)]
        drawn = [points_per_decade(scores, count, floors) for scores, count in zip(drawn, trained, strict=True)]
    difference = points[0] - points[1]
    ends = comparison.interval(drawn[0] - drawn[1])
    return Measured(difference, why="one context only") if ends is None else Measured(difference, *ends)


def _lengths(a: RowResult, b: RowResult, task: Task) -> Measured:
    """Mean context of what only a gets right minus that of what only b gets right, in words."""
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
