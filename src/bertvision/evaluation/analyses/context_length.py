"""Long contexts and short ones: the length of what a predictor gets right, and of what it alone gets right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.answers import Said
from bertvision.evaluation.analyses.result import Cell, Finding, Plot, mean, share

ABOUT_CONTEXT = (
    "Mean length, in {unit}, of the contexts of what each predictor gets right and wrong; then, for two at a time, of "
    "what only the first gets right. The picture is the share that is right in each fifth of the examples by length."
)
CONTEXT_COLUMNS = {
    "name": "predictor",
    "against": "and not",
    "right": "right",
    "right_length": "mean length of right",
    "wrong": "wrong",
    "wrong_length": "mean length of wrong",
}
FIFTHS = 5


def context_length(lengths: Sequence[int], said: Sequence[Said], unit: str = "words") -> Finding:
    """``lengths``: of every example's context, in order."""
    sizes = np.asarray(lengths, np.float64)
    rows = [_context_row(one.name, None, sizes, one.right, ~one.right) for one in said]
    rows += [
        _context_row(a.name, b.name, sizes, a.right & ~b.right, np.zeros(len(sizes), bool))
        for a, b in permutations(said, 2)
    ]
    series = {one.name: _by_fifth(sizes, one.right) for one in said}
    picture = Plot("lines", f"mean {unit} of the context, by fifths", "right, %", series)
    about = ABOUT_CONTEXT.format(unit=unit)
    return Finding("context-length", "Context length", about, CONTEXT_COLUMNS, tuple(rows), (picture,))


def _context_row(
    name: str, against: str | None, sizes: NDArray[np.float64], right: NDArray[np.bool_], wrong: NDArray[np.bool_]
) -> dict[str, Cell]:
    alone = against is not None
    return {
        "name": name,
        "against": against,
        "right": int(right.sum()),
        "right_length": mean(sizes[right].tolist()),
        "wrong": None if alone else int(wrong.sum()),
        "wrong_length": None if alone else mean(sizes[wrong].tolist()),
    }


def _by_fifth(sizes: NDArray[np.float64], right: NDArray[np.bool_]) -> list[tuple[float, float, str]]:
    """Equal contexts stay in one fifth, so that a point never stands for a part of one context."""
    edges = np.quantile(sizes, np.linspace(0, 1, FIFTHS + 1)[1:-1]) if len(sizes) else np.zeros(0)
    fifth = np.searchsorted(edges, sizes, side="left")
    points = []
    for number in range(FIFTHS):
        here = fifth == number
        told = share(int(right[here].sum()), int(here.sum()))
        if told is not None:
            points.append((float(sizes[here].mean()), told, f"{int(here.sum())} examples"))
    return points
