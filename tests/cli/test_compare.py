"""A finished run looked at again: two of its rows, and the paper's decoding."""

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
def test_rows_that_the_board_compares_come_out_the_same(call: Call, request: pytest.FixtureRequest, name: str) -> None:
    run = request.getfixturevalue(name)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for one in board(run)["comparisons"]:
        found = call("evaluate", run, "--compare", one["a"], one["b"], "--json").document()
        same = ("a", "b", "difference", "low", "high", "p", "a_seeds", "b_seeds")
        assert {key: found[key] for key in same} == {key: one[key] for key in same}
        assert found["split"] == "dev"
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_one_seed_is_named_by_its_number(call: Call, squad_run: Path) -> None:
    said = call("evaluate", squad_run, "--compare", "mean-pool@0", CONTROL)
    assert said.out.startswith(f"mean-pool@0 minus {CONTROL}: f1 ")
    assert "(paired, 3 contexts; not corrected for other comparisons)" in said.out
    same = call("evaluate", squad_run, "--compare", "encoder", "encoder", "--json").document()
    assert (same["difference"], same["p"]) == (0.0, 1.0)


def test_rows_that_cannot_be_compared_are_an_error(call: Call, squad_run: Path, tmp_path: Path) -> None:
    line = call("evaluate", squad_run, "--compare", "mean-poo", "encoder").refused()
    assert "no row named 'mean-poo'. Did you mean 'mean-pool'?" in line
    assert "not allowed with" in call("evaluate", squad_run, "--compare", "a", "b", "--decode", "legacy").refused()
    assert "is not a run" in call("evaluate", tmp_path, "--compare", "a", "b").refused()
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    (run / "predictions" / "encoder.json").unlink()
    assert "has no predictions of encoder" in call("evaluate", run, "--compare", "encoder", CONTROL).refused()


def test_the_decoding_of_the_paper(call: Call, squad_run: Path, tmp_path: Path) -> None:
    found = call("evaluate", squad_run, "--decode", "legacy", "--json").document()
    rows = board(squad_run)["rows"]
    assert [(row["name"], row["seed"]) for row in found["rows"]] == [(row["name"], row["seed"]) for row in rows]
    for row, ours in zip(found["rows"], rows, strict=True):
        assert row["scores"] == {name: ours["scores"][name] for name in ("exact", "f1")}
        assert {"legacy_exact", "legacy_f1", "HasAns_legacy_f1", "NoAns_legacy_f1"} <= set(row["legacy"])
        assert all(0 <= score <= 100 for score in row["legacy"].values())
    text = call("evaluate", squad_run, "--decode", "legacy").out.splitlines()
    assert len(text) == 1 + len(rows) + 1
    assert len({len(line) for line in text[:-1]}) == 1
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    shutil.rmtree(run / "encoder")  # without its tokenizer gold answers are cut as the windows are
    assert call("evaluate", run, "--decode", "legacy", "--json").document() == found


def test_only_spans_have_another_decoding(call: Call, text_run: Path) -> None:
    assert "expected a span task" in call("evaluate", text_run, "--decode", "legacy").refused()


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_a_runs_model_has_the_temperatures_of_its_row(request: pytest.FixtureRequest, name: str) -> None:
    run = request.getfixturevalue(name)
    config = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))
    first = board(run)["rows"][0]
    assert config["temperatures"] == {what: one["temperature"] for what, one in first["calibration"].items()}
    assert config["temperatures"]
    assert board(run)["basis"]["of"] == ("contexts" if name == "squad_run" else "rows")
