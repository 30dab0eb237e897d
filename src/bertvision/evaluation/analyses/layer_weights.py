"""How much each layer counts in the heads that learn such weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertvision.evaluation.analyses.result import Cell, Finding, Plot

POOLED = "pooled"
"""What stands in the place of a number for the pooler's output, which is made from the last state."""
ABOUT = (
    "Weights over the states, which add up to 1: mean, lowest and highest over seeds. State 0 is the embedding output. "
    "'Centre' is the weighted mean of the states' numbers, from 0 (only the first that the head reads) to 1 (only the "
    "last)."
)
WITHOUT_POOLED = (
    " The pooler's output, which some heads read beside the states, has no number: it stands in the table, but not in "
    "the picture, nor does it count for the centre."
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
    """One head's weights: what each belongs to, and a tuple of weights a seed."""

    head: str
    states: tuple[str, ...]
    seeds: tuple[tuple[float, ...], ...]


def layer_weights(heads: Sequence[LayerWeights]) -> Finding:
    """A row a head and state, a line a head, over the states' numbers."""
    rows = tuple(row for head in heads for row in _rows(head))
    lines = {head.head: [(at, weight, f"state {at:g}") for at, weight in _numbered(head)] for head in heads}
    series = {name: line for name, line in lines.items() if line}
    about = ABOUT + (WITHOUT_POOLED if any(POOLED in head.states for head in heads) else "")
    pictures = (Plot("lines", "state", "weight", series),) if series else ()
    return Finding("layer-weights", "Learned layer weights", about, COLUMNS, rows, pictures)


def _rows(head: LayerWeights) -> list[dict[str, Cell]]:
    columns = list(zip(*head.seeds, strict=True))  # a tuple of seeds a state
    centre = _centre(_numbered(head))
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


def _numbered(head: LayerWeights) -> list[tuple[float, float]]:
    """(number, mean weight) of the states that have a number."""
    return [(float(state), mean) for state, mean in zip(head.states, _means(head), strict=True) if state != POOLED]


def _centre(weights: Sequence[tuple[float, float]]) -> float | None:
    """sum w (n - first) / ((last - first) sum w), n being the states' numbers; a head may read none."""
    if not weights:
        return None
    numbers, total = [at for at, _ in weights], sum(weight for _, weight in weights) or 1.0
    first, last = min(numbers), max(numbers)
    return sum(weight * (at - first) for at, weight in weights) / (max(last - first, 1.0) * total)
