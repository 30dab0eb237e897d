"""Exit codes, and one line for whatever is wrong with a command."""

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
    ("words", "reason"),
    [
        ((), "required: COMMAND; see bertvision --help"),
        (("rnu",), "invalid choice: 'rnu'"),
        (("run", "text"), "bertvision run: the following arguments are required: --out"),
        (("run", "--out", "x"), "bertvision run: the following arguments are required: TASK|RECIPE.toml"),
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
def test_bad_usage_is_one_line(
    call: Call, words: tuple[str, ...], reason: str, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = call(*words, *(["--json"] if as_json and words else []))
    assert reason in said.refused()
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    names = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert len(names or ()) > 12
    assert set(names or ()) == set(COMMANDS)
    for words in ([], *([name] for name in names or ())):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr()
        assert "usage: bertvision" in shown.out
        assert shown.err == ""


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"bertvision {bertvision.__version__}\n"


def broken(error: BaseException) -> Callable[[Any], Any]:
    def run(options: Any) -> Any:
        raise error

    return run


def test_a_failure_is_one_line_and_exit_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "tasks", broken(RuntimeError("out of\nluck")))
    assert call("tasks").refused(1) == "error: RuntimeError: out of luck"
    with pytest.raises(RuntimeError):
        call("tasks", "--debug")


def test_a_path_that_cannot_be_used_is_the_users_to_change(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    line = call("demo", "--out", tmp_path / "file" / "run").refused()
    assert f"cannot use {tmp_path / 'file' / 'run'}" in line
    assert "Not a directory" in line


def test_an_interruption_is_not_a_failure(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "tasks", broken(KeyboardInterrupt()))
    said = call("tasks")
    assert (said.code, said.out) == (130, "")
    assert "interrupted; rerun the same command to resume" in said.err


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "bertvision", "tasks", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "squad2" in {row["name"] for row in json.loads(done.stdout)["tasks"]}


def test_a_reader_that_stops_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "bertvision", "tasks"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
