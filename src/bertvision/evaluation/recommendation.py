"""Which row of a leaderboard to use, chosen by one rule on the validation split; dev is never looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import FOLDS
from bertvision.core.row_title import row_title
from bertvision.evaluation.comparison import cluster_members, metric_score
from bertvision.evaluation.metrics.bootstrap import resample_scores
from bertvision.evaluation.scoring import ScoredPredictions
from bertvision.tasks.task import Task

EVERY_HEAD = "weighted(every head)"
"""The ensemble of all heads of a run whose encoder has not seen the labels."""

NEAR = 0.5
"""Rows within this many standard errors of the best are as good; the smallest of them is recommended."""

CLEARLY = 2.0
"""The ensemble of all heads is recommended unless it is this many standard errors behind the best row."""


@dataclass(frozen=True)
class Candidate:
    """All seeds of a predictor, best on the validation split first."""

    members: tuple[ScoredPredictions, ...]
    score: float  # mean over seeds on the validation split
    behind: float  # points behind the best candidate
    error: float  # standard error of that difference
    own_error: float  # standard error of the score itself

    @property
    def name(self) -> str:
        return self.members[0].predictions.name

    @property
    def parameters(self) -> int:
        return self.members[0].predictions.parameters


@dataclass(frozen=True)
class Recommendation:
    """The recommended row, and what it rests on."""

    title: str  # name of the row, with its seed
    name: str
    facts: Mapping[str, Any]  # validation split, rows, score, standard error, tied rows


def recommend(ranked: Sequence[ScoredPredictions], task: Task, prefer: str = "best") -> Recommendation | None:
    """Choose a row; None if there is no validation split.

    Rows that are no more than a standard error behind the best on the validation split are tied. ``small`` takes the
    tied row with the fewest parameters, ``fast`` the one that needs the fewest encoder layers. ``best`` takes the
    ensemble of all heads unless it is two standard errors behind, because averages are mostly better than the row that
    happens to be best; without one, the smallest row within half a standard error.
    """
    candidates = _candidates(ranked, task)
    if not candidates:
        return None
    tied = [candidate for candidate in candidates if candidate.behind <= candidate.error]
    best = max(candidates, key=lambda candidate: candidate.score)
    tied = tied or [best]
    if prefer == "small":
        chosen = min(tied, key=lambda candidate: (candidate.parameters, candidate.behind))
    elif prefer == "fast":
        chosen = min(tied, key=lambda candidate: (_cost(candidate), candidate.parameters, candidate.behind))
    else:
        ensembles = [
            candidate
            for candidate in candidates
            if candidate.name == EVERY_HEAD and candidate.behind <= CLEARLY * candidate.error
        ]
        near = [candidate for candidate in tied if candidate.behind <= NEAR * candidate.error]
        chosen = (ensembles or sorted(near, key=lambda candidate: candidate.parameters) or [best])[0]
    first = chosen.members[0].predictions
    validation = first.inner
    assert validation is not None, "candidates have predictions on the validation split"
    facts = {
        "split": validation.split,
        "rows": len(task[validation.split]),
        "score": chosen.score,
        "error": chosen.own_error,
        "prefer": prefer,
        "tied": [candidate.name for candidate in tied if candidate is not chosen],
    }
    return Recommendation(row_title(first), chosen.name, facts)


def _candidates(ranked: Sequence[ScoredPredictions], task: Task) -> list[Candidate]:
    """Every predictor with its distance from the best one, and the standard error of that by bootstrap."""
    by_name: dict[str, list[ScoredPredictions]] = {}
    split = _validation_split(ranked)
    for member in ranked:
        validation = member.predictions.inner
        comparable = validation is not None and validation.split == split
        if comparable and member.inner is not None and member.inner.example_scores is not None:
            by_name.setdefault(member.predictions.name, []).append(member)
    if not by_name:
        return []
    points = {name: _mean_score(members, task) for name, members in by_name.items()}
    best = max(points, key=lambda name: points[name])
    drawn = {name: _resampled(members, task) for name, members in by_name.items()}
    candidates = []
    for name, members in by_name.items():
        errors = float(np.std(drawn[best] - drawn[name])), float(np.std(drawn[name]))
        candidates.append(Candidate(tuple(members), points[name], points[best] - points[name], *errors))
    return candidates


def _validation_split(ranked: Sequence[ScoredPredictions]) -> str:
    """The split that most rows were validated on; heads of other settings are not compared with them."""
    splits = Counter(member.predictions.inner.split for member in ranked if member.predictions.inner is not None)
    return splits.most_common(1)[0][0] if splits else FOLDS


def _mean_score(members: Sequence[ScoredPredictions], task: Task) -> float:
    return float(np.mean([member.selection_score(task.metric) for member in members]))


def _resampled(members: Sequence[ScoredPredictions], task: Task) -> NDArray[np.float64]:
    """The metric on each resample of the validation split, mean over seeds, in points: (draws,)."""
    scores, split = [], FOLDS
    for member in members:
        assert member.inner is not None
        assert member.inner.example_scores is not None
        assert member.predictions.inner is not None
        split = member.predictions.inner.split
        score = metric_score(task, member.inner.example_scores)
        if score is None:  # the metric cannot be resampled: nothing is tied
            return np.zeros(1)
        scores.append(score)
    clusters = cluster_members(task, split).tolist()
    return np.asarray(100 * resample_scores(scores, clusters, len(clusters)).mean(0))


def _cost(candidate: Candidate) -> float:
    """Encoder layers to run for a prediction, over the predictors of an ensemble."""
    return candidate.members[0].predictions.layers_run
