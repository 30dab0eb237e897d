"""The last round of a search: the best candidates trained with every seed, and the winner scored on dev."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

from bertvision.core.records import Predictions
from bertvision.evaluation.scoring import score_predictions
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fit import make_trainer, train_epochs
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict
from bertvision.workflows.search.trials import Candidate

T = TypeVar("T")


@dataclass(frozen=True)
class Finalist:
    """A candidate trained with every seed; seeds that diverged are missing."""

    candidate: Candidate
    fitted: tuple[FittedHead, ...]
    inner: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.inner)


@dataclass(frozen=True)
class FinalRanking:
    """The candidates of the last round and their order on inner."""

    entrants: Sequence[Finalist]  # defaults first: the first of equals wins, so a default wins a tie
    tried: frozenset[Candidate]
    default: frozenset[Candidate]

    @property
    def winner(self) -> Finalist:
        return max(self.entrants, key=lambda entrant: entrant.mean)

    @property
    def default_wins(self) -> bool:
        return self.winner.candidate in self.default

    @property
    def defaults(self) -> list[Finalist]:
        return [entrant for entrant in self.entrants if entrant.candidate in self.default]

    @property
    def finalists(self) -> list[Finalist]:
        """The candidates that come from trials."""
        return [entrant for entrant in self.entrants if entrant.candidate in self.tried]

    @property
    def beaten(self) -> Finalist | None:
        """The best default on inner, unless it is the winner."""
        return None if self.default_wins else max(self.defaults, key=lambda entrant: entrant.mean, default=None)

    @property
    def shown(self) -> list[Finalist]:
        """The candidates that are scored on dev, the winner first."""
        return [self.winner, *(entrant for entrant in self.defaults if entrant is not self.winner)]


@dataclass(frozen=True)
class DevScores:
    """Dev scores of a candidate, one per seed, and its predictions if it is compared with another."""

    scores: list[float] = field(default_factory=list)
    predictions: list[Predictions] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return fmean(self.scores)


def fit_finalists(
    candidates: Sequence[Candidate], seeds: Sequence[int], heads_per_pass: int, states: States, task: Task
) -> list[Finalist]:
    """Train every candidate with every seed; heads with the same batch size share a pass over the states."""
    results: dict[Candidate, list[tuple[FittedHead, float]]] = {candidate: [] for candidate in candidates}
    for batch_size in dict.fromkeys(candidate.config.batch for candidate in results):
        jobs: list[tuple[Candidate, int]] = []
        for candidate in results:
            if candidate.config.batch == batch_size:
                jobs += [(candidate, seed) for seed in dict.fromkeys(seeds)]
        for chunk in _chunks(jobs, heads_per_pass):
            for candidate, head, score in _fit(chunk, states, task):
                results[candidate].append((head, score))
    finalists: list[Finalist] = []
    for candidate, fitted in results.items():
        if fitted:
            heads, scores = zip(*fitted, strict=True)
            finalists.append(Finalist(candidate, heads, scores))
    return finalists


def _fit(
    jobs: Sequence[tuple[Candidate, int]], states: States, task: Task
) -> list[tuple[Candidate, FittedHead, float]]:
    """Train heads in one pass; a function, so that optimisers and gradients are freed before the next pass."""
    trainers = [make_trainer(candidate.spec, seed, states, candidate.config, task) for candidate, seed in jobs]
    for _ in train_epochs(trainers, states, task):
        pass
    results: list[tuple[Candidate, FittedHead, float]] = []
    for (candidate, _), trainer in zip(jobs, trainers, strict=True):
        if trainer.best:
            results.append((candidate, trainer.result(states.layers), trainer.best_score))
    return results


def score_on_dev(
    finalists: Sequence[Finalist], compared: Collection[Candidate], heads_per_pass: int, states: States, task: Task
) -> dict[Candidate, DevScores]:
    """Score all heads on dev, ``heads_per_pass`` at a time; predictions are large and kept only if compared."""
    results = {finalist.candidate: DevScores() for finalist in finalists}
    jobs = [(finalist.candidate, head) for finalist in finalists for head in finalist.fitted]
    for chunk in _chunks(jobs, heads_per_pass):
        outputs = predict([head for _, head in chunk], states["dev"])
        for (candidate, _), predictions in zip(chunk, outputs, strict=True):
            result = results[candidate]
            result.scores.append(score_predictions(task, predictions).result.scores[task.metric])
            if candidate in compared:
                result.predictions.append(predictions)
    return results


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
