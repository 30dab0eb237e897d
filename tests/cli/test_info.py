"""Commands that print information: tasks, encoders, heads, doctor and score."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.info import EXTRAS

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
Call = Callable[..., Any]


def raising(error: BaseException) -> Callable[[Any], Any]:
    def run(options: Any) -> Any:
        raise error

    return run


def test_tasks_lists_every_task_with_a_description(call: Call) -> None:
    rows = {row["name"]: row["about"] for row in call("tasks", "--json").document()["tasks"]}
    assert {"squad1", "squad2", "text"} <= set(rows)
    assert all(rows.values())
    assert rows["squad1"] != rows["squad2"]
    assert "squad2" in call("tasks").out


def test_encoders_lists_embedded_encoders_and_families(call: Call) -> None:
    document = call("encoders", "--json").document()
    assert document["embedded"] == ["minilm"]
    assert {"bert", "roberta", "distilbert"} <= {row["model_type"] for row in document["families"]}
    assert "minilm" in call("encoders").out


def test_heads_lists_specs_with_parameters(call: Call) -> None:
    rows = call("heads", "--json").document()["heads"]
    assert {"learned-pool", "probe:layers=last1", "compress:size=64,skip=true"} <= {row["spec"] for row in rows}
    assert all(row["parameters"] > 0 and row["percent"] > 0 and row["source"] for row in rows)
    (pool,) = call("heads", "--head", "learned-pool", "--layers", 25, "--width", 1024, "--json").document()["heads"]
    assert pool["parameters"] == 25 + 1 + 2 * 1025
    both = call("heads", "--heads", "probe", "mean-pool").out.splitlines()
    assert [line.split()[0] for line in both] == ["spec", "probe", "mean-pool"]


def test_heads_shapes_lists_the_shapes_of_a_head(call: Call) -> None:
    command = ("heads", "--shapes", "--head", "compress:size=386", "--layers", 25, "--width", 1024, "--tokens", 386)
    (row,) = call(*command, "--json").document()["heads"]
    assert row["shapes"] == [[386, 25, 1024], [386, 25, 386], [386, 9650], [386, 2]]
    assert "(386,25,1024) -> (386,25,386) -> (386,9650) -> (386,2)" in call(*command).out
    assert "shapes" not in call("heads", "--head", "probe", "--json").document()["heads"][0]


def test_heads_for_labels_are_listed_unless_spans_are_requested(call: Call) -> None:
    rows = {row["spec"]: row for row in call("heads", "--layers", 25, "--width", 1024, "--json").document()["heads"]}
    assert rows["xception:full=true,pooled=true"]["parameters"] == 20_662_106
    assert len(rows) > 40
    assert "is for labels and values" in call("heads", "--kind", "span", "--head", "xception").refused()
    assert "xception" not in {row["spec"] for row in call("heads", "--kind", "span", "--json").document()["heads"]}


def test_heads_for_few_layers_are_those_that_fit(call: Call) -> None:
    specs = {row["spec"] for row in call("heads", "--layers", 3, "--json").document()["heads"]}
    assert "probe" in specs
    assert "probe:layers=last4" not in specs
    assert "there are 3 states" in call("heads", "--layers", 3, "--head", "probe:layers=last4").refused()


def test_doctor_reports_versions_and_missing_extras(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = call("doctor", "--json").document()
    assert {"python", "torch", "transformers", "device", "threads", "minilm"} <= set(facts)
    monkeypatch.setattr(importlib.metadata, "version", raising(importlib.metadata.PackageNotFoundError("x")))
    assert "not installed; pip install -e '.[search]'" in call("doctor").out
    assert set(call("doctor", "--json").document()["extras"].values()) == {None}


def test_doctor_checks_extras_that_pyproject_defines() -> None:
    named = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, package in EXTRAS:
        assert any(package in needed for needed in named[extra]), extra


def test_score_scores_squad_files_and_refuses_broken_ones(samples: Any, call: Call, tmp_path: Path) -> None:
    gold = samples.write_squad(tmp_path / "gold.json")
    predicted = tmp_path / "predicted.json"
    answers = {q["id"]: "" for article in samples.squad()["data"] for q in article["paragraphs"][0]["qas"]}
    predicted.write_text(json.dumps(answers), encoding="utf-8")
    document = call("score", "squad2", gold, predicted, "--json").document()
    assert (document["task"], document["n"]) == ("squad2", 16)
    assert document["scores"].items() >= {"exact": 50.0, "HasAns_f1": 0.0, "NoAns_f1": 100.0}.items()
    assert "exact" in call("score", "squad2", gold, predicted).out
    answers.pop("q0a")
    predicted.write_text(json.dumps(answers), encoding="utf-8")
    assert "have no prediction, the first is 'q0a'" in call("score", "squad2", gold, predicted).refused()
    predicted.write_text("{", encoding="utf-8")
    assert "not JSON" in call("score", "squad2", gold, predicted).refused()
    assert "no such file" in call("score", "squad2", gold, tmp_path / "none.json").refused()
