"""The command line as a user meets it: exit codes, one line for what is wrong, JSON, and whole runs."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import bertvision
from bertvision.cli import inspect
from bertvision.cli.main import build_parser, main
from bertvision.config import read_recipe

TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Quito", "Delhi", "Minsk")
TONES = ("bad", "plain", "good")


class Said(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


Call = Callable[..., Said]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*words: object) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return Said(code, shown.out, shown.err)

    return called


def refused(said: Said, code: int = 2) -> str:
    """The one line that a command which failed has to say, and nothing on stdout."""
    assert (said.code, said.out) == (code, ""), said
    assert len(said.errors) == 1, said.err
    assert "Traceback" not in said.err
    return said.errors[0]


def document(said: Said) -> Any:
    """The one JSON document on stdout."""
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def question(name: str, person: str, town: str | None, context: str) -> dict[str, Any]:
    answers = [] if town is None else [{"text": town, "answer_start": context.index(town)}]
    return {"id": name, "question": f"where does {person} live", "answers": answers, "is_impossible": town is None}


def squad(prefix: str = "q", articles: int = 8) -> dict[str, Any]:
    """Articles of one paragraph with two questions, the second unanswerable."""
    data = []
    for number in range(articles):
        town = TOWNS[number % 8]
        context = f"Anna lives in {town}. The old town of {prefix} {number}."
        qas = [
            question(f"{prefix}{number}a", "Anna", town, context),
            question(f"{prefix}{number}b", "Ben", None, context),
        ]
        data.append({"title": f"{prefix} {number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": data}


def write_squad(path: Path, content: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps(squad() if content is None else content), encoding="utf-8")
    return path


def write_csv(path: Path, rows: int = 40, header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = [(f"the {TONES[i % 3]} old town of {TOWNS[i % 8]} {i}", TONES[i % 3]) for i in range(rows)]
        csv.writer(file).writerows([header, *lines])
    return path


# Usage


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "required: COMMAND; see bertvision --help"),
        (("rnu",), "invalid choice: 'rnu'"),
        (("run", "text"), "bertvision run: the following arguments are required: --out"),
        (("run", "--out", "x"), "bertvision run: the following arguments are required: TASK|RECIPE.toml"),
        (("tasks", "--jsn"), "unrecognized arguments: --jsn"),
        (("tasks", "extra"), "unrecognized arguments: extra"),
        (("run", "text", "--out", "x", "--seed", "1"), "unrecognized arguments: --seed 1"),
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
        (("evaluate", "nowhere"), "nowhere is no run"),
        (("store", "info", "nowhere"), "no finished store at nowhere"),
        (("predict", "nowhere", "--text", "t"), "no model at nowhere"),
        (("predict", "x"), "predict needs one of --question Q --context C, --text T [--pair T]"),
        (("predict", "x", "--text", "t", "--file", "f"), "predict needs one of"),
        (("heads", "--head", "compres"), "no head named 'compres'. Did you mean 'compress'?"),
        (("heads", "--head", "compress:size=x"), "size='x', expected int"),
        (("score", "squad2", "gold.json"), "score needs gold files and then one file of predictions"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_usage_is_one_line(
    call: Call, words: tuple[str, ...], reason: str, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = call(*words, *(["--json"] if as_json and words else []))
    assert reason in refused(said)
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    names = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert len(names or ()) > 12
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
    monkeypatch.setattr(inspect, "_tasks", broken(RuntimeError("out of\nluck")))
    assert refused(call("tasks"), 1) == "error: RuntimeError: out of luck"
    with pytest.raises(RuntimeError):
        call("tasks", "--debug")


def test_a_path_that_cannot_be_used_is_the_users_to_change(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    line = refused(call("demo", "--out", tmp_path / "file" / "run"))
    assert f"cannot use {tmp_path / 'file' / 'run'}" in line
    assert "Not a directory" in line


def test_an_interruption_is_not_a_failure(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "_tasks", broken(KeyboardInterrupt()))
    said = call("tasks")
    assert (said.code, said.out) == (130, "")
    assert "the same command goes on from here" in said.err


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


# Commands that tell


def test_tasks(call: Call) -> None:
    rows = {row["name"]: row["about"] for row in document(call("tasks", "--json"))["tasks"]}
    assert {"squad1", "squad2", "text"} <= set(rows)
    assert all(rows.values())
    assert rows["squad1"] != rows["squad2"]
    assert "squad2" in call("tasks").out


def test_encoders(call: Call) -> None:
    found = document(call("encoders", "--json"))
    assert found["embedded"] == ["minilm"]
    assert {"bert", "roberta", "distilbert"} <= {row["model_type"] for row in found["families"]}
    assert "minilm" in call("encoders").out


def test_heads(call: Call) -> None:
    rows = document(call("heads", "--json"))["heads"]
    assert {"learned-pool", "probe:layers=last1", "compress:size=64,skip=true"} <= {row["spec"] for row in rows}
    assert all(row["parameters"] > 0 and row["percent"] > 0 and row["source"] for row in rows)
    (pool,) = document(call("heads", "--head", "learned-pool", "--layers", 25, "--width", 1024, "--json"))["heads"]
    assert pool["parameters"] == 25 + 1 + 2 * 1025
    both = call("heads", "--heads", "probe", "mean-pool").out.splitlines()
    assert [line.split()[0] for line in both] == ["spec", "probe", "mean-pool"]


def test_heads_for_few_layers_are_those_that_fit(call: Call) -> None:
    specs = {row["spec"] for row in document(call("heads", "--layers", 3, "--json"))["heads"]}
    assert "probe" in specs
    assert "probe:layers=last4" not in specs
    assert "there are 3 states" in refused(call("heads", "--layers", 3, "--head", "probe:layers=last4"))


def test_doctor(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = document(call("doctor", "--json"))
    assert {"python", "torch", "transformers", "device", "threads", "minilm"} <= set(facts)
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "version", broken(importlib.metadata.PackageNotFoundError("x")))
    assert "not installed" in call("doctor").out


def test_score(call: Call, tmp_path: Path) -> None:
    gold = write_squad(tmp_path / "gold.json")
    said = tmp_path / "said.json"
    answers = {q["id"]: "" for article in squad()["data"] for q in article["paragraphs"][0]["qas"]}
    said.write_text(json.dumps(answers), encoding="utf-8")
    found = document(call("score", "squad2", gold, said, "--json"))
    assert (found["task"], found["n"]) == ("squad2", 16)
    assert (found["scores"]["exact"], found["scores"]["HasAns_f1"], found["scores"]["NoAns_f1"]) == (50.0, 0.0, 100.0)
    assert "exact" in call("score", "squad2", gold, said).out
    answers.pop("q0a")
    said.write_text(json.dumps(answers), encoding="utf-8")
    assert "have no prediction, the first is 'q0a'" in refused(call("score", "squad2", gold, said))
    said.write_text("{", encoding="utf-8")
    assert "not valid JSON" in refused(call("score", "squad2", gold, said))
    assert "cannot be read" in refused(call("score", "squad2", gold, tmp_path / "none.json"))


# Bad data


def first_question(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["data"][0]["paragraphs"][0]["qas"][0]
    return found


def wrong_offset(content: dict[str, Any]) -> None:
    first_question(content)["answers"][0]["answer_start"] += 1


def duplicate_id(content: dict[str, Any]) -> None:
    first_question(content)["id"] = "q1a"


def empty_context(content: dict[str, Any]) -> None:
    content["data"][0]["paragraphs"][0]["context"] = " "


def long_question(content: dict[str, Any]) -> None:
    first_question(content)["question"] = "where " * 90


SQUAD_CASES = [
    (wrong_offset, "answer is not at its offset", 1),
    (duplicate_id, "duplicate id", 1),
    (empty_context, "empty context", 2),
]


def extraction(data: Path, encoder: Path, task: str = "squad2") -> list[object]:
    return ["extract", task, "--train", data, "--to", data.parent / "store", "--encoder", encoder, "--max-length", 48]


@pytest.mark.parametrize(("change", "reason", "count"), SQUAD_CASES)
def test_bad_questions_are_refused_or_counted(
    call: Call, tmp_path: Path, tiny_encoder_folder: Path, change: Callable[[Any], None], reason: str, count: int
) -> None:
    content = squad()
    change(content)
    data = write_squad(tmp_path / "train.json", content)
    said = call(*extraction(data, tiny_encoder_folder))
    line = refused(said)
    assert said.err.count("\n") == 1
    assert f"{data}, data[" in line
    assert reason in line
    assert "--skip-bad" in line
    assert not (tmp_path / "store").exists()
    said = call(*extraction(data, tiny_encoder_folder), "--skip-bad")
    assert said.code == 0
    assert f"{count} bad rows left out: {reason} ({count})" in said.err


def test_a_question_longer_than_the_window(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    content = squad()
    long_question(content)
    data = write_squad(tmp_path / "train.json", content)
    line = refused(call(*extraction(data, tiny_encoder_folder)))
    assert "question 'q0a': question longer than the window: 90 tokens, at most 37 fit" in line
    assert "--max-length" in line
    assert not (tmp_path / "store").exists()
    said = call(*extraction(data, tiny_encoder_folder), "--skip-bad")
    assert said.code == 0
    assert "1 bad rows were skipped: question longer than the window (1)" in said.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b'{"data": [', "not JSON"),
        (b"[]", "expected SQuAD JSON"),
        (b'{"data": []}', "no questions in it"),
        ('{"data": "é"}'.encode("latin-1"), "not UTF-8: byte 0xe9"),
    ],
)
def test_a_broken_squad_file_is_never_skipped(
    call: Call, tmp_path: Path, tiny_encoder_folder: Path, content: bytes, reason: str
) -> None:
    data = tmp_path / "train.json"
    data.write_bytes(content)
    for more in ([], ["--skip-bad"]):
        said = call(*extraction(data, tiny_encoder_folder), *more)
        line = refused(said)
        assert said.err.count("\n") == 1
        assert str(data) in line
        assert reason in line


def test_a_file_that_is_not_there(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    assert "no such file" in refused(call(*extraction(tmp_path / "none.json", tiny_encoder_folder)))
    assert "this is a folder" in refused(call(*extraction(tmp_path, tiny_encoder_folder)))


def test_bad_rows_of_a_table(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = write_csv(tmp_path / "my.csv")
    lines = data.read_text(encoding="utf-8").splitlines()
    data.write_text("\n".join([*lines[:3], ",", "the old town,", *lines[3:], "a,b,c"]) + "\n", encoding="utf-8")
    line = refused(call(*extraction(data, tiny_encoder_folder, "text")))
    assert f"{data}, line 4: blank row" in line
    said = call(*extraction(data, tiny_encoder_folder, "text"), "--skip-bad")
    assert said.code == 0
    assert "3 bad rows left out" in said.err
    assert all(f"{reason} (1)" in said.err for reason in ("blank row", "missing label", "wrong number of cells"))


def test_a_table_without_the_column(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = write_csv(tmp_path / "my.csv", header=("text", "verdict"))
    words = extraction(data, tiny_encoder_folder, "text")
    for more in ([], ["--skip-bad"]):
        line = refused(call(*words, *more))
        assert "no column is called like a label; the file has: text, verdict; give --label-column" in line
    assert "no column 'stars'" in refused(call(*words, "--label-column", "stars"))
    assert call(*words, "--label-column", "verdict").code == 0


def test_a_table_in_another_encoding(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = write_csv(tmp_path / "my.csv")
    data.write_bytes(data.read_bytes() + "naïve,good\r\n".encode("cp1252"))
    words = extraction(data, tiny_encoder_folder, "text")
    for more in ([], ["--skip-bad"]):
        line = refused(call(*words, *more))
        assert "not utf-8: byte 0xef" in line
        assert "--encoding cp1252" in line
    assert "--encoding: got 'klingon'" in refused(call(*words, "--encoding", "klingon"))
    assert call(*words, "--encoding", "cp1252").code == 0


def test_an_option_of_another_task(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = write_squad(tmp_path / "train.json")
    line = refused(call(*extraction(data, tiny_encoder_folder), "--label-column", "x"))
    assert "no option of task 'squad2' named 'label_column'" in line


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--max-length", "65"], "--max-length 65 is more than encoder"),
        (["--max-length", "5"], "--max-length 5 leaves no room"),
        (["--max-length", "0"], "expected a whole number of at least 1"),
        (["--limit", "0"], "expected a whole number of at least 1"),
        (["--overlap", "-1"], "expected a whole number of at least 0"),
        (["--encoder", "./nowhere"], "no encoder folder at ./nowhere"),
        (["--set", "extract.dtype=f8"], "store dtype 'f8' is not known"),
        (["--layers", "last9"], "layers=last9: there are 3 states"),
        (["--set", "extract.device=abacus"], "device 'abacus' is not known"),
    ],
)
def test_settings_that_cannot_be_leave_nothing_behind(
    call: Call, tmp_path: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    data = write_squad(tmp_path / "train.json")
    assert reason in refused(call(*extraction(data, tiny_encoder_folder), *more))
    assert not (tmp_path / "store").exists()


# Whole runs

QUICK = ("--epochs", "1", "--heads", "mean-pool", "learned-pool", "--seeds", "0", "--set", "fit.epochs=2")
SQUAD_ROWS = {"encoder", "mean-pool", "learned-pool", "probe:layers=last1"}


def squad_words(folder: Path, encoder: Path) -> list[object]:
    files = ["--train", folder / "train.json", "--dev", folder / "dev.json"]
    return ["run", "squad2", *files, "--encoder", encoder, "--max-length", 48, "--overlap", 8, *QUICK]


def text_words(folder: Path, encoder: Path) -> list[object]:
    return ["run", "text", "--train", folder / "my.csv", "--encoder", encoder, "--max-length", 48, *QUICK]


def made_run(folder: Path, words: list[object]) -> Path:
    assert main([str(word) for word in [*words, "--out", folder / "run"]]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def squad_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squad-run")
    write_squad(folder / "train.json", squad("t"))
    write_squad(folder / "dev.json", squad("d", 3))
    return made_run(folder, squad_words(folder, tiny_encoder_folder))


@pytest.fixture(scope="module")
def text_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text-run")
    write_csv(folder / "my.csv")
    return made_run(folder, text_words(folder, tiny_encoder_folder))


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_a_run_leaves_what_it_promises(request: pytest.FixtureRequest, name: str) -> None:
    run = request.getfixturevalue(name)
    for child in ("recipe.toml", "log.jsonl", "encoder", "store", "heads", "predictions", "leaderboard.json", "model"):
        assert (run / child).exists(), child
    for path in ("store/manifest.json", "store/train", "store/inner", "store/dev", "heads/mean-pool/seed0/head.json"):
        assert (run / path).exists(), path
    board = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    assert board["split"] == "dev"
    assert {row["name"] for row in board["rows"] if row["kind"] != "ensemble"} == SQUAD_ROWS
    assert {row["kind"] for row in board["rows"]} == {"encoder", "head", "ensemble"}
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert steps[:4] == ["tune", "extract", "fit", "run"]
    assert read_recipe(run / "recipe.toml").heads == ("mean-pool", "learned-pool")
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize(("name", "words"), [("squad_run", squad_words), ("text_run", text_words)])
def test_the_same_run_again_does_nothing(
    call: Call,
    request: pytest.FixtureRequest,
    tiny_encoder_folder: Path,
    name: str,
    words: Callable[[Path, Path], list[object]],
) -> None:
    run = request.getfixturevalue(name)
    kept = [path for part in ("encoder", "store", "heads") for path in (run / part).rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in kept}
    board = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    said = call(*words(run.parent, tiny_encoder_folder), "--out", run, "--json")
    found = document(said)
    assert [line.partition(" (")[0] for line in said.err.splitlines() if "done before" in line] == [
        "tune: done before",
        "extract: done before",
        "fit: done before",
    ]
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    assert found == {**board, "run": str(run)}


def test_the_written_recipe_runs_again(call: Call, squad_run: Path) -> None:
    said = call("run", squad_run / "recipe.toml", "--out", squad_run)
    assert said.code == 0
    assert said.err.count("done before") == 3
    assert "learned-pool" in said.out


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--lr", "0.5"], "tune.lr is not set there and 0.5 here"),
        (["--max-length", "40"], "data.max_length is 48 there and 40 here"),
        (["--set", "extract.dtype=f32"], "extract.dtype is f16 there and f32 here"),
    ],
)
def test_another_recipe_in_the_same_folder_is_refused(
    call: Call, squad_run: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in squad_run.rglob("*")}
    line = refused(call(*squad_words(squad_run.parent, tiny_encoder_folder), *more, "--out", squad_run))
    assert f"{squad_run} holds another run: {reason}; choose another --out" in line
    assert {path: path.stat().st_mtime_ns for path in squad_run.rglob("*")} == before


def test_a_folder_with_something_else_is_refused(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    write_csv(tmp_path / "my.csv")
    words = text_words(tmp_path, tiny_encoder_folder)
    assert "is not empty and holds no run" in refused(call(*words, "--out", tmp_path))
    assert "is not empty and holds no run" in refused(call(*words, "--out", tmp_path / "my.csv"))
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
def test_what_cannot_be_fitted_is_said_before_the_encoder_is_tuned(
    call: Call, tmp_path: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    write_squad(tmp_path / "train.json", squad("t"))
    write_squad(tmp_path / "dev.json", squad("d", 3))
    words = squad_words(tmp_path, tiny_encoder_folder)
    assert reason in refused(call(*words, *more, "--out", tmp_path / "run"))
    assert not (tmp_path / "run" / "encoder").exists()


def test_evaluate_fit_and_store_info(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    rows = {row["name"] for row in document(call("evaluate", run, "--json"))["rows"]}
    assert rows >= SQUAD_ROWS
    more = document(call("fit", run / "store", "--head", "compress:size=4", "--set", "fit.epochs=1", "--json"))
    assert {row["name"] for row in more["rows"]} >= {*SQUAD_ROWS, "compress:size=4"}
    info = document(call("store", "info", run / "store", "--json"))
    assert set(info["splits"]) == {"train", "inner", "dev"}
    assert info["layers"] == [0, 1, 2]
    assert "windows" in call("store", "info", run / "store").out
    assert "learned-pool" in call("evaluate", run).out


def test_the_steps_one_by_one(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    """tune, extract and fit end in the same model as run."""
    data = write_csv(tmp_path / "my.csv")
    run = tmp_path / "run"
    task = ["text", "--train", data, "--max-length", 48]
    tuned = document(call("tune", *task, "--encoder", tiny_encoder_folder, "--epochs", 1, "--out", run, "--json"))
    assert tuned["tune"]["steps"] > 0
    stored = document(call("extract", *task, "--encoder", run / "encoder", "--to", run / "store", "--json"))
    assert stored["splits"]["train"]["windows"] > 0
    assert call("fit", run / "store", "--head", "mean-pool", "--set", "fit.epochs=1").code == 0
    assert document(call("predict", run / "model", "--text", "the good old town", "--json"))["label"] in TONES


def test_flags_give_way_to_set(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = write_csv(tmp_path / "my.csv")
    words = [*extraction(data, tiny_encoder_folder, "text"), "--dtype", "f16", "--set", "extract.dtype=f32"]
    assert call(*words).code == 0
    assert document(call("store", "info", tmp_path / "store", "--json"))["dtype"] == "f32"


def test_heads_of_another_store_are_not_judged_on_this_one(
    call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    for name, rows in (("one", 40), ("two", 50)):
        (tmp_path / name).mkdir()
        assert call(*extraction(write_csv(tmp_path / name / "my.csv", rows), tiny_encoder_folder, "text")).code == 0
    words = ["--set", "fit.epochs=1", "--out", tmp_path / "run", "--json"]
    assert call("fit", tmp_path / "one" / "store", "--head", "mean-pool", *words).code == 0
    rows = document(call("fit", tmp_path / "two" / "store", "--head", "probe", *words))["rows"]
    assert [row["name"] for row in rows] == ["probe"]


def test_a_store_that_belongs_to_no_run_needs_out(call: Call, tmp_path: Path, squad_run: Path) -> None:
    lone = Path(shutil.copytree(squad_run / "store", tmp_path / "states"))
    assert "give --out RUN" in refused(call("fit", lone))
    assert [child.name for child in tmp_path.iterdir()] == ["states"]


def test_no_model_is_saved_with_an_encoder_that_the_heads_do_not_know(
    call: Call, text_run: Path, tiny_encoder_folder: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(text_run, tmp_path / "run"))
    shutil.rmtree(run / "model")
    data = write_csv(tmp_path / "my.csv")
    words = ["tune", "text", "--train", data, "--max-length", 48, "--encoder", tiny_encoder_folder, "--epochs", 2]
    assert call(*words, "--out", run).code == 0
    said = call("evaluate", run)
    assert said.code == 0
    assert "no model saved" in said.err
    assert not (run / "model").exists()


# Asking a model


def test_asking_one_question(call: Call, squad_run: Path) -> None:
    asked = ["predict", squad_run / "model", "--question", "where does Anna live", "--context", "Anna lives in Rome."]
    answer = document(call(*asked, "--json"))
    assert set(answer) == {"answer", "score", "start", "end", "no_answer_probability"}
    assert answer["answer"] == "Anna lives in Rome."[answer["start"] : answer["end"]]
    assert json.loads(call(*asked).out) == answer
    several = document(call(*asked, "--top-k", 3, "--json"))
    assert several[0] == answer
    assert len(several) == 3


def test_asking_for_one_label(call: Call, text_run: Path) -> None:
    answer = document(call("predict", text_run / "model", "--text", "the good old town", "--json"))
    assert answer["label"] in TONES
    assert set(answer["scores"]) == set(TONES)
    assert sum(answer["scores"].values()) == pytest.approx(1)


def test_asking_a_file(call: Call, squad_run: Path, tmp_path: Path) -> None:
    """A line separator inside a text is no new line; a byte order mark is no text."""
    contexts = ["Anna lives in Rome.", "Ben lives\u2028in Oslo.\u0085 So does Anna", "Cleo lives in Lima"]
    rows = [{"question": "where does Anna live", "context": context, "id": i} for i, context in enumerate(contexts)]
    path = tmp_path / "in.jsonl"
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(f"\ufeff{lines}\n\n".encode())
    answers = document(call("predict", squad_run / "model", "--file", path, "--json"))
    assert len(answers) == 3
    for answer, context in zip(answers, contexts, strict=True):
        assert answer["answer"] == context[answer["start"] : answer["end"]]
    printed = call("predict", squad_run / "model", "--file", path).out.split("\n")
    assert [json.loads(line) for line in printed[:-1]] == answers
    alone = document(
        call("predict", squad_run / "model", "--question", rows[2]["question"], "--context", contexts[2], "--json")
    )
    assert alone["answer"] == answers[2]["answer"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "got 7, expected an object with 'question'"),
        ('{"question": "who"}', "'context' is None, expected a text"),
        ('{"question": "who", "context": 3}', "'context' is 3, expected a text"),
        ('{"question": "who", "context": " "}', "'context' is ' ', expected a text"),
        ('{"question": "", "context": "x"}', "'question' is '', expected a text"),
        ('{"text": "who"}', "'question' is None, expected a text"),
        ('{"question": "who", "context": "\\ud83d"}', "which is not valid Unicode"),
    ],
)
def test_a_bad_line_is_named(call: Call, squad_run: Path, tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "in.jsonl"
    good = json.dumps({"question": "who", "context": "Anna"})
    path.write_text(f"{good}\n{line}\n{good}\n", encoding="utf-8")
    said = refused(call("predict", squad_run / "model", "--file", path))
    assert f"{path}, line 2: " in said
    assert reason in said


def test_files_that_cannot_be_asked(call: Call, squad_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    assert "cannot read" in refused(call("predict", squad_run / "model", "--file", path))
    path.write_bytes(b"\n \n")
    assert "has no lines" in refused(call("predict", squad_run / "model", "--file", path))
    path.write_bytes('{"question": "é"}'.encode("latin-1"))
    assert "expected UTF-8 JSON lines" in refused(call("predict", squad_run / "model", "--file", path))


def test_asking_the_wrong_way(call: Call, squad_run: Path, text_run: Path, tmp_path: Path) -> None:
    qa, labels = squad_run / "model", text_run / "model"
    assert "this model is for questions: give --question Q --context C" in refused(call("predict", qa, "--text", "x"))
    assert "give --question Q --context C" in refused(call("predict", qa, "--question", "x"))
    assert "--context is ' ', expected a text" in refused(call("predict", qa, "--question", "x", "--context", " "))
    assert "this model is for texts: give --text T [--pair T]" in refused(call("predict", labels, "--question", "x"))
    assert "--text is '', expected a text" in refused(call("predict", labels, "--text", ""))
    assert "not valid Unicode" in refused(call("predict", labels, "--text", "a\udcff"))
    line = refused(call("predict", qa, "--question", "where " * 90, "--context", "Anna lives in Rome"))
    assert "question '1': question longer than the window: 90 tokens, at most 37 fit" in line
    assert "--skip-bad" not in line
    (tmp_path / "config.json").write_text("{}")
    assert "is not a BERTVision model" in refused(call("predict", tmp_path, "--text", "x"))


def test_pairs_and_texts_in_one_file_do_not_change_each_other(call: Call, text_run: Path, tmp_path: Path) -> None:
    rows = [{"text": "the good old town"}, {"text": "the bad old town", "pair": "of Rome"}, {"text": "plain"}]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    together = document(call("predict", text_run / "model", "--file", path, "--json"))
    alone = document(call("predict", text_run / "model", "--text", rows[0]["text"], "--json"))
    assert together[0]["scores"] == pytest.approx(alone["scores"], abs=1e-5)
