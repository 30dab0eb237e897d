"""Score against something that grows: one layer at a time, layers used, or share of the training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bertvision.evaluation.analyses.result import Cell, Finding, Plot, Span

COLUMNS = {
    "series": "series",
    "at": "",
    "examples": "examples",
    "dev": "dev",
    "dev_lowest": "lowest",
    "dev_highest": "highest",
    "inner": "inner",
    "seeds": "seeds",
}

ENCODER_LIMITED = "encoder limited too"
"""The series of runs whose encoders saw a share of the data only; all others limit the head."""
SPREAD = " Upright lines reach from the lowest to the highest seed"
STARTS = "which here is a start of the head on one and the same encoder."
SHARES = (
    "which in 'head limited' is a draw and a start (with all of the data a start only) and in "
    f"'{ENCODER_LIMITED}' a start of the head only: another tuning or another draw may lie outside."
)


@dataclass(frozen=True)
class Step:
    """One point of a series: where it is, and the score of every seed on dev and, where it compares, on inner."""

    series: str
    at: float
    dev: tuple[float, ...]
    inner: tuple[float, ...] | None = None
    examples: int | None = None


def by_layer(steps: Sequence[Step], metric: str, rules: Mapping[str, float]) -> Finding:
    """A linear head on one layer alone."""
    about = (
        "A linear head on one state at a time, 0 being the embedding output: what each layer knows by itself. "
        "A layer is chosen on inner, never on dev."
    )
    return _grown("layers", "Score by layer", about, "state", steps, metric, rules)


def by_depth(steps: Sequence[Step], head: str, metric: str, rules: Mapping[str, float]) -> Finding:
    """A head on the states 0..k."""
    about = (
        f"The head {head} on the states 0..k for every k: how many of the encoder's layers are needed. "
        "Where to cut is chosen on inner, never on dev."
    )
    return _grown("depth", "Score by depth", about, "layers used", steps, metric, rules)


def learning_curve(steps: Sequence[Step], metric: str, rules: Mapping[str, float]) -> Finding:
    """Score against the share of the training data that a head (or all) was fitted on."""
    about = (
        "Heads by the share of the training examples they were fitted on. In the series 'head limited' the encoder "
        "was tuned on everything, so that the curve says nothing about small data as such; every seed draws its own "
        "share and has its own start, and within a seed the smaller shares lie in the larger. Only the training "
        "examples are fewer there: the epoch and, where there is one, the threshold are chosen on the whole inner. In "
        f"'{ENCODER_LIMITED}' encoder and heads saw the share only, one draw and one tuning a run; of each run it is "
        "the best head on its own inner, which is smaller where the run is, so that scores on inner do not compare "
        "and are left out. Its seeds are starts of the head."
    )
    x = "share of the training data, %"
    return _grown("learning-curve", "Learning curve", about, x, steps, metric, rules, SHARES)


def _grown(
    name: str,
    title: str,
    about: str,
    x: str,
    steps: Sequence[Step],
    metric: str,
    rules: Mapping[str, float],
    seeds: str = STARTS,
) -> Finding:
    """``seeds`` says what a seed stands for, where several are shown."""
    rows = tuple(_row(step) for step in steps)
    series: dict[str, list[tuple[float, float, str]]] = {}
    spread: dict[str, list[Span]] = {}
    for step in steps:
        series.setdefault(step.series, []).append((step.at, fmean(step.dev), f"{len(step.dev)} seeds"))
        if len(step.dev) > 1:
            spread.setdefault(step.series, []).append((step.at, min(step.dev), max(step.dev)))
    several = len(series) > 1
    hidden = {"examples"} if all(step.examples is None for step in steps) else set()
    hidden |= set() if several else {"series"}
    columns = {key: title for key, title in {**COLUMNS, "at": x}.items() if key not in hidden}
    picture = Plot("lines", x, f"dev {metric}", series, rules=rules, spread=spread)
    return Finding(name, title, about + (f"{SPREAD}, {seeds}" if spread else ""), columns, rows, (picture,))


def _row(step: Step) -> dict[str, Cell]:
    return {
        "series": step.series,
        "at": step.at,
        "examples": step.examples,
        "dev": fmean(step.dev),
        "dev_lowest": min(step.dev),
        "dev_highest": max(step.dev),
        "inner": None if step.inner is None else fmean(step.inner),
        "seeds": len(step.dev),
    }
