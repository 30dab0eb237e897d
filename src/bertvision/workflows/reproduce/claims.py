"""A claim's test on our rows: the difference, with an interval for the luck of the examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.answers import context_words, hear
from bertvision.evaluation.analyses.cost import points_by_tenfold
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.tasks.task import Task
from bertvision.workflows.reproduce.published import Check, published_of
from bertvision.workflows.reproduce.resampling import drawn_ends, floor_of, has_learned, point, side_of
from bertvision.workflows.reproduce.row_sources import Entry

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided at this scale"

TAIL = 0.025
"""What lies beyond either end of an interval."""

STAR = "*"

EXACT = ("parameters", "percent", "trained")
"""Counted and not measured."""

OF_ANSWERS = ("share",)
"""Numbers of a table that are drawn from answers: like scores they say nothing of who has learned nothing."""

NOTHING = "neither is better than one answer to everything"


@dataclass(frozen=True)
class Found:
    """A difference (or a number) with its 95 % interval; without one nothing is decided."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""  # there is no interval
    note: str = ""  # what it is the mean of

    @property
    def decided(self) -> bool:
        ends = (self.low, self.high)
        return all(end is not None and math.isfinite(end) for end in ends)


def verdict(found: Found, says: str, margin: float = 0.0, looks: int = 1) -> str:
    """A rule holds where the whole interval agrees with it, fails where none of it does, else it is open.

    A claim holds by all of its comparisons and fails by any: of several looks one fails by luck sooner, so that it
    must fail by the interval that allows for their number.
    """
    if not found.decided or found.low is None or found.high is None:
        return OPEN
    lowest, highest = allowed(says, margin)
    if lowest <= found.low and found.high <= highest and not _touches(says, found.low, margin):
        return HOLDS
    low, high = stretched(found, looks)
    if high < lowest or low > highest or (says == "more" and high <= lowest):
        return FAILS
    return OPEN


def stretched(found: Found, looks: int) -> tuple[float, float]:
    """Ends of an interval of 1 - 0.05 / looks (Bonferroni): each side as much wider as a normal one would be."""
    middle, low, high = found.difference or 0.0, found.low or 0.0, found.high or 0.0
    more = NormalDist().inv_cdf(1 - TAIL / looks) / NormalDist().inv_cdf(1 - TAIL) - 1
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


def _touches(says: str, low: float, margin: float) -> bool:
    """More is strictly more."""
    return says == "more" and low <= margin


def together(verdicts: Sequence[str]) -> str:
    """All hold: holds. One fails: does not hold. Else, and without any, it is open."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and all(one == HOLDS for one in verdicts) else OPEN


def mean_of(found: Sequence[Found]) -> Found:
    """Mean of independent differences: half-widths add up as squares, sqrt(sum w^2) / n, on either side."""
    if not found or any(not one.decided for one in found):
        return Found(why=next((one.why for one in found if not one.decided), "no rows"))
    count = len(found)
    middle = sum(one.difference or 0.0 for one in found) / count
    below = math.sqrt(sum(((one.difference or 0.0) - (one.low or 0.0)) ** 2 for one in found)) / count
    above = math.sqrt(sum(((one.high or 0.0) - (one.difference or 0.0)) ** 2 for one in found)) / count
    return Found(middle, middle - below, middle + above)


def weigh(test: Check, entries: Mapping[str, Entry]) -> Found:
    """What a test finds; rows with a star are averaged over all that have a partner and have learned something."""
    if STAR not in test.a:
        return _pair(test, entries.get(test.a), None if test.b is None else entries.get(test.b))
    begin, end = test.a.split(STAR, 1)
    names = [row[len(begin) : len(row) - len(end)] for row in entries if fnmatchcase(row, test.a)]
    pairs = {name: (entries[begin + name + end], entries.get(str(test.b).replace(STAR, name))) for name in names}
    there = {name: (a, b) for name, (a, b) in pairs.items() if b is not None and a.answers and b.answers}
    found = {name: _pair(test, a, b) for name, (a, b) in there.items()}
    used = {name: one for name, one in found.items() if one.why != NOTHING}
    if not used:
        return Found(why=NOTHING if found else "no data")
    left_out = [name for name in found if name not in used]
    note = f"mean of {_by_name(used)}" + (f"; nothing learned: {', '.join(left_out)}" if left_out else "")
    return replace(mean_of(list(used.values())), note=note + _printed(test, list(used)))


def _by_name(found: Mapping[str, Found]) -> str:
    """Every difference that a mean is made of: one alone may make it."""
    return ", ".join(name if one.difference is None else f"{name} {one.difference:+.1f}" for name, one in found.items())


def _printed(test: Check, names: Sequence[str]) -> str:
    """The paper's own mean difference over the same rows: of others than all it may be another one."""
    known, found = published_of(test.item), []
    for name in names:
        a, b = (known.get(str(side).replace(STAR, name), {}) for side in (test.a, test.b))
        both = [metric for metric in a if metric in b and metric not in EXACT]
        found += [a[metric] - b[metric] for metric in both[:1]]
    return f"; the paper's difference there {fmean(found):+.1f}" if len(found) == len(names) else ""


