"""How much each layer counts in the heads that learn such weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertvision.analyse.finding import Cell, Finding, Plot

ABOUT = (
    "Weights over the states, which add up to 1: mean, lowest and highest over seeds. State 0 is the embedding output. "
    "'Centre' is the weighted mean of the states' places, from 0 (only the first) to 1 (only the last)."
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
    """A row a head and state, a line a head."""
    rows = tuple(row for head in heads for row in _rows(head))
    series = {
        head.head: [
            (float(place), sum(column) / len(column), f"state {head.states[place]}")
            for place, column in enumerate(zip(*head.seeds, strict=True))
        ]
        for head in heads
    }
    picture = Plot("lines", "state", "weight", series)
    return Finding("layer-weights", "Learned layer weights", ABOUT, COLUMNS, rows, (picture,))


def _rows(head: LayerWeights) -> list[dict[str, Cell]]:
    columns = list(zip(*head.seeds, strict=True))  # a tuple of seeds a state
    means = [sum(column) / len(column) for column in columns]
    last = max(len(means) - 1, 1)
    centre = sum(place * weight for place, weight in enumerate(means)) / (last * (sum(means) or 1.0))
    return [
        {
            "head": head.head,
            "state": state,
            "weight": weight,
            "lowest": min(column),
            "highest": max(column),
            "equal": 1 / len(means),
            "centre": centre,
        }
        for state, weight, column in zip(head.states, means, columns, strict=True)
    ]
