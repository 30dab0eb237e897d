"""The steps as single commands, each using what earlier ones wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]
TONES = ("bad", "plain", "good")
TEXT_CONTROLS = {"ridge:layers=last1", "ridge:layers=last1,read=cls"}
SQUAD_ROWS = {"encoder", "mean-pool", "learned-pool", "probe:layers=last1"}


def test_evaluate_fit_and_store_info_work_on_a_finished_run(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    rows = {row["name"] for row in call("evaluate", run, "--json").document()["rows"]}
    assert rows >= SQUAD_ROWS
    more = call("fit", run / "store", "--head", "compress:size=4", "--set", "fit.epochs=1", "--json").document()
    assert {row["name"] for row in more["rows"]} >= {*SQUAD_ROWS, "compress:size=4"}
    info = call("store", "info", run / "store", "--json").document()
    assert set(info["splits"]) == {"train", "inner", "dev"}
    assert info["layers"] == [0, 1, 2]
    assert "windows" in call("store", "info", run / "store").out
    assert "learned-pool" in call("evaluate", run).out


def test_single_steps_end_in_a_model(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    """tune, extract and fit end in the same model as run."""
    data = samples.write_csv(tmp_path / "my.csv")
    run = tmp_path / "run"
    task = ["text", "--train", data, "--max-length", 48]
    tuned = call("tune", *task, "--encoder", tiny_encoder_folder, "--epochs", 1, "--out", run, "--json").document()
    assert tuned["tune"]["steps"] > 0
    stored = call("extract", *task, "--encoder", run / "encoder", "--to", run / "store", "--json").document()
    assert stored["splits"]["train"]["windows"] > 0
    board = call("fit", run / "store", "--head", "mean-pool", "--set", "fit.epochs=1", "--json").document()
    assert {"mean-pool", *TEXT_CONTROLS, "encoder"} <= {row["name"] for row in board["rows"]}, "and the controls"
    assert call("predict", run / "model", "--text", "the good old town", "--json").document()["label"] in TONES


def test_ensemble_combines_any_rows_and_saves_the_model(call: Call, squad_run: Path, tmp_path: Path) -> None:
    board = call("ensemble", squad_run, "--json").document()
    assert [row["kind"] for row in board["rows"]].count("ensemble") == 1
    assert {"encoder", "head", "ensemble"} == {row["kind"] for row in board["rows"]}
    command = ["ensemble", squad_run, "--members", "mean-pool@0", "learned-pool", "--how", "max"]
    saved = call(*command, "--save", tmp_path / "model")
    assert "max(mean-pool@0 + learned-pool@" in saved.out
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert (config["combine"], len(config["members"])) == ("max", 2)
    answer = call("predict", tmp_path / "model", "--question", "who", "--context", "Anna lives here.", "--json")
    assert "answer" in answer.document()
    assert "Did you mean 'mean-pool'" in call("ensemble", squad_run, "--members", "mean-pol", "encoder").refused()
    assert "needs at least 2 members" in call("ensemble", squad_run, "--members", "encoder").refused()


def test_set_overrides_flags(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    command = [*samples.extraction(data, tiny_encoder_folder, "text"), "--dtype", "f16", "--set", "extract.dtype=f32"]
    assert call(*command).code == 0
    assert call("store", "info", tmp_path / "store", "--json").document()["dtype"] == "f32"


def test_heads_of_another_store_are_not_scored_on_this_one(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    for name, rows in (("one", 40), ("two", 50)):
        (tmp_path / name).mkdir()
        assert (
            call(
                *samples.extraction(samples.write_csv(tmp_path / name / "my.csv", rows), tiny_encoder_folder, "text")
            ).code
            == 0
        )
    options = ["--set", "fit.epochs=1", "--out", tmp_path / "run", "--json"]
    assert call("fit", tmp_path / "one" / "store", "--head", "mean-pool", *options).code == 0
    rows = call("fit", tmp_path / "two" / "store", "--head", "probe", *options).document()["rows"]
    assert {row["name"] for row in rows} == {"probe", *TEXT_CONTROLS, "weighted(every head)"}


def test_fit_on_a_store_without_a_run_needs_out(call: Call, tmp_path: Path, squad_run: Path) -> None:
    lone = Path(shutil.copytree(squad_run / "store", tmp_path / "states"))
    assert "choose an output folder with --out RUN" in call("fit", lone).refused()
    assert [child.name for child in tmp_path.iterdir()] == ["states"]


def test_no_model_is_saved_if_the_encoder_was_replaced(
    samples: Any, call: Call, text_run: Path, tiny_encoder_folder: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(text_run, tmp_path / "run"))
    shutil.rmtree(run / "model")
    data = samples.write_csv(tmp_path / "my.csv")
    command = ["tune", "text", "--train", data, "--max-length", 48, "--encoder", tiny_encoder_folder, "--epochs", 2]
    assert call(*command, "--out", run).code == 0
    result = call("evaluate", run)
    assert result.code == 0
    assert "no model saved" in result.err
    assert not (run / "model").exists()


def test_curve_and_from_store_cannot_be_combined(samples: Any, call: Call, tmp_path: Path) -> None:
    command = ["tune", "text", "--train", samples.write_csv(tmp_path / "my.csv"), "--out", tmp_path / "run"]
    line = call(*command, "--curve", "0,1", "--from-store", "--method", "freeze:k=1").refused()
    assert "--curve and --from-store cannot be combined" in line
