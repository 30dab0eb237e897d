"""Score by layer, by number of layers, and by share of the training data."""

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
"""Series of runs whose encoders were tuned on less data too; all other series limit only the head's data."""
SPREAD = " Vertical bars span the lowest to the highest seed"
STARTS = "; seeds differ in the initial weights of the head, on the same encoder."
SHARES = (
    ". In 'head limited' a seed sets both the sample and the initial weights (only the weights at 100 %), in "
    f"'{ENCODER_LIMITED}' only the initial weights of the head. Other samples or fine-tuning runs may fall outside."
)


@dataclass(frozen=True)
class Step:
    """One point of a series: its x value, and the scores of all seeds on dev and, where comparable, on inner."""

    series: str
    at: float
    dev: tuple[float, ...]
    inner: tuple[float, ...] | None = None
    examples: int | None = None


def by_layer(steps: Sequence[Step], metric: str, rules: Mapping[str, float]) -> Finding:
    """The finding for linear heads on one layer each."""
    about = (
        "A linear head on one hidden state at a time; state 0 is the embedding output. This shows what each layer "
        "encodes by itself. Choose a layer by its inner score, never by dev."
    )
    return _curve_finding("layers", "Score by layer", about, "state", steps, metric, rules)


def by_depth(steps: Sequence[Step], head: str, metric: str, rules: Mapping[str, float]) -> Finding:
    """The finding for a head on the states 0..k."""
    about = (
        f"The head {head} on the states 0..k for every k: how many of the encoder's layers are needed. Choose where to "
        "truncate the encoder by the inner score, never by dev."
    )
    return _curve_finding("depth", "Score by depth", about, "layers used", steps, metric, rules)


def learning_curve(steps: Sequence[Step], metric: str, rules: Mapping[str, float]) -> Finding:
    """The finding for heads (or encoders and heads) trained on shares of the training data."""
    about = (
        "Score by the share of training examples that heads were fitted on. In 'head limited' the encoder was "
        "fine-tuned on all data, so the curve does not show how the method does on small datasets. Each seed draws "
        "its own sample and initial weights; within a seed, smaller samples are subsets of larger ones. Epochs and "
        f"no-answer thresholds are still chosen on the whole inner split. In '{ENCODER_LIMITED}' both encoder and "
        "heads were trained on the same share, with one sample and one fine-tuning run per point. Each point is the "
        "best head on that run's own inner split, which shrinks with the share; inner scores are therefore not "
        "comparable and not shown."
    )
    x = "share of the training data, %"
    return _curve_finding("learning-curve", "Learning curve", about, x, steps, metric, rules, SHARES)


def _curve_finding(
    name: str,
    title: str,
    about: str,
    x: str,
    steps: Sequence[Step],
    metric: str,
    rules: Mapping[str, float],
    seeds: str = STARTS,
) -> Finding:
    """The finding of a curve; ``seeds`` explains what a seed varies, shown where there are several."""
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float, str]]] = {}
    spread: dict[str, list[Span]] = {}
    for step in steps:
        row: dict[str, Cell] = {"series": step.series, "at": step.at, "examples": step.examples}
        row |= {"dev": fmean(step.dev), "dev_lowest": min(step.dev), "dev_highest": max(step.dev)}
        rows.append({**row, "inner": None if step.inner is None else fmean(step.inner), "seeds": len(step.dev)})
        series.setdefault(step.series, []).append((step.at, fmean(step.dev), f"{len(step.dev)} seeds"))
        if len(step.dev) > 1:
            spread.setdefault(step.series, []).append((step.at, min(step.dev), max(step.dev)))
    hidden = {"examples"} if all(step.examples is None for step in steps) else set()
    hidden |= set() if len(series) > 1 else {"series"}
    columns = {key: title for key, title in {**COLUMNS, "at": x}.items() if key not in hidden}
    plot = Plot("lines", x, f"dev {metric}", series, rules=rules, spread=spread)
    return Finding(name, title, about + (f"{SPREAD}{seeds}" if spread else ""), columns, tuple(rows), (plot,))
