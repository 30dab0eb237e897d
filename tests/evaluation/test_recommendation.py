"""The recommended row: one rule on the validation split, with ties by standard errors, and dev never looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.records import FOLDS, Example, Predictions, WindowTable
from bertvision.evaluation.leaderboard import build_leaderboard
from bertvision.evaluation.recommendation import CLEARLY, EVERY_HEAD, NEAR, Recommendation, recommend
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.tasks.task import Task

COUNT = 200
GOLD = [i % 2 for i in range(COUNT)]
EXAMPLES = tuple(Example(str(i), f"text {i}", label=float(gold)) for i, gold in enumerate(GOLD))
SPLITS: dict[str, tuple[Example, ...]] = {"train": (), "inner": EXAMPLES, "dev": EXAMPLES}  # folds have the same rows
TASK = Task("tones", "classify", SPLITS, "accuracy", labels=("no", "yes"))
TABLE = WindowTable(
    np.arange(COUNT), np.zeros(COUNT, np.int64), [np.full((1, 2), -1, np.int32)] * COUNT, np.zeros((COUNT, 1))
)


def outputs(wrong: Iterable[int]) -> list[Any]:
    mistakes = set(wrong)
    return [np.eye(2, dtype=np.float32)[1 - gold if i in mistakes else gold] for i, gold in enumerate(GOLD)]


def row(
    name: str,
    wrong: Iterable[int],
    parameters: int = 100,
    layers_run: int = 6,
    seed: int | None = 0,
    dev: Iterable[int] = (),
    split: str = "inner",
) -> ScoredPredictions:
    """A predictor that is wrong on these rows of the validation split."""
    kind: Any = "ensemble" if name == EVERY_HEAD else "head"
    seed = None if kind == "ensemble" else seed
    facts: dict[str, Any] = {"seed": seed, "parameters": parameters, "layers_run": layers_run}
    inner = Predictions(name, name, kind, split, outputs(wrong), TABLE, **facts)
    return score_predictions(TASK, replace(inner, split="dev", logits=outputs(dev), inner=inner))


def chosen(rows: list[ScoredPredictions], prefer: str = "best", task: Task = TASK) -> Recommendation:
    ranked = sorted(rows, key=lambda member: member.rank(task.metric))
    got = recommend(ranked, task, prefer)
    assert got is not None
    assert recommend(list(reversed(ranked)), task, prefer) is not None
    return got


def test_ensemble_of_all_heads_is_recommended_unless_two_standard_errors_behind() -> None:
    # More mistakes on the same rows: m of 200 behind, with a standard error of about sqrt(m) of 200.
    best = row("best", range(10))
    assert chosen([best, row(EVERY_HEAD, range(8))]).name == EVERY_HEAD
    assert chosen([best, row(EVERY_HEAD, range(13))]).name == EVERY_HEAD
    behind = chosen([best, row(EVERY_HEAD, range(17))])
    assert behind.name == "best"
    assert behind.title == "best@0"
    assert CLEARLY == 2


def test_ensembles_of_other_names_are_candidates_like_any_row() -> None:
    other = replace(row("max(a + b)", range(13)).predictions, kind="ensemble")
    assert chosen([row("best", range(10)), score_predictions(TASK, other)]).name == "best"


def test_smallest_row_within_half_a_standard_error_is_best() -> None:
    large = row("large", range(10), parameters=1000)
    near = row("near", range(100, 111), parameters=10)  # a half point behind, with a standard error of 2.3 points
    tied = row("tied", range(100, 113), parameters=1)  # one and a half points behind
    assert chosen([large, near]).name == "near"
    assert chosen([large, tied]).name == "large"
    assert chosen([large, near, tied]).name == "near"
    assert NEAR == 0.5


def test_equal_scores_are_decided_by_size() -> None:
    same = [row("a", range(10), parameters=30), row("b", range(10), parameters=20), row("c", range(10), parameters=30)]
    assert chosen(same).name == "b"
    assert set(chosen(same).facts["tied"]) == {"a", "c"}


def test_small_takes_the_fewest_parameters_within_a_standard_error() -> None:
    rows = [
        row("best", range(10), parameters=1000),
        row("tied", range(100, 112), parameters=50),
        row("smaller but worse", range(60), parameters=1),
        row(EVERY_HEAD, range(9), parameters=2000),
    ]
    assert chosen(rows, "small").name == "tied"
    assert chosen(rows).name == EVERY_HEAD
    equal = [row("first", range(10), parameters=50), row("second", range(100, 111), parameters=50)]
    assert chosen(equal, "small").name == "first", "of equal size, the better one"


def test_fast_takes_the_fewest_encoder_layers_and_then_the_fewest_parameters() -> None:
    rows = [
        row("deep", range(10), parameters=1, layers_run=12),
        row("shallow", range(100, 112), parameters=900, layers_run=3),
        row("shallow and small", range(50, 62), parameters=90, layers_run=3),
        row("shallower but worse", range(60), parameters=1, layers_run=1),
    ]
    assert chosen(rows, "fast").name == "shallow and small"
    assert chosen(rows, "small").name == "deep"


def test_seeds_are_averaged_and_the_best_one_is_recommended() -> None:
    rows = [
        row("even", range(10), seed=0),
        row("even", range(11), seed=1),
        row("uneven", range(2), seed=0),
        row("uneven", range(40), seed=1),
    ]
    got = chosen(rows)
    assert (got.name, got.title) == ("even", "even@0")
    assert got.facts["score"] == pytest.approx(100 * (1 - 10.5 / COUNT))


def test_facts_name_the_score_its_standard_error_and_the_tied_rows() -> None:
    rows = [row("best", range(10)), row("tied", range(100, 113), parameters=10), row("poor", range(90))]
    for prefer, name, other in (("best", "best", "tied"), ("small", "tied", "best")):
        got = chosen(rows, prefer)
        assert got.name == name
        wrong = 10 if name == "best" else 13
        share = 1 - wrong / COUNT
        assert got.facts == {
            "split": "inner",
            "rows": COUNT,
            "score": pytest.approx(100 * share),
            "error": pytest.approx(100 * (share * (1 - share) / COUNT) ** 0.5, rel=0.1),
            "prefer": prefer,
            "tied": [other],
        }


def test_dev_is_never_looked_at() -> None:
    boards = [
        build_leaderboard([row("a", range(10), dev=range(dev)), row("b", range(30), dev=range(60 - dev))], TASK)
        for dev in (0, 60)
    ]
    assert {board.recommended for board in boards} == {"a@0"}
    assert boards[0].selection == boards[1].selection
    assert boards[0].rows[0].scores != boards[1].rows[0].scores


def test_rows_without_a_validation_split_are_not_recommended() -> None:
    alone = score_predictions(TASK, replace(row("a", ()).predictions, inner=None))
    assert recommend([alone], TASK) is None
    board = build_leaderboard([alone], TASK)
    assert board.recommended is None
    assert board.selection == {}
    assert chosen([alone, row("b", range(50))]).name == "b"


def test_rows_of_another_validation_split_are_not_compared() -> None:
    rows = [row("a", range(10), split=FOLDS), row("b", range(20), split=FOLDS), row("uneven", (), split="inner")]
    got = chosen(rows)
    assert got.name == "a"
    assert (got.facts["split"], got.facts["rows"]) == (FOLDS, COUNT)


def test_texts_of_one_group_are_resampled_together() -> None:
    grouped = tuple(replace(example, pair=f"context {i // 50}", group="x") for i, example in enumerate(EXAMPLES))
    task = replace(TASK, splits={**SPLITS, "inner": grouped})
    errors = [chosen([row("a", range(30))], task=each).facts["error"] for each in (TASK, task)]
    assert errors[1] > 2 * errors[0], "thirty mistakes in one context say less than thirty in as many"


def test_metric_that_cannot_be_resampled_has_no_ties() -> None:
    scored = [row("a", range(10), parameters=100), row("b", range(11), parameters=1)]
    for member in scored:
        for result in (member.result, member.inner):
            assert result is not None
            result.scores["beauty"] = result.scores["accuracy"]
    task = replace(TASK, metric="beauty")
    for prefer in ("best", "small", "fast"):
        got = chosen(scored, prefer, task)
        assert (got.name, got.facts["tied"], got.facts["error"]) == ("a", [], 0.0)


@pytest.mark.parametrize("metric", ["f1", "matthews_correlation", "macro_f1"])
def test_metrics_that_are_not_means_have_standard_errors(metric: str) -> None:
    got = chosen([row("a", range(10)), row("b", range(60))], task=replace(TASK, metric=metric))
    assert got.name == "a"
    assert 0 < got.facts["error"] < 10
