"""How far a board's numbers can be trusted: intervals, means over seeds, and which differences are real.

All predictors meet the same resamples of the split, whole contexts at a time. A predictor with
several seeds is the mean over them: example by example where the metric is a mean over examples,
else score by score. Tests pair two predictors on the same examples and are corrected together
(Holm) over everything that a board compares. Shared ground of the steps, not a step itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import CONTROL, PairedTest, SeedSummary
from bertvision.evaluation.example_scores import ExampleScores, clusters_of
from bertvision.evaluation.metrics.bootstrap import (
    DRAWS,
    LABEL_SCORES,
    Ranked,
    Score,
    alike_share,
    cluster_sums,
    holm,
    label_score,
    mean_score,
    number_clusters,
    pearson_score,
    percentile_interval,
    resampled,
    seed_summary,
    sign_flip_p,
    swap_p,
)
from bertvision.tasks.task import Task

Floats = NDArray[np.float64]
WHOLE = 100.0
Ends = tuple[float, float] | None


@dataclass(frozen=True)
class PredictorScores:
    """One row of a board, and what its score rests on."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seed: int | None
    score: float  # the metric on the split, in points
    example_scores: ExampleScores


@dataclass(frozen=True)
class SeedGroup:
    """One predictor with its seeds, best on inner first, ready to be compared."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seeds: tuple[int, ...]
    scores: tuple[Score, ...]
    found: tuple[float, ...]  # the metric of every seed, in points
    drawn: Floats  # (seeds, draws) the metric on every resample, in points
    values: Floats | None  # (examples,) mean over seeds, where the metric is a mean over examples
    places: tuple[int, ...]  # of its seeds among the witnesses

    def tested(self) -> SeedGroup:
        """What tests look at: the mean over seeds or, of a metric that is no mean over examples, the best on inner."""
        if self.values is not None:
            return self
        return replace(self, seeds=self.seeds[:1], scores=self.scores[:1], found=self.found[:1], drawn=self.drawn[:1])


def score_of(task: Task, example_scores: ExampleScores) -> Score | None:
    """The task's metric as something that can be resampled; None for one that is not known here."""
    if task.metric in example_scores.means:
        return mean_score(example_scores.means[task.metric])
    if task.labels and task.metric in LABEL_SCORES:
        return label_score(task.metric, example_scores.gold, example_scores.said, len(task.labels))
    if task.metric == "pearson":
        return pearson_score(example_scores.gold, example_scores.said)
    return Ranked(example_scores.gold, example_scores.said) if task.metric == "spearmanr" else None


