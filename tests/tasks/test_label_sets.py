"""Multilabel data: several labels per cell, lists, and columns of 0 and 1."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.task import Task, load_task, read_task, save_task
from bertvision.tasks.text import find_separator, split_labels


def write(folder: Path, header: Sequence[str], rows: Sequence[Sequence[object]], name: str = "my.csv") -> Path:
    path = folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_cells(folder: Path, labels: Sequence[str], name: str = "my.csv") -> Path:
    return write(folder, ["text", "label"], [[f"text {i}", label] for i, label in enumerate(labels)], name)


def load(path: Path, **options: Any) -> Task:
    return load_task("text", train=path, **{"kind": "multilabel", **options})


def load_error(path: Path, **options: Any) -> str:
    with pytest.raises(BadInput) as error:
        load(path, **options)
    return str(error.value)


def label_sets(task: Task) -> list[set[str]]:
    """The label sets of all rows, in the order of the file."""
    examples = sorted((e for split in task.splits.values() for e in split), key=lambda e: int(e.id.rpartition(":")[2]))
    return [{task.labels[index] for index in e.labels or ()} for e in examples]


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_cell_is_split_into_labels(tmp_path: Path, separator: str) -> None:
    label_cells = [f"b{separator} a ", "a", "", f"c{separator}", f"a{separator}a"]
    task = load(write_cells(tmp_path, label_cells))
    assert (task.kind, task.metric, task.labels, task.outputs) == ("multilabel", "f1_micro", ("a", "b", "c"), 3)
    assert label_sets(task) == [{"a", "b"}, {"a"}, set(), {"c"}, {"a"}]
    assert all(e.label is None for split in task.splits.values() for e in split)


def test_separator_is_given_or_detected_in_train(tmp_path: Path) -> None:
    train = write_cells(tmp_path, ["news, local|sport", "sport", "news, local", "sport|news, local"])
    assert load(train).labels == ("news, local", "sport")
    assert load(train, label_separator=",").labels == ("local", "local|sport", "news", "sport", "sport|news")
    assert load(write_cells(tmp_path, ["a / b", "b", "a", "b"]), label_separator="/").labels == ("a", "b")
    dev = write_cells(tmp_path, ["a;b"], "dev.csv")
    message = load_error(write_cells(tmp_path, ["a|b", "b", "a"]), dev=dev)
    assert f"{dev}, line 2: unknown label: got 'a;b', expected a label of the training rows: ['a', 'b']" in message


@given(st.lists(st.lists(st.sampled_from(["x", "y z", "10", "ü"]), max_size=4), min_size=1, max_size=6), st.data())
def test_joined_labels_survive_a_round_trip(written: list[list[str]], data: st.DataObject) -> None:
    separator = data.draw(st.sampled_from(["|", ";", ","]))
    joined = [separator.join(labels) for labels in written]
    separator_found = find_separator(joined)
    assert separator_found == (separator if any(len(labels) > 1 for labels in written) else "|")
    assert [split_labels(cell, separator_found) for cell in joined] == [
        tuple(dict.fromkeys(labels)) for labels in written
    ]


def test_json_lists_are_label_sets(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    labels: list[Any] = [["a", "b|c"], [], None, "", "a", ["a", 2]]
    path.write_text("".join(json.dumps({"text": f"t{i}", "label": x}) + "\n" for i, x in enumerate(labels)), "utf-8")
    task = load(path)
    assert task.labels == ("2", "a", "b|c")
    assert label_sets(task) == [{"a", "b|c"}, set(), set(), set(), {"a"}, {"a", "2"}]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"text": "no key"}\n{"text": "nested", "label": [["a"]]}\n')
    assert f"{path}, line 7: missing label: no 'label'" in load_error(path)
    assert load(path, skip_bad=True).skipped == {"missing label": 1, "wrong type": 1}
    assert "line 1: wrong type: column 'label': got ['a', 'b|c'], expected one label (or give kind=multilabel)" in (
        load_error(path, kind="classify")
    )


def test_one_binary_column_per_label(tmp_path: Path) -> None:
    rows = [["t0", 1, 0, "true"], ["t1", 0, 0, "FALSE"], ["t2", "1.0", 1, "false"], ["t3", 0, 1, "true"]]
    path = write(tmp_path, ["text", "toxic", "insult", "Threat"], rows)
    for kind in (None, "multilabel"):
        task = load(path, kind=kind, label_column=["toxic", "insult", "Threat"])
        assert (task.kind, task.labels) == ("multilabel", ("toxic", "insult", "Threat"))
        assert label_sets(task) == [{"toxic", "Threat"}, set(), {"toxic", "insult"}, {"insult", "Threat"}]
    assert "no column 'spam'; the file has: text, toxic" in load_error(path, label_column=["toxic", "spam"])
    assert "column 'toxic' is named twice" in load_error(path, label_column=["toxic", "toxic"])
    assert "got several columns with kind=classify, expected kind=multilabel" in load_error(
        path, label_column=["toxic", "insult"], kind="classify"
    )
    broken = write(
        tmp_path, ["text", "a", "b"], [["t0", 1, 2], ["t1", 0, ""], *[[f"u{i}", i % 2, 1] for i in range(9)]]
    )
    assert f"{broken}, line 2: not 0 or 1: column 'b': got '2'" in load_error(broken, label_column=["a", "b"])
    assert load(broken, label_column=["a", "b"], skip_bad=True).skipped == {"not 0 or 1": 2}


def test_single_label_column_in_a_list_is_classification(tmp_path: Path) -> None:
    path = write(tmp_path, ["text", "stars"], [[f"t{i}", "ab"[i % 2]] for i in range(9)])
    task = load_task("text", train=path, label_column=("stars",))
    assert (task.kind, task.labels) == ("classify", ("a", "b"))


def test_label_separator_needs_multilabel(tmp_path: Path) -> None:
    path = write_cells(tmp_path, ["a|b", "a", "b"] * 3)
    for options in ({"kind": "classify"}, {"kind": None}, {"label_column": ["text", "label"]}):
        assert "label_separator: expected kind=multilabel" in load_error(path, label_separator="|", **options)
    assert "label_separator: expected kind=multilabel" in load_error(path, label_separator="")


@pytest.mark.parametrize(("labels", "reason"), [(["", ""], "no labels"), (["a", "a", ""], "only the label 'a'")])
def test_multilabel_needs_two_labels(tmp_path: Path, labels: list[str], reason: str) -> None:
    assert f"the training rows have {reason}; kind=multilabel expects at least 2 labels" in load_error(
        write_cells(tmp_path, labels)
    )


def test_splits_are_stratified_by_label_set(tmp_path: Path) -> None:
    task = load(write_cells(tmp_path, [("a", "b", "a|b", "")[i % 4] for i in range(400)]))
    assert {split: len(task[split]) for split in task.splits} == {"train": 324, "inner": 36, "dev": 40}
    for split in ("inner", "dev"):
        counts = [sum(e.labels == chosen for e in task[split]) for chosen in ((), (0,), (1,), (0, 1))]
        assert max(counts) - min(counts) <= 1


def test_examples_with_equal_text_stay_in_one_split(tmp_path: Path) -> None:
    rows = [[f"t{i // 2}", "the same", ("x", "y")[i % 2]] for i in range(80)]
    task = load(write(tmp_path, ["text", "text_pair", "label"], rows))
    train = {e.text for e in task["train"]}
    assert not train & {e.text for e in task["inner"] + task["dev"]}
    assert (len(task["inner"]), len(task["dev"])) == (8, 8)


def test_multilabel_task_survives_saving(tmp_path: Path) -> None:
    task = load(write_cells(tmp_path, ["a|b", "a", "", "b"] * 5), class_weights="balanced")
    save_task(task, tmp_path / "task")
    again = read_task(tmp_path / "task")
    assert again == task
    assert isinstance(again["train"][0], Example)
    assert all(isinstance(e.labels, tuple) for e in again["train"])
