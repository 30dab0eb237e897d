"""``analyse --depth``: scores by depth, and the truncated model that it saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.model import load_model
from bertvision.workflows.depth import choose_depth

Call = Callable[..., Any]


def test_choose_depth_takes_the_least_depth_within_the_tolerance() -> None:
    assert choose_depth([50.0, 79.6, 80.0, 79.0], within=0.5) == 1
    assert choose_depth([50.0, 79.6, 80.0, 79.0], within=0.0) == 2
    assert choose_depth([50.0, 79.6, 80.0, 79.0], within=100.0) == 0


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_every_depth_is_scored_and_the_model_is_truncated(
    request: pytest.FixtureRequest, call: Call, name: str
) -> None:
    run = request.getfixturevalue(name)
    command = ("analyse", run, "--depth", "compress:size=4", "--seeds", "0,1", "--set", "fit.epochs=2")
    document = call(*command, "--within", "100", "--json").document()
    assert [row["depth"] for row in document["rows"]] == [0, 1, 2]
    assert [len(row["dev_by_seed"]) for row in document["rows"]] == [2, 2, 2]
    sizes = [row["parameters"] for row in document["rows"]]
    assert sizes == sorted(set(sizes))
    assert document["chosen"] == 0
    assert document["cut"]["layers"] == 1
    model = load_model(run / "depth" / "model")
    assert model.encoder.layers == 2
    assert model.encoder.parameters < document["cut"]["whole_parameters"]
    assert json.loads((run / "depth" / "depth.json").read_text(encoding="utf-8")) == document
    assert "encoder layers used" in (run / "depth" / "depth.svg").read_text(encoding="utf-8")
    result = call(*command)
    assert "fit: already done, skipping" in result.err
    assert len(result.out.splitlines()) == 5
    assert "Score by depth" in (run / "report.html").read_text(encoding="utf-8")


def test_truncated_model_gives_the_dev_score_of_its_depth(call: Call, text_run: Path) -> None:
    command = ("analyse", text_run, "--depth", "compress:size=4", "--set", "fit.epochs=2")
    document = call(*command, "--within", "0", "--json").document()
    depth = document["chosen"]
    task = [json.loads(line) for line in (text_run / "store/task/dev.jsonl").read_text(encoding="utf-8").splitlines()]
    model: Any = load_model(text_run / "depth" / "model")
    predicted = [answer["label"] for answer in model([row["text"] for row in task])]
    gold = [model.task.labels[int(row["label"])] for row in task]
    right = 100 * sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)
    assert right == pytest.approx(document["rows"][depth]["dev"])


def test_invalid_arguments_are_refused(call: Call, text_run: Path, tmp_path: Path) -> None:
    assert "leave layers= out" in call("analyse", text_run, "--depth", "probe:layers=last1").refused()
    assert "leave layers= out" in call("analyse", text_run, "--what", "depth", "--head", "probe:layers=last1").refused()
    assert "is not a run" in call("analyse", tmp_path, "--depth", "probe").refused()
    for within in ("-1", "nan", "inf"):
        assert (
            "expected points of the score, 0 or more"
            in call("analyse", text_run, "--depth", "probe", "--within", within).refused()
        )
