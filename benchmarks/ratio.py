"""Compare the duration of two functions on a shared machine: run them in turns, and take the median ratio."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from bertvision.core.progress import Timer


def time_ratio(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """Median over rounds of the first's seconds divided by the second's.

    The order alternates, and the first round, which warms up, is not counted.
    """
    ratios = []
    for round_number in range(rounds + 1):
        seconds = {work: _seconds(work) for work in ((first, second) if round_number % 2 else (second, first))}
        ratios.append(seconds[first] / seconds[second])
    return median(ratios[1:])


def _seconds(work: Callable[[], object]) -> float:
    timer = Timer()
    work()
    return timer.seconds
