"""GLUE from the command line: data options, settings of each task, and submission files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertvision.cli.main import build_parser, main
from bertvision.cli.options import recipe_from
from bertvision.core.config import Recipe, built_in_recipe
from bertvision.encoders.loading import Encoder
from bertvision.model import Model, TextClassifier
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.tasks.task import Task, task_defaults

ROWS = ["index\tsentence1\tsentence2\tlabel"] + [
    f"{i}\tthe {'good' if i % 2 else 'bad'} old town {i}\tthe town\t{'entailment' if i % 2 else 'not_entailment'}"
    for i in range(40)
]


@pytest.fixture
def rte(tmp_path: Path) -> Path:
    """An official folder with all three files."""
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for split, rows in (("train", ROWS), ("dev", ROWS[:13]), ("test", [row.rpartition("\t")[0] for row in ROWS[:6]])):
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder.parent


def recipe(*arguments: str) -> Recipe:
    return recipe_from(build_parser().parse_args(["tune", *arguments, "--out", "x"]))


def test_glue_tasks_have_their_own_tuning_settings() -> None:
    plain = recipe("rte", "--data", "glue")
    assert (plain.tune.lr, plain.tune.bert_lr, plain.tune.batch, plain.tune.epochs) == (None, 2e-5, 16, 1.0)
    assert (plain.data.data, plain.data.hub) == ("glue", None)
    assert recipe("qqp", "--hub", "nyu-mll/glue").data.hub == "nyu-mll/glue"
    for name, record in GLUE.items():
        tune = built_in_recipe(name, recipe_defaults).tune
        assert (tune.bert_lr, tune.batch) == (record.lr, record.batch)


def test_other_and_unknown_tasks_have_no_settings_of_their_own() -> None:
    assert recipe("squad2").tune == built_in_recipe("squad2").tune
    assert dict(task_defaults("squad2")) == dict(task_defaults("no-such-task")) == {}


def test_recipe_flag_and_set_override_the_settings_of_the_task(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('task = "mnli"\n[tune]\nlr = 3e-5\n', encoding="utf-8")
    assert (recipe(str(file)).tune.lr, recipe(str(file)).tune.batch) == (3e-5, 32)
    assert recipe(str(file), "--lr", "4e-5").tune.lr == 4e-5
    assert recipe(str(file), "--lr", "4e-5", "--set", "tune.lr=5e-5").tune.lr == 5e-5
    assert recipe("mnli", "--lr", "4e-5").tune.batch == 32


def test_run_on_an_official_folder_and_its_submission(
    rte: Path, tiny_encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "rte", "--data", str(rte), "--encoder", str(tiny_encoder_folder), "--out", str(tmp_path / "run")]
    assert main([*run, "--max-length", "32", "--heads", "mean-pool", "--seeds", "0", "--set", "fit.epochs=1"]) == 0
    assert "RTE/train.tsv: 40 of 2,490 official rows" in capsys.readouterr().err
    assert 'data = "' in (tmp_path / "run" / "recipe.toml").read_text(encoding="utf-8")
    submit = ["predict", str(tmp_path / "run/model"), "--glue-submission", str(tmp_path / "out"), "--data", str(rte)]
    assert main([*submit, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"task": "rte", "folder": str(tmp_path / "out"), "files": {"RTE.tsv": 5}}
    lines = (tmp_path / "out" / "RTE.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}


def test_submission_contains_the_predictions_of_the_model(
    value_encoder: Encoder, value_task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = replace(value_task, name="stsb", center=2.5, spread=1.0)
    Model(value_encoder, "encoder", values).save_pretrained(tmp_path / "model")
    columns = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    rows = [f"{i}\tg\tf\ty\to\ts\ts\tthe old town {'of ' * i}\tthe good town" for i in range(3)]
    (tmp_path / "STS-B").mkdir()
    (tmp_path / "STS-B/test.tsv").write_text("\n".join([columns, *rows]), encoding="utf-8")
    submit = ["predict", str(tmp_path / "model"), "--glue-submission", str(tmp_path), "--data", str(tmp_path)]
    assert main(submit) == 0
    assert "STS-B.tsv: 3 predictions" in capsys.readouterr().out
    model = TextClassifier.from_pretrained(tmp_path / "model")
    predicted = [model(f"the old town {'of ' * i}".strip(), "the good town")["value"] for i in range(3)]
    written = [line.split("\t") for line in (tmp_path / "STS-B.tsv").read_text().splitlines()[1:]]
    assert [float(value) for _, value in written] == pytest.approx([min(max(0, v), 5) for v in predicted], abs=6e-4)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--glue-submission", "out"], "--glue-submission needs --data FOLDER"),
        (["--glue-submission", "out", "--text", "x"], "predict needs one of"),
        (["--text", "x", "--data", "."], "--data works only with --glue-submission DIR; leave out --data"),
        (["--glue-submission", "out", "--data", "."], "this model's task is tiny-labels, which is not a GLUE task"),
    ],
)
def test_invalid_submission_command_is_a_one_line_error(
    options: list[str],
    reason: str,
    label_encoder: Encoder,
    label_task: Task,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Model(label_encoder, "encoder", label_task).save_pretrained(tmp_path / "model")
    assert main(["predict", str(tmp_path / "model"), *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert reason in shown.err.splitlines()[-1]


def test_task_without_data_error_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mrpc", "--out", str(tmp_path / "run")]) == 2
    assert "task mrpc needs --train FILE" in capsys.readouterr().err
    assert main(["run", "squad2", "--data", str(tmp_path), "--train", "x.json", "--out", str(tmp_path / "run")]) == 2
    assert "no option of task 'squad2' named 'data'" in capsys.readouterr().err


def test_tasks_lists_glue_tasks_with_their_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    rows = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)["tasks"]}
    assert {name: rows[name] for name in GLUE} == {name: record.about for name, record in GLUE.items()}
