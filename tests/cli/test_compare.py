"""``evaluate`` on a finished run: comparing two rows, and the paper's decoding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.records import CONTROL

Call = Callable[..., Any]


def board(run: Path) -> Any:
    return json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_compare_gives_the_tests_of_the_leaderboard(call: Call, request: pytest.FixtureRequest, name: str) -> None:
    run = request.getfixturevalue(name)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for test in board(run)["comparisons"]:
        document = call("evaluate", run, "--compare", test["a"], test["b"], "--json").document()
        fields = ("a", "b", "difference", "low", "high", "p", "a_seeds", "b_seeds")
        assert {key: document[key] for key in fields} == {key: test[key] for key in fields}
        assert document["split"] == "dev"
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_compare_accepts_a_single_seed(call: Call, squad_run: Path) -> None:
    result = call("evaluate", squad_run, "--compare", "mean-pool@0", CONTROL)
    assert result.out.startswith(f"mean-pool@0 minus {CONTROL}: f1 ")
    assert "(paired, 3 contexts; not corrected for other comparisons)" in result.out
    same = call("evaluate", squad_run, "--compare", "encoder", "encoder", "--json").document()
    assert (same["difference"], same["p"]) == (0.0, 1.0)


def test_rows_that_cannot_be_compared_are_refused(call: Call, squad_run: Path, tmp_path: Path) -> None:
    line = call("evaluate", squad_run, "--compare", "mean-poo", "encoder").refused()
    assert "no row named 'mean-poo'. Did you mean 'mean-pool'?" in line
    assert "not allowed with" in call("evaluate", squad_run, "--compare", "a", "b", "--decode", "legacy").refused()
    assert "is not a run" in call("evaluate", tmp_path, "--compare", "a", "b").refused()
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    (run / "predictions" / "encoder.json").unlink()
    assert "has no predictions of encoder" in call("evaluate", run, "--compare", "encoder", CONTROL).refused()


def test_decode_legacy_adds_the_scores_of_the_papers_decoding(call: Call, squad_run: Path, tmp_path: Path) -> None:
    document = call("evaluate", squad_run, "--decode", "legacy", "--json").document()
    rows = board(squad_run)["rows"]
    assert [(row["name"], row["seed"]) for row in document["rows"]] == [(row["name"], row["seed"]) for row in rows]
    for row, ours in zip(document["rows"], rows, strict=True):
        assert row["scores"] == {name: ours["scores"][name] for name in ("exact", "f1")}
        assert {"legacy_exact", "legacy_f1", "HasAns_legacy_f1", "NoAns_legacy_f1"} <= set(row["legacy"])
        assert all(0 <= score <= 100 for score in row["legacy"].values())
    text = call("evaluate", squad_run, "--decode", "legacy").out.splitlines()
    assert len(text) == 1 + len(rows) + 1
    assert len({len(line) for line in text[:-1]}) == 1
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    shutil.rmtree(run / "encoder")  # without the tokenizer, gold answers are taken from the windows
    assert call("evaluate", run, "--decode", "legacy", "--json").document() == document


def test_decode_legacy_needs_a_span_task(call: Call, text_run: Path) -> None:
    assert "expected a span task" in call("evaluate", text_run, "--decode", "legacy").refused()


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_model_of_a_run_has_the_temperatures_of_the_best_row(request: pytest.FixtureRequest, name: str) -> None:
    run = request.getfixturevalue(name)
    config = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))
    first = board(run)["rows"][0]
    assert config["temperatures"] == {what: values["temperature"] for what, values in first["calibration"].items()}
    assert config["temperatures"]
    assert board(run)["basis"]["of"] == ("contexts" if name == "squad_run" else "rows")
