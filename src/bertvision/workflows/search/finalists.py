"""The last round of a search: settings with every seed, and dev for those that are shown; so many heads at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

from bertvision.core.records import Predictions
from bertvision.evaluation.scoring import score_predictions
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fit import begin_fit, fit_epochs
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict
from bertvision.workflows.search.trials import Attempt

T = TypeVar("T")
Entry = tuple[Attempt, int]
"""Settings and a seed."""


@dataclass(frozen=True)
class Final:
    """Settings that were fitted with every seed; of some a seed may have diverged."""

    attempt: Attempt
    fitted: tuple[FittedHead, ...]
    inner: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.inner)


@dataclass(frozen=True)
class Standings:
    """Who took part in the last round, and who won it."""

    finals: Sequence[Final]  # defaults first: of equals the first wins, and a search that gains nothing says so
    tried: frozenset[Attempt]
    usual: frozenset[Attempt]

    @property
    def winner(self) -> Final:
        return max(self.finals, key=lambda one: one.mean)

    @property
    def default_wins(self) -> bool:
        return self.winner.attempt in self.usual

    @property
    def defaults(self) -> list[Final]:
        return [one for one in self.finals if one.attempt in self.usual]

    @property
    def finalists(self) -> list[Final]:
        return [one for one in self.finals if one.attempt in self.tried]

    @property
    def beaten(self) -> Final | None:
        """The best default on inner, unless it is the winner."""
        return None if self.default_wins else max(self.defaults, key=lambda one: one.mean, default=None)

    @property
    def shown(self) -> list[Final]:
        """Those that dev is looked at for, the winner first."""
        return [self.winner, *(one for one in self.defaults if one is not self.winner)]


@dataclass(frozen=True)
class Look:
    """What dev says of settings: a score a seed, and the outputs where they are to be compared."""

    scores: list[float] = field(default_factory=list)
    told: list[Predictions] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return fmean(self.scores)


def fit_finals(
    attempts: Sequence[Attempt], seeds: Sequence[int], together: int, states: States, task: Task
) -> list[Final]:
    """Settings x seeds, in the order given; what fitting needed beside the heads is gone before the next are begun."""
    found: dict[Attempt, list[tuple[FittedHead, float]]] = {one: [] for one in attempts}
    entries = [(one, seed) for one in found for seed in dict.fromkeys(seeds)]
    for some in _sharing(entries, together):
        for one, fitted, score in _fit(some, states, task):
            found[one].append((fitted, score))
    return [
        Final(one, tuple(fitted for fitted, _ in good), tuple(score for _, score in good))
        for one, good in found.items()
        if good
    ]


def _sharing(entries: Sequence[Entry], together: int) -> Iterator[Sequence[Entry]]:
    """Those that share a read of the states: of one size of batches, and no more than fit beside each other."""
    for size in dict.fromkeys(one.config.batch for one, _ in entries):
        yield from _pieces([entry for entry in entries if entry[0].config.batch == size], together)


def _pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _fit(entries: Sequence[Entry], states: States, task: Task) -> list[tuple[Attempt, FittedHead, float]]:
    runners = [begin_fit(one.spec, seed, states, one.config, task) for one, seed in entries]
    for _ in fit_epochs(runners, states, task):
        pass
    ended = zip(entries, runners, strict=True)
    return [(one, runner.result(states.layers), runner.best_score) for (one, _), runner in ended if runner.best]


def look_at_dev(
    finals: Sequence[Final], compared: Collection[Attempt], together: int, states: States, task: Task
) -> dict[Attempt, Look]:
    """Every head judged, from one read of dev for ``together`` of them; outputs are large, and dropped at once."""
    looks = {one.attempt: Look() for one in finals}
    heads = [(one.attempt, fitted) for one in finals for fitted in one.fitted]
    for some in _pieces(heads, together):
        told = predict([fitted for _, fitted in some], states["dev"])
        for (attempt, _), member in zip(some, told, strict=True):
            looks[attempt].scores.append(score_predictions(task, member).result.scores[task.metric])
            looks[attempt].told.extend([member] if attempt in compared else [])
    return looks
