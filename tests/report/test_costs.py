"""Costs of a made-up run, computed by hand: trained parameters, training seconds and unmeasured values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bertvision.evaluation.analyses.cost import Floor, PredictorCost, cost_against_score
from bertvision.runs.costs import predictor_costs
from bertvision.runs.reader import Run, gather, group_rows

SIZE, HEAD, TRAINED, TUNED, FITTED = 1000, 123, 40, 61.0, 2.5
TOKENS = {"train": 600, "inner": 100, "dev": 300}
EXTRACTED = 10.0


@pytest.fixture
def run(make_run: Any) -> Run:
    """An encoder with 40 of 1,000 weights trained, heads with 123 each, and an ensemble of a head and the encoder."""
    costs = gather(*make_run("classify"))
    facts = {
        "encoder": {"parameters": SIZE, "seconds": TUNED},
        "ensemble": {"parameters": SIZE + HEAD, "seconds": TUNED + FITTED, "members": ("learned-pool@0", "encoder")},
    }
    rows = tuple(replace(row, **facts.get(row.kind, {})) for row in costs.board.rows)
    splits = {name: {"tokens": count} for name, count in TOKENS.items()}
    manifest = {**costs.manifest, "splits": splits, "seconds": EXTRACTED}
    return with_tuning_cost(replace(costs, board=replace(costs.board, rows=rows), manifest=manifest), trained=TRAINED)


def with_tuning_cost(run: Run, **cost: int) -> Run:
    return replace(run, encoder={**run.encoder, "record": {"cost": {"seconds": TUNED, **cost}}})


def costs_by_name(run: Run, seconds: dict[str, float] | None = None) -> dict[str, PredictorCost]:
    return {cost.name: cost for cost in predictor_costs(run, group_rows(run.board), seconds or {})}


def test_encoder_parameters_are_the_trained_ones(run: Run) -> None:
    costs = costs_by_name(run)
    assert costs["encoder"].parameters == TRAINED
    assert costs["learned-pool@0"].parameters == HEAD
    assert costs["ensemble"].parameters == TRAINED + HEAD
    rows = {row["name"]: row for row in cost_against_score(list(costs.values()), "accuracy", Floor("no", 10.0)).rows}
    assert "trained parameters" in str(rows["encoder"]["front"]), "cheaper than any head"


def test_parameters_are_unknown_if_tuning_did_not_count_them(run: Run) -> None:
    costs = costs_by_name(with_tuning_cost(run))
    assert (costs["encoder"].parameters, costs["ensemble"].parameters) == (None, None)
    assert costs["learned-pool@0"].parameters == HEAD
    rows = {row["name"]: row for row in cost_against_score(list(costs.values()), "accuracy", Floor("no", 10.0)).rows}
    assert (rows["encoder"]["efficiency"], rows["encoder"]["front"]) == (None, "training seconds")


def test_training_seconds_include_states_of_train_and_inner(run: Run) -> None:
    costs = costs_by_name(run)
    states = EXTRACTED * 700 / 1000
    assert costs["encoder"].train_seconds == TUNED
    assert costs["learned-pool@0"].train_seconds == pytest.approx(TUNED + states + FITTED)
    assert costs["ensemble"].train_seconds == pytest.approx(TUNED + states + FITTED), "the shared tuning counts once"


def test_head_cost_is_that_of_its_own_seed(run: Run) -> None:
    """With the mean over seeds an ensemble could be cheaper than its member."""
    rows = [replace(row, seconds=50.0) if row.seed == 1 else row for row in run.board.rows]
    slower = replace(run, board=replace(run.board, rows=tuple(rows)))
    assert costs_by_name(slower)["learned-pool@0"].train_seconds == costs_by_name(run)["learned-pool@0"].train_seconds


def test_inference_seconds_include_states_of_dev(run: Run) -> None:
    costs = costs_by_name(run, {"learned-pool@0": 0.25})
    assert costs["encoder"].inference_seconds == pytest.approx(3.0)
    assert costs["learned-pool@0"].inference_seconds == costs["ensemble"].inference_seconds == pytest.approx(3.25)
    assert costs["probe:layers=last1@0"].inference_seconds is None, "not measured"


def test_live_run_has_no_encoder_seconds(run: Run) -> None:
    live = {key: value for key, value in run.manifest.items() if key != "seconds"} | {"live": True}
    costs = costs_by_name(replace(run, manifest=live), {"learned-pool@0": 0.25})
    assert costs["encoder"].train_seconds == TUNED
    for name in ("learned-pool@0", "ensemble"):
        assert (costs[name].train_seconds, costs[name].inference_seconds) == (None, None)


def test_head_on_an_untuned_encoder_has_no_tuning_cost(run: Run) -> None:
    costs = costs_by_name(replace(run, encoder={"name": "untuned", "record": {}}))
    assert costs["learned-pool@0"].train_seconds == pytest.approx(EXTRACTED * 0.7 + FITTED)
    assert costs["learned-pool@0"].parameters == HEAD
