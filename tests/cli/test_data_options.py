"""Data options on the command line and in recipes, and the tasks that they load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from bertvision.cli.main import build_parser
from bertvision.cli.options import recipe_from
from bertvision.core.config import Recipe, read_recipe, write_recipe
from bertvision.runs.prepare import load_recipe_task
from bertvision.tasks.task import Task

Call = Callable[..., Any]


def recipe(*arguments: object) -> Recipe:
    return recipe_from(build_parser().parse_args(["run", *map(str, arguments), "--out", "x"]))


def loaded(*arguments: object) -> Task:
    return load_recipe_task(recipe(*arguments))


def write_rows(path: Path, rare: int = 10) -> Path:
    lines = (f"town {i},{'good' if i % rare == 0 else 'plain'},{i % 2},{i % 3 // 2}\n" for i in range(60))
    path.write_text("text,label,odd,third\n" + "".join(lines), encoding="utf-8")
    return path


def test_imbalanced_labels_are_reported_once_and_may_be_weighted(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = write_rows(tmp_path / "my.csv")
    command = samples.extraction(data, tiny_encoder_folder, "text")
    result = call(*command)
    warnings = [
        line for line in result.err.splitlines() if line.startswith("imbalanced labels: plain 45, good 4; 92 %")
    ]
    assert len(warnings) == 1
    assert warnings[0].endswith("consider --class-weights balanced")
    task = json.loads((tmp_path / "store" / "task" / "task.json").read_text(encoding="utf-8"))
    assert (task["class_weights"], task["metric"]) == ([], "accuracy")
    command[command.index("--to") + 1] = tmp_path / "weighed"
    result = call(*command, "--class-weights", "balanced")
    assert "; balanced class weights are used\n" in result.err
    task = json.loads((tmp_path / "weighed" / "task" / "task.json").read_text(encoding="utf-8"))
    assert task["class_weights"] == pytest.approx([49 / (2 * 4), 49 / (2 * 45)])
    assert task["metric"] == "macro_f1"


def test_balanced_labels_are_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = loaded("text", "--train", write_rows(tmp_path / "my.csv", rare=3))
    assert task.labels == ("good", "plain")
    assert "imbalanced" not in capsys.readouterr().err


def test_parquet_file_is_read_and_a_broken_one_refused(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    path = tmp_path / "my.parquet"
    content = {"text": [f"the old town {i}" for i in range(20)], "label": ["bad", "good"] * 10}
    parquet.write_table(pyarrow.table(content), path)
    assert call(*samples.extraction(path, tiny_encoder_folder, "text")).code == 0
    path.write_bytes(b"PAR1 and nothing else")
    line = call(*samples.extraction(path, tiny_encoder_folder, "text")).refused()
    assert f"{path}: cannot be read as Parquet" in line


@pytest.mark.parametrize("name", ["My.CSV", "my.table.jsonl"])
def test_table_alone_is_the_training_data_of_a_text_task(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".CSV"):
        write_rows(path)
    else:
        rows = [{"review": f"town {i}", "stars": i % 2} for i in range(60)]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    dev = write_rows(tmp_path / "dev.csv")
    assert recipe(path) == recipe("text", "--train", path)
    options = ["--dev", dev, "--limit", 9, "--set", "data.max_length=64"]
    assert recipe(path, *options) == recipe("text", "--train", path, *options)
    assert sum(map(len, loaded(path).splits.values())) == 60


def test_table_and_other_training_data_are_refused(call: Call, tmp_path: Path) -> None:
    path, other = write_rows(tmp_path / "my.csv"), write_rows(tmp_path / "other.csv")
    line = call("run", path, "--train", other).refused()
    assert f"{path} and --train are both training data; name all files: text --train {path} {other}" in line
    assert "needs train (files) or hub (a dataset's name): got both" in call("run", path, "--hub", "a/b").refused()
    (tmp_path / "notes.txt").write_text("text,label\n")
    assert "notes.txt: unknown extension; expected the name of a task" in call("run", tmp_path / "notes.txt").refused()
    assert f"{tmp_path}: this is a folder; expected the name of" in call("run", tmp_path, "--out", "x").refused()
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv: this is a folder, expected a file" in call("run", tmp_path / "folder.csv").refused()


def test_run_of_a_table_is_named_after_it(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    samples.write_csv(tmp_path / "my.csv", header=("remark", "mood"))
    words = samples.text_words(tmp_path, tiny_encoder_folder)
    command = ["run", "my.csv", *words[words.index("--train") + 2 :]]
    result = call(*command)
    assert result.code == 0, result.err
    folder = Path("runs", "my")
    assert f"run folder: {folder} (choose another with --out)\n" in result.err
    assert "columns: text 'remark', label 'mood', guessed; " in result.err
    assert (folder / "report.html").exists()
    assert (folder / "log.jsonl").read_text(encoding="utf-8").count('"words": ["run", "my.csv"') == 1
    (tmp_path / "other").mkdir()
    samples.write_csv(tmp_path / "other" / "my.csv")
    line = call("run", "other/my.csv", *command[2:]).refused()
    assert f"{folder} holds another run: data.train is" in line


def test_data_set_of_the_hub_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"town {i}", "label": "ab"[i % 2]} for i in range(20)]

    class Rows(list[Any]):
        features: dict[str, Any] = {}  # noqa: RUF012

    load = SimpleNamespace(load_dataset=lambda *names: {"train": Rows(rows)})
    monkeypatch.setitem(sys.modules, "datasets", load)
    assert loaded("text", "--hub", "some/towns").labels == ("a", "b")


def test_several_label_columns_or_a_separator_make_a_multilabel_task(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "my.csv")
    for options in (["--label-column", "odd", "third"], ["--label-column", "odd", "--label-column", "third"]):
        task = loaded("text", "--train", data, *options)
        assert (task.kind, task.labels) == ("multilabel", ("odd", "third"))
    assert loaded("text", "--train", data, "--label-column", "odd").labels == ("0", "1")
    data.write_text("text,label\n" + "".join(f"t{i},a/b\nu{i},b\n" for i in range(9)), encoding="utf-8")
    assert loaded("text", "--train", data, "--kind", "multilabel", "--label-separator", "/").labels == ("a", "b")


def test_split_seed_changes_dev(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "my.csv")
    draws = [{e.id for e in loaded("text", "--train", data, *more)["dev"]} for more in ([], ["--split-seed", 3])]
    assert draws[0] != draws[1]


def test_merge_option_sets_the_rule_for_merging_windows(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_squad(tmp_path / "train.json")
    assert loaded("answerability", "--train", data).merge == "any-answerable"
    assert loaded("answerability", "--train", data, "--merge", "any-unanswerable").merge == "any-unanswerable"
    written = recipe("answerability", "--train", data, "--set", "data.merge=any-unanswerable")
    write_recipe(written, tmp_path / "my.toml")
    assert loaded(tmp_path / "my.toml").merge == "any-unanswerable"
    command = samples.extraction(data, tiny_encoder_folder, "answerability")
    assert "no merge named 'any'" in call(*command, "--merge", "any").refused()
    text = samples.write_csv(tmp_path / "my.csv")
    line = call(*samples.extraction(text, tiny_encoder_folder, "text"), "--merge", "any-answerable").refused()
    assert "no option of task 'text' named 'merge'" in line


def test_data_options_round_trip_through_a_recipe(tmp_path: Path) -> None:
    options = ["--label-column", "a", "b", "--class-weights", "balanced", "--split-seed", 2, "--hub", "x:y"]
    written = recipe("text", *options, "--label-separator", "|")
    write_recipe(written, tmp_path / "my.toml")
    assert read_recipe(tmp_path / "my.toml") == written
    assert written.data.label_column == ("a", "b")
    (tmp_path / "old.toml").write_text('task = "text"\n[data]\nlabel_column = "stars"\n', encoding="utf-8")
    assert read_recipe(tmp_path / "old.toml").data.label_column == ("stars",)


def test_heads_lists_the_same_heads_for_classify_and_multilabel(call: Call) -> None:
    rows = [call("heads", "--kind", kind, "--labels", 5, "--json").document() for kind in ("classify", "multilabel")]
    assert rows[0] == rows[1]
    tasks = {row["name"]: row["about"] for row in call("tasks", "--json").document()["tasks"]}
    assert "Parquet, pandas or a data set of the Hub; labels, sets of labels or numbers" in tasks["text"]
