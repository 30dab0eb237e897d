"""Score against cost: trained parameters, training time and inference time, with the Pareto front of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.result import Cell, Finding, Plot, Point

ABOUT = (
    "Trained parameters: for a head its own; for the encoder those that fine-tuning trained, including its native head "
    "(with adapters, LoRA, BitFit or partial tuning this is only part of the encoder); for an ensemble the sum of its "
    "members. The 'parameters' column of the leaderboard shows the total size of the predictor instead. Training "
    "seconds include everything the predictor needs: fine-tuning and, for heads, the encoder's pass over train and "
    "inner (their share of the extraction by tokens) and fitting. Inference seconds are for the whole split: the "
    "encoder's pass (the split's share of the extraction) plus the measured time of the head. Values that were not "
    "measured are empty, for example the encoder's passes in a run without a store. A predictor is on the Pareto front "
    "if no other is at least as good and at least as cheap. Efficiency is (score - floor) / log10(trained parameters), "
    "where the floor is the score of always giving the same answer."
)
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
FRONT, BEHIND = "on the front", "dominated"
Score = TypeVar("Score", float, NDArray[np.float64])


@dataclass(frozen=True)
class PredictorCost:
    """The score and cost of one predictor; None for what was not measured."""

    name: str
    score: float
    parameters: float | None  # trained ones only
    train_seconds: float | None = None
    inference_seconds: float | None = None


@dataclass(frozen=True)
class Floor:
    """The best score of a constant answer, and that answer."""

    name: str
    score: float


def cost_against_score(costs: Sequence[PredictorCost], metric: str, floor: Floor) -> Finding:
    """One row per predictor and one plot per kind of cost, with the Pareto front marked."""
    # A cost known for a single predictor allows no comparison.
    axes = [axis for axis in AXES if sum(getattr(cost, axis) is not None for cost in costs) > 1]
    fronts = {axis: pareto([(getattr(cost, axis), cost.score) for cost in costs]) for axis in axes}
    rows = []
    for index, cost in enumerate(costs):
        row: dict[str, Cell] = {**asdict(cost), "efficiency": efficiency(cost.score, cost.parameters, floor.score)}
        rows.append({**row, "front": ", ".join(AXES[axis] for axis in axes if index in fronts[axis])})
    plots = tuple(_plot(costs, axis, fronts[axis], metric) for axis in axes)
    columns = {**COLUMNS, "score": metric}
    about = f"{ABOUT} The floor is {metric} {floor.score:.2f} ({floor.name})."
    return Finding("cost", "Cost against score", about, columns, tuple(rows), plots)


def pareto(points: Sequence[tuple[float | None, float]]) -> set[int]:
    """Indices of the points (cost, score) that no other point dominates; equal points are all on the front."""
    priced = {}
    for index, (cost, score) in enumerate(points):
        if cost is not None and math.isfinite(cost) and math.isfinite(score):
            priced[index] = cost, score
    front = set()
    for index, point in priced.items():
        rivals = (other for other in priced.values() if other != point)
        if not any(cost <= point[0] and score >= point[1] for cost, score in rivals):
            front.add(index)
    return front


def efficiency(score: float, parameters: float | None, floor: float) -> float | None:
    """Points per decade of parameters; None for fewer than two parameters or an unknown count."""
    return None if parameters is None or parameters <= 1 else points_per_decade(score, parameters, floor)


def points_per_decade(score: Score, parameters: float, floor: Score) -> Score:
    """(score - floor) / log10(trained parameters), for one score or an array of bootstrap draws."""
    return (score - floor) / math.log10(parameters)


def _plot(costs: Sequence[PredictorCost], axis: str, front: set[int], metric: str) -> Plot:
    series: dict[str, list[Point]] = {FRONT: [], BEHIND: []}
    for index, cost in enumerate(costs):
        x = getattr(cost, axis)
        if x is not None:
            series[FRONT if index in front else BEHIND].append((float(x), cost.score, cost.name))
    series[FRONT].sort()
    return Plot("points", AXES[axis], metric, series, log=axis == "parameters")
