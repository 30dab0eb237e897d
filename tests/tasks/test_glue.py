"""GLUE: the task table, every official file format, and which files are used."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import TASKS, Task, load_task

NAMES = tuple(name for name in GLUE if name not in ("mnli-mm", "ax"))


def all_examples(task: Task) -> list[Example]:
    return sorted(
        (e for split in task.splits.values() for e in split), key=lambda e: (e.id[:3], int(e.id.split(":")[1]))
    )


def load_error(name: str, **options: object) -> str:
    with pytest.raises(BadInput) as error:
        load_task(name, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_glue_table_is_registered_with_descriptions() -> None:
    assert set(GLUE) == {*NAMES, "mnli-mm", "ax"} <= set(TASKS)
    assert all(record.name == name and record.about for name, record in GLUE.items())
    assert len({record.about for record in GLUE.values()}) == len(GLUE)


def test_glue_metrics_are_the_official_ones() -> None:
    with_two_metrics = {"mrpc": {"f1", "accuracy"}, "qqp": {"f1", "accuracy"}, "stsb": {"pearson", "spearmanr"}}
    with_one_metric = {"cola": {"matthews_correlation"}, "ax": {"matthews_correlation"}}
    for name, record in GLUE.items():
        assert set(record.metrics) == with_two_metrics.get(name) or set(record.metrics) == with_one_metric.get(
            name, {"accuracy"}
        )
    assert [GLUE[name].metrics[0] for name in ("mrpc", "qqp", "stsb")] == ["f1", "f1", "spearmanr"]


def test_scores_include_the_official_metrics() -> None:
    from bertvision.evaluation.metrics.labels import classification_scores
    from bertvision.evaluation.metrics.values import regression_scores

    for record in GLUE.values():
        gold_and_predicted = [0, 1, 1], [1, 1, 0]
        scores = (
            classification_scores(*gold_and_predicted, len(record.labels))
            if record.labels
            else regression_scores(*gold_and_predicted)
        )
        assert set(record.metrics) <= set(scores)


def test_score_files_use_the_glue_table() -> None:
    from bertvision.evaluation.score_files import TASK_SCORING

    for name, record in GLUE.items():
        official = TASK_SCORING[name]
        assert (official.labels, official.headerless_columns) == (record.labels, record.header)
        assert set(official.metrics) == set(record.metrics)


def test_settings_equal_the_papers() -> None:
    settings_of = {name: (record.lr, record.batch, record.max_length) for name, record in GLUE.items()}
    large_task_settings = (1e-5, 32, 128)
    assert [settings_of[name] for name in ("mnli", "mnli-mm", "ax", "qnli", "qqp")] == [large_task_settings] * 5
    assert settings_of["rte"] == (2e-5, 16, 250)
    assert settings_of["sst2"] == settings_of["mrpc"] == (2e-5, 32, 128)
    assert settings_of["cola"] == settings_of["stsb"] == (2e-5, 16, 128)
    assert TASKS["rte"].defaults == {"tune": {"bert_lr": 2e-5, "batch": 16}}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_official_files_are_read_exactly(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], glue: Any
) -> None:
    record = GLUE[name]
    task = load_task(name, data=glue.write_task(tmp_path, name))
    assert (task.name, task.labels, task.metric) == (name, record.labels, record.metrics[0])
    assert (task.kind, task.max_length) == ("classify" if record.labels else "regress", record.max_length)
    dev_stem, first_line = record.files.dev.stems[0], 1 if name == "cola" else 2
    expected = [
        Example(
            f"{dev_stem}:{i + first_line}",
            text,
            None if name in ("cola", "sst2") else pair,
            label=float(i % len(record.labels)) if record.labels else float(label),
        )
        for i, (text, pair, label) in enumerate(glue.rows(name, 12))
    ]
    assert list(task["dev"]) == expected
    assert {e.id for e in task["train"] + task["inner"]} == {f"train:{i + first_line}" for i in range(40)}
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 2
    assert f"train.tsv: 40 of {record.files.train.rows:,} official rows" in notes[0]
    assert f"{dev_stem}.tsv: 12 of {record.files.dev.rows:,} official rows" in notes[1]


@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb"])
def test_data_may_be_the_task_folder_or_its_parent(name: str, tmp_path: Path, glue: Any) -> None:
    above = load_task(name, data=str(glue.write_task(tmp_path, name)))
    assert load_task(name, data=tmp_path / GLUE[name].files.train.folders[0]) == above


def test_files_of_official_size_give_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str], glue: Any) -> None:
    glue.write_task(tmp_path, "wnli", GLUE["wnli"].files.train.rows, GLUE["wnli"].files.dev.rows)
    load_task("wnli", data=tmp_path)
    assert capsys.readouterr().err == ""


def test_incomplete_file_gives_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str], glue: Any) -> None:
    glue.write_task(tmp_path, "wnli", 634, 71)
    load_task("wnli", data=tmp_path)
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 1
    assert "WNLI/train.tsv: 634 of 635 official rows" in notes[0]


def test_mismatched_and_diagnostic_dev_sets_share_the_training_data(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "mnli")
    glue.write(tmp_path / "MNLI/dev_mismatched.tsv", glue.lines(glue.labelled["mnli"], [("mm", "b", "contradiction")]))
    glue.write(tmp_path / "AX/diagnostic-full.tsv", glue.lines(glue.diagnostic, [("ax", "b", "neutral")]))
    tasks = {name: load_task(name, data=tmp_path) for name in ("mnli", "mnli-mm", "ax")}
    assert tasks["mnli"]["train"] == tasks["mnli-mm"]["train"] == tasks["ax"]["train"]
    assert tasks["mnli-mm"]["dev"] == (Example("dev_mismatched:2", "mm", "b", label=2.0),)
    assert tasks["ax"]["dev"] == (Example("diagnostic-full:2", "ax", "b", label=1.0),)


@pytest.mark.parametrize("name", NAMES)
def test_json_lines_with_hub_columns_and_labels_or_numbers(name: str, tmp_path: Path, glue: Any) -> None:
    record, columns = GLUE[name], GLUE[name].columns[-1 if name != "mnli" else 1]
    rows = []
    for i in range(30):
        label = i % (len(record.labels) or 5)
        label_or_number = record.labels[label] if record.labels and i % 2 else label
        rows.append(
            {columns.text: f"a {i}", columns.pair or "other": f"b {i}", columns.label: label_or_number, "idx": i}
        )
    path = glue.write(tmp_path / "my.jsonl", [json.dumps(row) for row in rows])
    examples = all_examples(load_task(name, train=path))
    assert [e.label for e in examples] == [float(i % (len(record.labels) or 5)) for i in range(30)]
    assert [e.text for e in examples] == [f"a {i}" for i in range(30)]
    assert {e.pair is None for e in examples} == {columns.pair is None}


def test_given_files_take_precedence_over_the_folder(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "rte")
    (tmp_path / "RTE/train.tsv").unlink()
    given = glue.write(tmp_path / "more/dev.tsv", glue.lines(glue.labelled["rte"], glue.rows("rte", 20)))
    task = load_task("rte", train=given, data=tmp_path)
    assert {e.id.split(":")[0] for e in task["train"]} == {"dev"}
    assert {e.id.split(":")[0] for e in task["dev"]} == {"dev-2"}


def test_single_file_with_the_same_prefix_is_used(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "mnli")
    train = tmp_path / "MNLI/train.tsv"
    sample = train.rename(train.with_name("train_10k.tsv"))
    assert len(all_examples(load_task("mnli", data=tmp_path))) == 52
    sample.with_name("train_5k.tsv").write_bytes(sample.read_bytes())
    assert "MNLI contains dev_matched.tsv, train_10k.tsv, train_5k.tsv" in load_error("mnli", data=tmp_path)


def test_limit_samples_train_and_dev(tmp_path: Path, glue: Any) -> None:
    task = load_task("mrpc", data=glue.write_task(tmp_path, "mrpc"), limit=10)
    assert Counter({"train": len(task["train"]) + len(task["inner"]), "dev": len(task["dev"])}) == {
        "train": 10,
        "dev": 10,
    }


CELL = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(
    lambda text: text.strip()
)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), rows=st.lists(st.tuples(CELL, CELL, st.integers(0, 1)), min_size=6, max_size=12))
def test_any_text_survives_a_round_trip(name: str, rows: list[tuple[str, str, int]], glue: Any) -> None:
    rows = [(f"{i} {text}", pair, label) for i, (text, pair, label) in enumerate(rows)]
    written = [(text, pair, glue.label(name, label)) for text, pair, label in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = glue.write(Path(folder) / "train.tsv", glue.lines(glue.labelled[name], written))
        examples = all_examples(load_task(name, train=path))
    assert [e.text for e in examples] == [text.strip() for text, _, _ in rows]
    assert [e.pair or "" for e in examples] == ["" if name in ("cola", "sst2") else pair.strip() for _, pair, _ in rows]
    assert [e.label for e in examples] == [label if GLUE[name].labels else label + 0.5 for _, _, label in rows]
