"""Prices of a made-up run, counted by hand: what was trained, what training needs, and what nobody measured."""

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
    """An encoder of 1,000 weights of which 40 were trained, heads of 123 each, and an ensemble of two of those."""
    found = gather(*make_run("classify"))
    facts = {
        "encoder": {"parameters": SIZE, "seconds": TUNED},
        "ensemble": {"parameters": SIZE + HEAD, "seconds": TUNED + FITTED, "members": ("learned-pool@0", "encoder")},
    }
    rows = tuple(replace(row, **facts.get(row.kind, {})) for row in found.board.rows)
    splits = {name: {"tokens": count} for name, count in TOKENS.items()}
    manifest = {**found.manifest, "splits": splits, "seconds": EXTRACTED}
    return tuned(replace(found, board=replace(found.board, rows=rows), manifest=manifest), trained=TRAINED)


def tuned(run: Run, **more: int) -> Run:
    return replace(run, encoder={**run.encoder, "record": {"cost": {"seconds": TUNED, **more}}})


def priced(run: Run, seconds: dict[str, float] | None = None) -> dict[str, PredictorCost]:
    return {one.name: one for one in predictor_costs(run, group_rows(run.board), seconds or {})}


def test_only_what_was_trained_of_the_encoder_counts(run: Run) -> None:
    found = priced(run)
    assert found["encoder"].parameters == TRAINED
    assert found["learned-pool@0"].parameters == HEAD
    assert found["ensemble"].parameters == TRAINED + HEAD
    rows = {row["name"]: row for row in cost_against_score(list(found.values()), "accuracy", Floor("no", 10.0)).rows}
    assert "trained parameters" in str(rows["encoder"]["front"]), "cheaper than any head"


def test_a_tuning_that_counted_nothing_has_no_price(run: Run) -> None:
    found = priced(tuned(run))
    assert (found["encoder"].parameters, found["ensemble"].parameters) == (None, None)
    assert found["learned-pool@0"].parameters == HEAD
    rows = {row["name"]: row for row in cost_against_score(list(found.values()), "accuracy", Floor("no", 10.0)).rows}
    assert (rows["encoder"]["efficiency"], rows["encoder"]["front"]) == (None, "training seconds")


def test_training_needs_the_states_of_train_and_inner_only(run: Run) -> None:
    found = priced(run)
    states = EXTRACTED * 700 / 1000
    assert found["encoder"].train_seconds == TUNED
    assert found["learned-pool@0"].train_seconds == pytest.approx(TUNED + states + FITTED)
    assert found["ensemble"].train_seconds == pytest.approx(TUNED + states + FITTED), "its tuning counts once"


def test_a_head_costs_what_its_own_seed_took(run: Run) -> None:
    """And not the mean over seeds, or an ensemble could come out cheaper than its member."""
    rows = [replace(row, seconds=50.0) if row.seed == 1 else row for row in run.board.rows]
    slower = replace(run, board=replace(run.board, rows=tuple(rows)))
    assert priced(slower)["learned-pool@0"].train_seconds == priced(run)["learned-pool@0"].train_seconds


def test_the_states_of_dev_are_inference(run: Run) -> None:
    found = priced(run, {"learned-pool@0": 0.25})
    assert found["encoder"].inference_seconds == pytest.approx(3.0)
    assert found["learned-pool@0"].inference_seconds == found["ensemble"].inference_seconds == pytest.approx(3.25)
    assert found["probe:layers=last1@0"].inference_seconds is None, "nobody measured it"


def test_a_live_run_did_not_time_the_encoder(run: Run) -> None:
    live = {key: value for key, value in run.manifest.items() if key != "seconds"} | {"live": True}
    found = priced(replace(run, manifest=live), {"learned-pool@0": 0.25})
    assert found["encoder"].train_seconds == TUNED
    for name in ("learned-pool@0", "ensemble"):
        assert (found[name].train_seconds, found[name].inference_seconds) == (None, None)


def test_below_a_head_nothing_may_have_been_tuned(run: Run) -> None:
    found = priced(replace(run, encoder={"name": "untuned", "record": {}}))
    assert found["learned-pool@0"].train_seconds == pytest.approx(EXTRACTED * 0.7 + FITTED)
    assert found["learned-pool@0"].parameters == HEAD