def _pair(test: Check, a: Entry | None, b: Entry | None) -> Found:
    sides = [a] if test.number is not None else [a, b]
    for one, name in zip(sides, (test.a, test.b), strict=False):
        if one is None or one.missing:
            return Found(why=f"{name}: {one.missing if one else 'not in the table'}")
    assert a is not None
    if test.of == "value":
        dull = test.metric in OF_ANSWERS and a.task is not None and not has_learned(a.answers, a.task)
        return Found(why=NOTHING) if dull else _values(test, a, b)
    if b is None or not a.answers or not b.answers or a.task is None:
        return Found(why="there are no answers to compare")
    whole = _asked(replace(test, among="all"), a.task)
    if not test.silence and not any(has_learned(one.answers, whole) for one in (a, b)):
        return Found(why=NOTHING)
    return {"score": _scores, "efficiency": _efficiencies, "length": _lengths}[test.of](test, a, b)


def _values(test: Check, a: Entry, b: Entry | None) -> Found:
    """Numbers of the table: against a constant their own interval, against another the widest difference.

    A number without an interval that was counted is sure; one that was measured is not.
    """
    without = [one.row for one in (a, b) if one is not None and test.metric not in one.values]
    if without:
        return Found(why=f"{' and '.join(without)} without a value (see the note there)")
    low, high = _ends(a, test.metric)
    other = test.number if b is None else b.values[test.metric]
    assert other is not None
    below, above = (other, other) if b is None else _ends(b, test.metric)
    if any(math.isnan(end) for end in (low, high, below, above)):
        return Found(a.values[test.metric] - other, why="one value, and no spread to judge it by")
    return Found(a.values[test.metric] - other, low - above, high - below)


def _ends(one: Entry, metric: str) -> tuple[float, float]:
    if metric in EXACT:
        return one.values[metric], one.values[metric]
    return one.ends.get(metric, (math.nan, math.nan))


def metric_of(test: Check, task: Task | None) -> str:
    """What is compared: what the test names, else the task's own metric."""
    return test.metric or ("" if task is None else task.metric)


def _asked(test: Check, task: Task) -> Task:
    """The task with the metric of the test, and the questions that it is about."""
    dev = tuple(e for e in task["dev"] if test.among == "all" or bool(e.answers) == (test.among == "answerable"))
    return replace(task, metric=metric_of(test, task), splits={**task.splits, "dev": dev})


def _sides(test: Check, a: Entry, b: Entry) -> tuple[Comparison, SeedGroup, SeedGroup] | None:
    assert a.task is not None
    task = _asked(test, a.task)
    if not task["dev"]:
        return None
    comparison = Comparison(task, "dev")
    made = [side_of(comparison, one.answers) for one in (a, b)]
    return None if made[0] is None or made[1] is None else (comparison, made[0], made[1])


def _scores(test: Check, a: Entry, b: Entry) -> Found:
    """Paired on the same examples, whole contexts drawn together."""
    sides = _sides(test, a, b)
    if sides is None:
        return Found(why="nothing to draw from")
    comparison, one, other = sides
    drawn = one.drawn.mean(0) - other.drawn.mean(0)
    return _interval(point(comparison, one) - point(comparison, other), drawn, comparison)


def _interval(difference: float, drawn: NDArray[np.float64], comparison: Comparison) -> Found:
    ends = comparison.interval(drawn)
    return Found(difference, why="one context only") if ends is None else Found(difference, *ends)


def _efficiencies(test: Check, a: Entry, b: Entry) -> Found:
    """Of (score - floor) / log10(trained), the floor being what one answer to everything is worth on the same draw."""
    sides = _sides(test, a, b)
    if sides is None:
        return Found(why="nothing to draw from")
    comparison, one, other = sides
    floor, lucky = floor_of(comparison)
    trained = [entry.values["trained"] for entry in (a, b)]
    both = list(zip((one, other), trained, strict=True))
    points = [points_by_tenfold(point(comparison, side), many, floor) for side, many in both]
    drawn = [points_by_tenfold(side.drawn.mean(0), many, lucky) for side, many in both]
    return _interval(points[0] - points[1], drawn[0] - drawn[1], comparison)


def _lengths(test: Check, a: Entry, b: Entry) -> Found:
    """Mean context of what only a gets right minus that of what only b gets right, in words."""
    task = a.task
    assert task is not None
    comparison = Comparison(task, "dev")
    right = [hear(task, "dev", one.row, "head", one.answers[0]).right for one in (a, b)]
    sizes = np.array(context_words(task["dev"]), np.float64)
    only = right[0] & ~right[1], right[1] & ~right[0]

    def gap(rows: NDArray[np.int64]) -> float:
        means = [sizes[rows][mask[rows]] for mask in only]
        return float(means[0].mean() - means[1].mean()) if all(len(one) for one in means) else math.nan

    ends = drawn_ends(comparison, gap)
    if ends is None:
        return Found(why="one of them gets nothing right alone")
    return Found(gap(np.arange(len(sizes))), *ends)
