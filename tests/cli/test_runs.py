"""Whole runs: the files that they write, skipping of finished steps, and refusals."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import read_recipe

Call = Callable[..., Any]
SQUAD_ROWS = {"encoder", "mean-pool", "learned-pool", "probe:layers=last1"}
TEXT_ROWS = {"encoder", "mean-pool", "learned-pool", "ridge:layers=last1", "ridge:layers=last1,read=cls"}


@pytest.mark.parametrize(("name", "rows"), [("squad_run", SQUAD_ROWS), ("text_run", TEXT_ROWS)])
def test_run_writes_all_documented_files_and_rows(request: pytest.FixtureRequest, name: str, rows: set[str]) -> None:
    run = request.getfixturevalue(name)
    for child in ("recipe.toml", "log.jsonl", "encoder", "store", "heads", "predictions", "leaderboard.json", "model"):
        assert (run / child).exists(), child
    for path in ("store/manifest.json", "store/train", "store/inner", "store/dev", "heads/mean-pool/seed0/head.json"):
        assert (run / path).exists(), path
    board = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    assert board["split"] == "dev"
    assert {row["name"] for row in board["rows"] if row["kind"] != "ensemble"} == rows
    controls = [row["name"] for row in board["rows"] if row["control"]]
    assert controls == [board.get("control", "probe:layers=last1")]
    titles = [row["name"] if row["seed"] is None else f"{row['name']}@{row['seed']}" for row in board["rows"]]
    assert board["recommended"] in titles
    assert f"Use {board['recommended']}: " in board["advice"]
    assert board["selection"]["split"] == "inner", "the encoder was tuned"
    assert {row["kind"] for row in board["rows"]} == {"encoder", "head", "ensemble"}
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert steps[:5] == ["tune", "extract", "fit", "command", "run"]
    assert read_recipe(run / "recipe.toml").heads == ("mean-pool", "learned-pool")
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize(("name", "make_command"), [("squad_run", "squad_words"), ("text_run", "text_words")])
def test_same_run_again_skips_every_step(
    samples: Any,
    call: Call,
    request: pytest.FixtureRequest,
    tiny_encoder_folder: Path,
    name: str,
    make_command: str,
) -> None:
    run = request.getfixturevalue(name)
    files = [path for part in ("encoder", "store", "heads") for path in (run / part).rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in files}
    board = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    result = call(*getattr(samples, make_command)(run.parent, tiny_encoder_folder), "--out", run, "--json")
    document = result.document()
    assert [line.partition(" (")[0] for line in result.err.splitlines() if "already done" in line] == [
        "tune: already done, skipping",
        "extract: already done, skipping",
        "fit: already done, skipping",
    ]
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert document == {**board, "run": str(run)}


def test_written_recipe_runs_again(call: Call, squad_run: Path) -> None:
    result = call("run", squad_run / "recipe.toml", "--out", squad_run)
    assert result.code == 0
    assert result.err.count("already done") == 3
    assert "learned-pool" in result.out


def test_same_files_by_another_path_are_the_same_run(
    samples: Any, call: Call, squad_run: Path, tiny_encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(squad_run.parent)
    command = samples.squad_words(squad_run.parent, tiny_encoder_folder)
    shorter = [os.path.relpath(word) if Path(str(word)).is_file() else word for word in command]
    assert shorter != command
    result = call(*shorter, "--out", squad_run)
    assert (result.code, result.err.count("already done")) == (0, 3)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--lr", "0.5"], "tune.lr is not set there and 0.5 here"),
        (["--max-length", "40"], "data.max_length is 48 there and 40 here"),
        (["--set", "extract.dtype=f32"], "extract.dtype is f16 there and f32 here"),
    ],
)
def test_another_recipe_in_the_same_folder_is_refused(
    samples: Any, call: Call, squad_run: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in squad_run.rglob("*")}
    line = call(*samples.squad_words(squad_run.parent, tiny_encoder_folder), *more, "--out", squad_run).refused()
    assert f"{squad_run} holds another run: {reason}; choose another folder with --out" in line
    assert {path: path.stat().st_mtime_ns for path in squad_run.rglob("*")} == before


def test_invalid_method_creates_no_folder(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    samples.write_csv(tmp_path / "my.csv")
    command, out = samples.text_words(tmp_path, tiny_encoder_folder), tmp_path / "run"
    line = call(*command, "--method", "adapters:share=0+0+1", "--out", out).refused()
    assert "has groups for 3 layers, this encoder has 2" in line
    assert not out.exists()


def test_tuning_refuses_to_overwrite_its_base(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    """The error comes before tuning, not after it."""
    samples.write_csv(tmp_path / "my.csv")
    base = tmp_path / "run" / "encoder"
    shutil.copytree(tiny_encoder_folder, base)
    command = samples.text_words(tmp_path, base)
    command = ["tune", *command[1 : command.index("--heads")]]
    result = call(*command, "--method", "bitfit", "--out", tmp_path / "run")
    assert "contains the base of this encoder and cannot be overwritten" in result.refused()
    assert "steps" not in result.err


def test_folder_that_is_not_a_run_is_refused(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    samples.write_csv(tmp_path / "my.csv")
    command = samples.text_words(tmp_path, tiny_encoder_folder)
    assert "is not empty and not a run" in call(*command, "--out", tmp_path).refused()
    assert "is not empty and not a run" in call(*command, "--out", tmp_path / "my.csv").refused()
    assert [child.name for child in tmp_path.iterdir()] == ["my.csv"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--heads", "probe:layers=last4"], "there are 3 states"),
        (["--heads", "probe:read=mean"], "spans read every token"),
        (["--encoder", "./nowhere"], "no encoder folder"),
        (["--tune-head", "prob"], "Did you mean 'probe'"),
        (["--method", "ful"], "no tune method named 'ful'. Did you mean 'full'?"),
    ],
)
def test_invalid_heads_are_reported_before_tuning(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    samples.write_squad(tmp_path / "train.json", samples.squad("t"))
    samples.write_squad(tmp_path / "dev.json", samples.squad("d", 3))
    command = samples.squad_words(tmp_path, tiny_encoder_folder)
    assert reason in call(*command, *more, "--out", tmp_path / "run").refused()
    assert not (tmp_path / "run" / "encoder").exists()


@pytest.mark.parametrize(("name", "make_command"), [("squad_run", "squad_words"), ("text_run", "text_words")])
def test_live_run_scores_the_same_and_stores_no_states(
    samples: Any,
    call: Call,
    request: pytest.FixtureRequest,
    tiny_encoder_folder: Path,
    tmp_path: Path,
    name: str,
    make_command: str,
) -> None:
    stored = request.getfixturevalue(name)
    live = tmp_path / "live"
    command = getattr(samples, make_command)(stored.parent, tiny_encoder_folder)
    document = call(*command, "--live", "--out", live, "--json").document()
    wanted = json.loads((stored / "leaderboard.json").read_text(encoding="utf-8"))
    assert _untimed(document) == _untimed(wanted)
    assert not list(live.rglob("shard-*"))
    assert (live / "model" / "config.json").exists()
    assert (live / "report.html").exists()
    evaluated = call("evaluate", live, "--json").document()
    assert _untimed(evaluated) == _untimed(wanted)
    assert "holds no states (its run was live" in call("fit", live / "store", "--head", "probe").refused()


def _untimed(board: dict[str, Any]) -> dict[str, Any]:
    """Rows by name, without how long they took."""
    return {row["name"]: {key: value for key, value in row.items() if key != "seconds"} for row in board["rows"]}
