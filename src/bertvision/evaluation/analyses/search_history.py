"""History of a hyperparameter search: the score of each trial, and the importance of each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.result import Cell, Finding, Plot, Point, bars

HISTORY = (
    "Inner score of every trial in the order they were started, and the best so far. For a pruned trial, the score is "
    "that of its best epoch before it was stopped. The search does not use dev."
)
IMPORTANCE = (
    "How much of the variance in scores each setting explains by itself: the adjusted share of variance between groups "
    "of trials with equal values (quartiles for numeric ranges), among the trials that have the setting. A search "
    "samples promising regions more often, so these figures are indications rather than measurements."
)
QUARTERS = 4
VARIANCE = "variance explained, %"


@dataclass(frozen=True)
class SearchTrial:
    """One trial: its settings by name, best score on inner and final state."""

    number: int
    settings: Mapping[str, Cell | bool]
    score: float | None
    state: str  # complete, pruned or failed
    spec: str = ""
    facts: Mapping[str, Cell] = field(default_factory=dict)


def search_history(trials: Sequence[SearchTrial], metric: str) -> Finding:
    """One row per trial, and the best score so far as a line."""
    rows: list[dict[str, Cell]] = []
    best: float | None = None
    best_so_far: list[Point] = []
    for trial in trials:
        best = max((score for score in (best, trial.score) if score is not None), default=None)
        fit = {name: value for name, value in trial.settings.items() if name.startswith("fit.")}
        settings = ", ".join(f"{name}={_format_value(value)}" for name, value in fit.items())
        row: dict[str, Cell] = {"trial": trial.number, "head": trial.spec, "settings": settings, "state": trial.state}
        rows.append({**row, "inner": trial.score, "best": best})
        if best is not None:
            best_so_far.append((float(trial.number), float(best), ""))
    columns = {"trial": "trial", "head": "head", "settings": "settings", "state": "state", "inner": f"inner {metric}"}
    columns["best"] = "best so far"
    scored = [(float(trial.number), trial.score, trial.spec) for trial in trials if trial.score is not None]
    series = {"best so far": best_so_far, "trial": scored}
    plot = Plot("lines", "trial", f"inner {metric}", series)
    return Finding("search-history", "Search history", HISTORY, columns, tuple(rows), (plot,))


def search_importance(trials: Sequence[SearchTrial]) -> Finding:
    """Settings by explained variance, most important first."""
    rows: list[dict[str, Cell]] = []
    shares: dict[str, float | None] = {}
    for name in dict.fromkeys(name for trial in trials for name in trial.settings):
        pairs = [(t.settings[name], t.score) for t in trials if name in t.settings and t.score is not None]
        scores = np.array([score for _, score in pairs], np.float64)
        shares[name] = variance_explained(scores, _groups([value for value, _ in pairs]))
        best = _format_value(max(pairs, key=lambda pair: pair[1])[0]) if pairs else None
        rows.append({"setting": name, "trials": len(pairs), "share": shares[name], "best": best})
    rows.sort(key=lambda row: -(shares[str(row["setting"])] or 0.0))
    columns = {"setting": "setting", "trials": "trials with it", "share": VARIANCE, "best": "best value"}
    names = [str(row["setting"]) for row in rows]
    plot = bars(names, {VARIANCE: [shares[name] for name in names]}, VARIANCE)
    return Finding("search-importance", "Hyperparameter importance", IMPORTANCE, columns, tuple(rows), (plot,))


def with_study_name(finding: Finding, tag: str) -> Finding:
    """The finding under the name of its study, so that it does not replace that of another study of the run."""
    return replace(finding, name=f"{finding.name}-{tag}", title=f"{finding.title}, study {tag}")


def variance_explained(scores: NDArray[np.float64], groups: NDArray[np.int64]) -> float | None:
    """Adjusted share of the variance between groups, in percent: 1 - (within / (n - k)) / (total / (n - 1)).

    None for a single group, zero variance, or groups that all have one member.
    """
    labels = np.unique(groups)
    n, k = len(scores), len(labels)
    total = float(((scores - scores.mean()) ** 2).sum()) if n else 0.0
    if k < 2 or n <= k or total == 0.0:
        return None
    within = sum(float(((scores[groups == label] - scores[groups == label].mean()) ** 2).sum()) for label in labels)
    return max(0.0, 100 * (1 - (within / (n - k)) / (total / (n - 1))))


def _groups(values: Sequence[Cell | bool]) -> NDArray[np.int64]:
    """A group index per trial: by equal value, or by quartile for numbers with many distinct values."""
    distinct = list(dict.fromkeys(values))
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(distinct) <= 2 * QUARTERS or len(numbers) < len(values):
        return np.array([distinct.index(value) for value in values], np.int64)
    edges = np.quantile(numbers, np.linspace(0, 1, QUARTERS + 1)[1:-1])
    return np.searchsorted(edges, np.array(numbers), side="left").astype(np.int64)


def _format_value(value: Cell | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.3g}" if isinstance(value, float) else str(value)