class Comparison:
    """The examples of a split, on which predictors are weighed against each other."""

    def __init__(self, task: Task, split: str) -> None:
        clusters = clusters_of(task, split)
        self.task = task
        self.members = number_clusters(clusters, len(task[split]))  # (examples,)
        self.num_units = int(self.members.max()) + 1
        self.unit_name = "rows" if clusters is None else "contexts"

    def resampling_info(self) -> dict[str, Any]:
        """What intervals and tests rest on, for the record."""
        return {"level": 0.95, "draws": DRAWS, "clusters": self.num_units, "of": self.unit_name, "seeds_vary": "head"}

    def seed_groups(self, predictors: Sequence[PredictorScores]) -> list[SeedGroup]:
        """Predictors with their seeds together, in order of appearance; none if the metric cannot be resampled."""
        scores = [score_of(self.task, one.example_scores) for one in predictors]
        known = [score for score in scores if score is not None]
        if not known or len(known) < len(scores):
            return []
        drawn = 100 * resampled(known, self.members.tolist(), len(self.members))  # (rows, draws)
        groups: dict[tuple[str, str], list[int]] = {}
        for place, one in enumerate(predictors):
            groups.setdefault((one.kind, one.name), []).append(place)
        return [
            self._seed_group(places, [predictors[i] for i in places], [known[i] for i in places], drawn[places])
            for places in groups.values()
        ]

    def _seed_group(
        self, places: Sequence[int], seeds: Sequence[PredictorScores], scores: Sequence[Score], drawn: Floats
    ) -> SeedGroup:
        values = [
            one.example_scores.means[self.task.metric] for one in seeds if self.task.metric in one.example_scores.means
        ]
        return SeedGroup(
            name=seeds[0].name,
            kind=seeds[0].kind,
            seeds=tuple(one.seed for one in seeds if one.seed is not None),
            scores=tuple(scores),
            found=tuple(one.score for one in seeds),
            drawn=drawn,
            values=np.mean(values, axis=0) if values else None,
            places=tuple(places),
        )

    def interval(self, estimate: float, drawn: Floats) -> Ends:
        """The interval of an estimate; None where there is one context only."""
        interval = percentile_interval(estimate, drawn, self.num_units)
        return None if interval is None else (interval.low, interval.high)

    def score_interval(self, score: float, drawn: Floats) -> Ends:
        """The interval of a score; where everything is right on every draw, what so few examples may hide."""
        ends = self.interval(score, drawn)
        return (score * alike_share(self.num_units), score) if ends == (WHOLE, WHOLE) else ends

    def row_intervals(self, sides: Sequence[SeedGroup]) -> dict[int, Ends]:
        """The interval of every witness, by its place."""
        seeds = [(place, side.found[i], side.drawn[i]) for side in sides for i, place in enumerate(side.places)]
        return {place: self.score_interval(found, drawn) for place, found, drawn in seeds}

    def summarize(self, side: SeedGroup) -> SeedSummary:
        """Mean and spread over seeds, and the interval of the mean."""
        told = seed_summary(side.found)
        interval = self.score_interval(told.mean, side.drawn.mean(0))
        seeds = tuple(sorted(side.seeds))
        return SeedSummary(side.name, side.kind, seeds, told.mean, told.std, told.min, told.max, interval)

    def compare(self, one: SeedGroup, other: SeedGroup) -> PairedTest:
        """One minus the other; p is not corrected yet."""
        a, b = one.tested(), other.tested()
        difference = float(np.mean(a.found) - np.mean(b.found))
        low, high = self.interval(difference, a.drawn.mean(0) - b.drawn.mean(0)) or (None, None)
        if a.values is not None and b.values is not None:
            p = sign_flip_p(cluster_sums(self.members, a.values - b.values))
        else:
            p = swap_p(a.scores[0], b.scores[0], self.members.tolist())
        seeds = tuple(sorted(a.seeds)), tuple(sorted(b.seeds))
        return PairedTest(a.name, b.name, difference, low, high, p, p, *seeds)

    def comparisons(self, sides: Sequence[SeedGroup], best: str | None) -> tuple[PairedTest, ...]:
        """Every predictor against the encoder and the control, and the best head against all, corrected together."""
        return self.corrected_tests(pairs_of(sides, best))

    def corrected_tests(self, pairs: Sequence[tuple[SeedGroup, SeedGroup]]) -> tuple[PairedTest, ...]:
        """Each pair's first minus its second, p corrected for all of them together."""
        found = [self.compare(*pair) for pair in pairs]
        corrected = holm([one.p for one in found])
        return tuple(replace(one, p_holm=p) for one, p in zip(found, corrected, strict=True))


def pairs_of(sides: Sequence[SeedGroup], best: str | None) -> list[tuple[SeedGroup, SeedGroup]]:
    """What a board compares; each pair once, the best head always in front."""
    front = [side for side in sides if (side.kind, side.name) == ("head", best)]
    behind = [side for side in sides if side.kind == "encoder"]
    behind += [side for side in sides if (side.kind, side.name) == ("head", CONTROL)]
    wanted = [*product(front, sides), *((side, reference) for reference in behind for side in sides)]
    chosen: dict[frozenset[str], tuple[SeedGroup, SeedGroup]] = {}
    for one, other in wanted:
        if one is not other:
            chosen.setdefault(frozenset((one.name, other.name)), (one, other))
    return list(chosen.values())
