"""Exit codes, and one line per usage error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertvision
from bertvision.cli.main import COMMANDS, build_parser, main

Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "required: COMMAND; see bertvision --help"),
        (("rnu",), "invalid choice: 'rnu'"),
        (("run", "text"), "bertvision run: the following arguments are required: --out"),
        (("run", "--out", "x"), "bertvision run: the following arguments are required: TASK|RECIPE.toml|TABLE.csv"),
        (("run", "none.toml"), "bertvision run: the following arguments are required: --out (only a table"),
        (("run", "none.csv"), "none.csv: no such file; check the path"),
        (("run", "none.csv", "--out", "x"), "none.csv: no such file; check the path"),
        (
            ("run", "none.txt"),
            "none.txt: no such file; expected the name of a task, a recipe (.toml) or a table (.csv, ",
        ),
        (("tune", "some/reviews", "--out", "x"), "some/reviews: no such file; expected the name of a task, a recipe"),
        (("plan", "none.parquet"), "none.parquet: no such file"),
        (("extract", "none.tsv", "--to", "x"), "none.tsv: no such file"),
        (("search", "none.jsonl", "--out", "x"), "none.jsonl: no such file"),
        (("costs", "none.csv", "--encoders", "x"), "none.csv: no such file"),
        (("tasks", "--jsn"), "bertvision tasks: unrecognized arguments: --jsn (did you mean --json?)"),
        (("tasks", "extra"), "unrecognized arguments: extra; see bertvision tasks --help"),
        (("run", "text", "--out", "x", "--seed", "1"), "--seed 1 (did you mean --seeds?); see bertvision run --help"),
        (("search", "nowhere"), "search needs --out RUN, or a run folder instead of TASK; no folder named nowhere"),
        (("run", "text", "--out", "x", "--seeds", "1,b"), "got '1,b', expected whole numbers such as 0,1,2"),
        (("run", "text", "--out", "x", "--epochs", "few"), "invalid float value: 'few'"),
        (("extract", "text", "--to", "x", "--dtype", "f8"), "invalid choice: 'f8'"),
        (("heads", "--layers", "0"), "got '0', expected a whole number of at least 1"),
        (("heads", "--width", "-3"), "got '-3', expected a whole number of at least 1"),
        (("predict", "x", "--text", "t", "--top-k", "0"), "got '0', expected a whole number of at least 1"),
        (("store", "verfy", "x"), "invalid choice: 'verfy'"),
        (("run", "sqad2", "--out", "x"), "no task named 'sqad2'. Did you mean 'squad2'?"),
        (("run", "text", "--out", "x"), "task text needs --train FILE"),
        (("run", "text", "--out", "x", "--heads", "prob"), "no head named 'prob'. Did you mean 'probe'?"),
        (("run", "text", "--out", "x", "--set", "fit.lrr=1"), "no setting named 'lrr'. Did you mean 'lr'?"),
        (("run", "text", "--out", "x", "--set", "tune.batch=0"), "tune.batch is 0; expected at least 1"),
        (("run", "none.toml", "--out", "x"), "cannot read recipe none.toml: No such file"),
        (("fit", "nowhere"), "no finished store at nowhere"),
        (("evaluate", "nowhere"), "nowhere is not a run"),
        (("store", "info", "nowhere"), "no finished store at nowhere"),
        (("predict", "nowhere", "--text", "t"), "no model at nowhere"),
        (("predict", "x"), "predict needs one of --question Q --context C, --text T [--pair T]"),
        (("predict", "x", "--text", "t", "--file", "f"), "predict needs one of"),
        (("heads", "--head", "compres"), "no head named 'compres'. Did you mean 'compress'?"),
        (("heads", "--head", "compress:size=x"), "size='x', expected int"),
        (("score", "squad2", "gold.json"), "score needs gold files and one predictions file"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_usage_is_a_one_line_error(
    call: Call, arguments: tuple[str, ...], reason: str, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments, *(["--json"] if as_json and arguments else []))
    assert reason in result.refused()
    assert result.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    names = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert len(names or ()) > 12
    assert set(names or ()) == set(COMMANDS)
    for arguments in ([], *([name] for name in names or ())):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr()
        assert "usage: bertvision" in shown.out
        assert shown.err == ""


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"bertvision {bertvision.__version__}\n"


def raising(error: BaseException) -> Callable[[Any], Any]:
    def run(options: Any) -> Any:
        raise error

    return run


def test_failure_is_a_one_line_error_and_exit_code_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "tasks", raising(RuntimeError("out of\nmemory")))
    assert call("tasks").refused(1) == "error: RuntimeError: out of memory"
    with pytest.raises(RuntimeError):
        call("tasks", "--debug")


def test_unusable_path_is_a_usage_error(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    line = call("demo", "--out", tmp_path / "file" / "run").refused()
    assert f"cannot use {tmp_path / 'file' / 'run'}" in line
    assert "Not a directory" in line


def test_interrupt_is_exit_code_130(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "tasks", raising(KeyboardInterrupt()))
    result = call("tasks")
    assert (result.code, result.out) == (130, "")
    assert "interrupted; rerun the same command to resume" in result.err


def test_python_m_bertvision_runs_the_command() -> None:
    command = [sys.executable, "-m", "bertvision", "tasks", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (process.returncode, process.stderr) == (0, "")
    assert "squad2" in {row["name"] for row in json.loads(process.stdout)["tasks"]}


def test_closed_stdout_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "bertvision", "tasks"]
    process = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, "")
