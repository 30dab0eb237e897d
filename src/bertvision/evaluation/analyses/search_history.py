"""How a search went: scores trial by trial, and how much each setting mattered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.analyses.result import Cell, Finding, Plot, bars

HISTORY = (
    "Score on inner of every trial, in the order they were begun, and the best so far. A trial that was stopped early "
    "shows its best epoch until then. Dev was not looked at."
)
IMPORTANCE = (
    "How much of the spread of the scores goes with a setting by itself: the adjusted share of the variance between "
    "groups of trials that have equal values (quarters, for numbers of a range), of the trials that have the setting. "
    "A search looks longer where it finds something, so that these are hints and no measurements."
)
QUARTERS = 4
VARIANCE = "share of the variance, %"


@dataclass(frozen=True)
class SearchTrial:
    """One trial: its settings by name, its best score on inner, and whether it was stopped early or diverged."""

    number: int
    settings: Mapping[str, Cell | bool]
    score: float | None
    state: str  # complete, pruned or failed
    spec: str = ""
    facts: Mapping[str, Cell] = field(default_factory=dict)


def search_history(trials: Sequence[SearchTrial], metric: str) -> Finding:
    """A row a trial, the best so far as a line."""
    rows: list[dict[str, Cell]] = []
    best: float | None = None
    line: list[tuple[int, float]] = []
    for one in trials:
        best = max((score for score in (best, one.score) if score is not None), default=None)
        told = ", ".join(f"{name}={_told(value)}" for name, value in one.settings.items() if name.startswith("fit."))
        row: dict[str, Cell] = {"trial": one.number, "head": one.spec, "settings": told, "state": one.state}
        rows.append({**row, "inner": one.score, "best": best})
        line += [] if best is None else [(one.number, best)]
    columns = {"trial": "trial", "head": "head", "settings": "settings", "state": "state", "inner": f"inner {metric}"}
    columns["best"] = "best so far"
    series = {
        "best so far": [
            (float(str(row["trial"])), float(str(row["best"])), "") for row in rows if row["best"] is not None
        ],
        "trial": [(float(one.number), one.score, one.spec) for one in trials if one.score is not None],
    }
    plot = Plot("lines", "trial", f"inner {metric}", series)
    return Finding("search-history", "Search: history", HISTORY, columns, tuple(rows), (plot,))


def search_importance(trials: Sequence[SearchTrial]) -> Finding:
    """Settings by how much they mattered, most first."""
    names = list(dict.fromkeys(name for one in trials for name in one.settings))
    found = [(name, *_importance(name, trials)) for name in names]
    found.sort(key=lambda one: -(one[2] or 0.0))
    rows: tuple[dict[str, Cell], ...] = tuple(
        {"setting": name, "trials": count, "share": part, "best": best} for name, count, part, best in found
    )
    columns = {"setting": "setting", "trials": "trials with it", "share": VARIANCE, "best": "best value"}
    plot = bars([one[0] for one in found], {VARIANCE: [one[2] for one in found]}, VARIANCE)
    return Finding("search-importance", "Search: what mattered", IMPORTANCE, columns, rows, (plot,))


def with_study_name(found: Finding, tag: str) -> Finding:
    """A finding under the name of its study: one that another study left in the same run stays beside it."""
    return replace(found, name=f"{found.name}-{tag}", title=f"{found.title}, study {tag}")


def _importance(name: str, trials: Sequence[SearchTrial]) -> tuple[int, float | None, str | None]:
    """Trials that have a setting, the share of the variance that goes with it, and its best value."""
    having = [(one.settings[name], one.score) for one in trials if name in one.settings and one.score is not None]
    scores = np.array([score for _, score in having], np.float64)
    best = max(having, key=lambda pair: pair[1])[0] if having else None
    return (
        len(having),
        variance_explained(scores, _groups([value for value, _ in having])),
        None if best is None else _told(best),
    )


def variance_explained(scores: NDArray[np.float64], groups: NDArray[np.int64]) -> float | None:
    """Adjusted share of the variance between groups, in per cent: 1 - (within / (n - k)) / (total / (n - 1)).

    Not known where there is one group only, no spread, or no group with a second member.
    """
    kinds = np.unique(groups)
    n, k = len(scores), len(kinds)
    total = float(((scores - scores.mean()) ** 2).sum()) if n else 0.0
    if k < 2 or n <= k or total == 0.0:
        return None
    within = sum(float(((scores[groups == kind] - scores[groups == kind].mean()) ** 2).sum()) for kind in kinds)
    return max(0.0, 100 * (1 - (within / (n - k)) / (total / (n - 1))))


def _groups(values: Sequence[Cell | bool]) -> NDArray[np.int64]:
    """Equal values together; numbers with many values in quarters."""
    distinct = list(dict.fromkeys(values))
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(distinct) <= 2 * QUARTERS or len(numbers) < len(values):
        return np.array([distinct.index(value) for value in values], np.int64)
    edges = np.quantile(numbers, np.linspace(0, 1, QUARTERS + 1)[1:-1])
    return np.searchsorted(edges, np.array(numbers), side="left").astype(np.int64)


def _told(value: Cell | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.3g}" if isinstance(value, float) else str(value)
