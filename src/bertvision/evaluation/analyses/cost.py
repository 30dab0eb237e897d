"""What a point of the score costs: parameters, training time and inference time, and who is not beaten at his price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.result import Cell, Finding, Plot

ABOUT = (
    "Trained parameters: of a head its own, whatever lies below it; of the encoder those that its tuning trained, its "
    "head's included, which is not all of it with adapters, LoRA, biases or upper layers only; of an ensemble its "
    "members'. The leaderboard's column 'parameters' is the size of the predictor instead, of the encoder all that it "
    "has. Training seconds hold everything that the predictor needs: tuning and, for heads, the encoder's pass over "
    "train and inner (their share of the extraction, by tokens) and the fits. Inference seconds are for the whole "
    "split: the encoder's pass (the split's share of the extraction) and the head's own, measured. What nobody "
    "measured is left empty, such as the encoder's passes in a run without a store. A predictor on the front "
    "has none that is at least as good and at least as cheap. Efficiency is (score - floor) / log10(parameters): "
    "points above what needs no look at the text, for each tenfold of trained parameters."
)
PAPER_FLOOR = 50.0
"""Hulburd's, which is what never answering is worth on SQuAD 2.0."""
COLUMNS = {
    "name": "predictor",
    "score": "score",
    "parameters": "trained parameters",
    "train_seconds": "training, s",
    "inference_seconds": "inference, s",
    "efficiency": "efficiency",
    "front": "on the front of",
}
AXES = {
    "parameters": "trained parameters",
    "train_seconds": "training seconds",
    "inference_seconds": "inference seconds",
}
FRONT, BEHIND = "on the front", "beaten"
Score = TypeVar("Score", float, NDArray[np.float64])


@dataclass(frozen=True)
class PredictorCost:
    """One predictor with what it costs; what was not measured is None."""

    name: str
    score: float
    parameters: float | None  # that were trained
    train_seconds: float | None = None
    inference_seconds: float | None = None


@dataclass(frozen=True)
class Floor:
    """The score of one answer to everything, and which answer that is."""

    name: str
    score: float


def cost_against_score(prices: Sequence[PredictorCost], metric: str, floor: Floor) -> Finding:
    """A row a predictor and a picture a price, the Pareto front marked."""
    # Whose price is the only one known beats nobody.
    known = [axis for axis in AXES if sum(getattr(one, axis) is not None for one in prices) > 1]
    fronts = {axis: pareto([(getattr(one, axis), one.score) for one in prices]) for axis in known}
    names = [[AXES[axis] for axis in known if place in fronts[axis]] for place in range(len(prices))]
    rows = tuple(_row(one, on, floor.score) for one, on in zip(prices, names, strict=True))
    plots = tuple(_plot(prices, axis, fronts[axis], metric) for axis in known)
    columns = {**COLUMNS, "score": metric}
    about = f"{ABOUT} The floor is {metric} {floor.score:.2f} ({floor.name})."
    return Finding("cost", "Cost against score", about, columns, rows, plots)


def pareto(points: Sequence[tuple[float | None, float]]) -> set[int]:
    """Places of the points (price, score) that no other beats: none cheaper or equal with a score as good or better.

    Of equals all are on the front.
    """
    priced = [(place, price, score) for place, (price, score) in enumerate(points) if price is not None]
    known = [one for one in priced if math.isfinite(one[1]) and math.isfinite(one[2])]
    return {place for place, price, score in known if not any(_beats(other[1:], (price, score)) for other in known)}


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other


def efficiency(score: float, parameters: float | None, floor: float) -> float | None:
    """Points by tenfold; not known for fewer than two parameters, nor where their number is not."""
    return None if parameters is None or parameters <= 1 else points_per_decade(score, parameters, floor)


def points_per_decade(score: Score, parameters: float, floor: Score) -> Score:
    """(score - floor) / log10(trained parameters), of one score or of many draws of it."""
    return (score - floor) / math.log10(parameters)


def _row(one: PredictorCost, fronts: Sequence[str], floor: float) -> dict[str, Cell]:
    return {
        "name": one.name,
        "score": one.score,
        "parameters": one.parameters,
        "train_seconds": one.train_seconds,
        "inference_seconds": one.inference_seconds,
        "efficiency": efficiency(one.score, one.parameters, floor),
        "front": ", ".join(fronts),
    }


def _plot(prices: Sequence[PredictorCost], axis: str, front: set[int], metric: str) -> Plot:
    series: dict[str, list[tuple[float, float, str]]] = {FRONT: [], BEHIND: []}
    for place, one in enumerate(prices):
        price = getattr(one, axis)
        if price is not None:
            series[FRONT if place in front else BEHIND].append((float(price), one.score, one.name))
    series[FRONT].sort()
    return Plot("points", AXES[axis], metric, series, log=axis == "parameters")
