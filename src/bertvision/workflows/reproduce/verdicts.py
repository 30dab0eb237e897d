"""From an interval to a verdict: holds, does not hold, or not decided at this scale. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided at this scale"
TAIL = 0.025
"""What lies beyond either end of an interval."""


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
