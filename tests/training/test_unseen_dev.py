"""Dev is only reported: no weight, epoch, threshold, temperature or rank depends on its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.records import Answer, Board
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.leaderboard import evaluate
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import encoder_hash
from bertvision.training.predict import predict, predict_own
from bertvision.training.tune import tune

AssertSame = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 8}
SPECS = ["probe:layers=last1", "learned-pool", "compress:size=4,skip=true"]


def with_other_dev_labels(task: Task) -> Task:
    """The same task with a different gold answer for every dev example."""
    changed = []
    for example in task["dev"]:
        if task.kind == "span":
            answers = () if example.answers else (Answer((example.pair or "").split()[0], 0),)
            changed.append(replace(example, answers=answers))
        else:
            label = float(example.label or 0.0)
            changed.append(replace(example, label=(label + 1) % 3 if task.kind == "classify" else -label))
    return replace(task, splits={**task.splits, "dev": tuple(changed)})


def temperatures_of(board: Board) -> list[dict[str, float]]:
    return [{what: calibration["temperature"] for what, calibration in row.calibration.items()} for row in board.rows]


def comparisons_of(board: Board) -> list[tuple[object, ...]]:
    """The compared rows and their seeds."""
    return [(comparison.a, comparison.b, comparison.a_seeds, comparison.b_seeds) for comparison in board.comparisons]


@pytest.mark.parametrize("kind", ["span", "label", "value"])
def test_dev_labels_affect_nothing_but_dev_scores(
    kind: str, tiny_encoder: Encoder, tmp_path: Path, request: pytest.FixtureRequest, assert_same: AssertSame
) -> None:
    task = request.getfixturevalue(f"{kind}_task")
    boards, heads, ensembles = [], [], []
    encoders = [
        request.getfixturevalue(f"{kind}_encoder"),
        tune(tiny_encoder, with_other_dev_labels(task), epochs=10, lr=1e-2, batch=8),
    ]
    assert encoder_hash(encoders[0]) == encoder_hash(encoders[1])
    for number, one_task in enumerate([task, with_other_dev_labels(task)]):
        store = extract(encoders[number], one_task, tmp_path / f"store{number}")
        fitted = fit(SPECS, store, seeds=[0, 1], **QUICK)
        predictions = [*predict(fitted, store["dev"]), predict_own(store["dev"])]
        mixed = [ensemble(predictions, how) for how in ("mean", "fitted")]
        heads.append(fitted)
        ensembles.append(mixed)
        boards.append(evaluate([*predictions, *mixed], one_task))
    for first, second in zip(*heads, strict=True):
        assert_same(first, second)
    assert [combined.weights for combined in ensembles[0]] == [combined.weights for combined in ensembles[1]]
    selected = [[(row.name, row.seed, row.threshold, row.inner, row.weights) for row in board.rows] for board in boards]
    assert selected[0] == selected[1]  # the order of the rows included
    assert temperatures_of(boards[0]) == temperatures_of(boards[1])
    assert any(temperatures_of(boards[0])) == (kind != "value")
    assert boards[0].best_head == boards[1].best_head
    assert comparisons_of(boards[0]) == comparisons_of(boards[1])
    dev_scores = [[row.scores for row in board.rows] for board in boards]
    assert dev_scores[0] != dev_scores[1], "the labels of dev did change"
