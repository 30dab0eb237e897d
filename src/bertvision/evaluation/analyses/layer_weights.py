"""Layer weights of the heads that learn them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertvision.evaluation.analyses.result import Cell, Finding, Plot

POOLED = "pooled"
"""Name of the pooler's output, which has no state index because it is computed from the last state."""
ABOUT = (
    "Learned weights over the hidden states, which sum to 1: mean, lowest and highest over seeds. State 0 is the "
    "embedding output. 'Centre' is the weighted mean of the state indices, scaled from 0 (all weight on the first "
    "state that the head reads) to 1 (all weight on the last)."
)
WITHOUT_POOLED = (
    " The pooler's output, which some heads read as well, has no state index: it is in the table but not in the plot, "
    "and does not count towards the centre."
)
COLUMNS = {
    "head": "head",
    "state": "state",
    "weight": "weight",
    "lowest": "lowest",
    "highest": "highest",
    "equal": "equal weights",
    "centre": "centre of the head",
}


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one head: the names of its states, and one tuple of weights per seed."""

    head: str
    states: tuple[str, ...]
    seeds: tuple[tuple[float, ...], ...]


def layer_weights(heads: Sequence[LayerWeights]) -> Finding:
    """One row per head and state, and one line per head over the state indices."""
    rows = tuple(row for head in heads for row in _rows(head))
    series = {}
    for head in heads:
        if points := [(index, weight, f"state {index:g}") for index, weight in _indexed(head)]:
            series[head.head] = points
    about = ABOUT + (WITHOUT_POOLED if any(POOLED in head.states for head in heads) else "")
    plots = (Plot("lines", "state", "weight", series),) if series else ()
    return Finding("layer-weights", "Learned layer weights", about, COLUMNS, rows, plots)


def _rows(head: LayerWeights) -> list[dict[str, Cell]]:
    columns = list(zip(*head.seeds, strict=True))  # per state: one weight per seed
    centre = weighted_centre(indexed) if (indexed := _indexed(head)) else None
    return [
        {
            "head": head.head,
            "state": state,
            "weight": weight,
            "lowest": min(column),
            "highest": max(column),
            "equal": 1 / len(columns),
            "centre": centre,
        }
        for state, weight, column in zip(head.states, _means(head), columns, strict=True)
    ]


def _means(head: LayerWeights) -> list[float]:
    return [sum(column) / len(column) for column in zip(*head.seeds, strict=True)]


def _indexed(head: LayerWeights) -> list[tuple[float, float]]:
    """(index, mean weight) of the states that have an index."""
    return [(float(state), mean) for state, mean in zip(head.states, _means(head), strict=True) if state != POOLED]


def weighted_centre(weights: Sequence[tuple[float, float]]) -> float:
    """sum_i w_i (i - first) / ((last - first) sum_i w_i) of pairs (i, w_i)."""
    indices, total = [index for index, _ in weights], sum(weight for _, weight in weights) or 1.0
    first, last = min(indices), max(indices)
    return sum(weight * (index - first) for index, weight in weights) / (max(last - first, 1.0) * total)
