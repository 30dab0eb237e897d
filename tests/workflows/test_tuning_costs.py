"""The table of tuning costs: one row per encoder, and the published efficiency."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.analyses.cost import efficiency
from bertvision.tasks.task import Task
from bertvision.training.tune import tune
from bertvision.workflows.tuning_costs import cost_table, cost_table_text


def test_cost_table_has_a_row_per_encoder(tiny_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    folders = []
    for method in ("full", "freeze:k=1"):
        folders.append(tmp_path / method)
        tune(tiny_encoder, span_task, method=method, epochs=1).save_pretrained(folders[-1])
    document = cost_table(folders, span_task)
    full, frozen = document["rows"]
    floor = 100 * sum(not example.answers for example in span_task["dev"]) / len(span_task["dev"])
    assert document["baseline"] == {"name": "always no answer", "score": pytest.approx(floor)}
    assert (full["method"], frozen["method"]) == ("full", "freeze:k=1")
    assert frozen["trained"] < full["trained"] <= full["parameters"] == frozen["parameters"]
    assert full["efficiency"] == pytest.approx((full["score"] - floor) / math.log10(full["trained"]))
    assert all(row["saved_bytes"] > 0 and row["inference_per_1000"] > 0 for row in document["rows"])
    assert len(cost_table_text(document).splitlines()) == 3 + 1


@pytest.mark.parametrize(("f1", "trained", "published"), [(76.3, 108_311_810, 3.27), (75.2, 42_548_738, 3.30)])
def test_efficiency_equals_the_published_one(f1: float, trained: int, published: float) -> None:
    never_answering = 50.0  # the floor in Hulburd's paper, on SQuAD 2.0
    assert efficiency(f1, trained, never_answering) == pytest.approx(published, abs=0.006)


def test_untuned_encoder_is_an_error(tiny_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    tiny_encoder.save_pretrained(tmp_path / "raw")
    with pytest.raises(BadInput, match="no tuning cost on record"):
        cost_table([tmp_path / "raw"], span_task)
