"""Compare two pieces of work on a shared machine: run them in turns, and take the median ratio."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from bertvision.core.progress import Timer


def time_ratio(one: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """Median over rounds of one's seconds by the other's; who goes first changes, and the first round warms up."""
    ratios = []
    for turn in range(rounds + 1):
        seconds = {work: _seconds(work) for work in ((one, other) if turn % 2 else (other, one))}
        ratios.append(seconds[one] / seconds[other])
    return median(ratios[1:])


def _seconds(work: Callable[[], object]) -> float:
    timer = Timer()
    work()
    return timer.seconds
