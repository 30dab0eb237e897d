"""Any number of labels for a text: cells, lists, columns of 0 and 1."""

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


def cells(folder: Path, labels: Sequence[str], name: str = "my.csv") -> Path:
    return write(folder, ["text", "label"], [[f"text {i}", label] for i, label in enumerate(labels)], name)


def load(path: Path, **options: Any) -> Task:
    return load_task("text", train=path, **{"kind": "multilabel", **options})


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BadInput) as error:
        load(path, **options)
    return str(error.value)


def sets(task: Task) -> list[set[str]]:
    """The label sets of all rows, in the order of the file."""
    examples = sorted((e for split in task.splits.values() for e in split), key=lambda e: int(e.id.rpartition(":")[2]))
    return [{task.labels[place] for place in e.labels or ()} for e in examples]


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_labels_of_a_cell(tmp_path: Path, separator: str) -> None:
    written = [f"b{separator} a ", "a", "", f"c{separator}", f"a{separator}a"]
    task = load(cells(tmp_path, written))
    assert (task.kind, task.metric, task.labels, task.outputs) == ("multilabel", "f1_micro", ("a", "b", "c"), 3)
    assert sets(task) == [{"a", "b"}, {"a"}, set(), {"c"}, {"a"}]
    assert all(e.label is None for split in task.splits.values() for e in split)


def test_the_separator_is_that_of_train_or_the_one_given(tmp_path: Path) -> None:
    train = cells(tmp_path, ["news, local|sport", "sport", "news, local", "sport|news, local"])
    assert load(train).labels == ("news, local", "sport")
    assert load(train, label_separator=",").labels == ("local", "local|sport", "news", "sport", "sport|news")
    assert load(cells(tmp_path, ["a / b", "b", "a", "b"]), label_separator="/").labels == ("a", "b")
    dev = cells(tmp_path, ["a;b"], "dev.csv")
    message = refusal(cells(tmp_path, ["a|b", "b", "a"]), dev=dev)
    assert f"{dev}, line 2: unknown label: got 'a;b', expected a label of the training rows: ['a', 'b']" in message


@given(st.lists(st.lists(st.sampled_from(["x", "y z", "10", "ü"]), max_size=4), min_size=1, max_size=6), st.data())
def test_cells_come_back_as_they_were_joined(written: list[list[str]], data: st.DataObject) -> None:
    separator = data.draw(st.sampled_from(["|", ";", ","]))
    joined = [separator.join(labels) for labels in written]
    found = find_separator(joined)
    assert found == (separator if any(len(labels) > 1 for labels in written) else "|")
    assert [split_labels(cell, found) for cell in joined] == [tuple(dict.fromkeys(labels)) for labels in written]


def test_lists_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    labels: list[Any] = [["a", "b|c"], [], None, "", "a", ["a", 2]]
    path.write_text("".join(json.dumps({"text": f"t{i}", "label": x}) + "\n" for i, x in enumerate(labels)), "utf-8")
    task = load(path)
    assert task.labels == ("2", "a", "b|c")
    assert sets(task) == [{"a", "b|c"}, set(), set(), set(), {"a"}, {"a", "2"}]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"text": "no key"}\n{"text": "nested", "label": [["a"]]}\n')
    assert f"{path}, line 7: missing label: no 'label'" in refusal(path)
    assert load(path, skip_bad=True).skipped == {"missing label": 1, "wrong type": 1}
    assert "line 1: wrong type: column 'label': got ['a', 'b|c'], expected one label (or give kind=multilabel)" in (
        refusal(path, kind="classify")
    )


def test_a_column_for_each_label(tmp_path: Path) -> None:
    rows = [["t0", 1, 0, "true"], ["t1", 0, 0, "FALSE"], ["t2", "1.0", 1, "false"], ["t3", 0, 1, "true"]]
    path = write(tmp_path, ["text", "toxic", "insult", "Threat"], rows)
    for kind in (None, "multilabel"):
        task = load(path, kind=kind, label_column=["toxic", "insult", "Threat"])
        assert (task.kind, task.labels) == ("multilabel", ("toxic", "insult", "Threat"))
        assert sets(task) == [{"toxic", "Threat"}, set(), {"toxic", "insult"}, {"insult", "Threat"}]
    assert "no column 'spam'; the file has: text, toxic" in refusal(path, label_column=["toxic", "spam"])
    assert "column 'toxic' is named twice" in refusal(path, label_column=["toxic", "toxic"])
    assert "got several columns with kind=classify, expected kind=multilabel" in refusal(
        path, label_column=["toxic", "insult"], kind="classify"
    )
    bad = write(tmp_path, ["text", "a", "b"], [["t0", 1, 2], ["t1", 0, ""], *[[f"u{i}", i % 2, 1] for i in range(9)]])
    assert f"{bad}, line 2: not 0 or 1: column 'b': got '2'" in refusal(bad, label_column=["a", "b"])
    assert load(bad, label_column=["a", "b"], skip_bad=True).skipped == {"not 0 or 1": 2}


def test_one_name_in_a_list_is_one_column(tmp_path: Path) -> None:
    path = write(tmp_path, ["text", "stars"], [[f"t{i}", "ab"[i % 2]] for i in range(9)])
    task = load_task("text", train=path, label_column=("stars",))
    assert (task.kind, task.labels) == ("classify", ("a", "b"))


def test_separators_are_for_cells_of_several_labels(tmp_path: Path) -> None:
    path = cells(tmp_path, ["a|b", "a", "b"] * 3)
    for options in ({"kind": "classify"}, {"kind": None}, {"label_column": ["text", "label"]}):
        assert "label_separator: expected kind=multilabel" in refusal(path, label_separator="|", **options)
    assert "label_separator: expected kind=multilabel" in refusal(path, label_separator="")


@pytest.mark.parametrize(("labels", "found"), [(["", ""], "no labels"), (["a", "a", ""], "only the label 'a'")])
def test_two_labels_at_least(tmp_path: Path, labels: list[str], found: str) -> None:
    assert f"the training rows have {found}; kind=multilabel expects at least 2 labels" in refusal(
        cells(tmp_path, labels)
    )


def test_sets_are_drawn_evenly(tmp_path: Path) -> None:
    task = load(cells(tmp_path, [("a", "b", "a|b", "")[i % 4] for i in range(400)]))
    assert {split: len(task[split]) for split in task.splits} == {"train": 324, "inner": 36, "dev": 40}
    for split in ("inner", "dev"):
        counts = [sum(e.labels == chosen for e in task[split]) for chosen in ((), (0,), (1,), (0, 1))]
        assert max(counts) - min(counts) <= 1


def test_equal_pairs_stay_together_and_pairs_of_one_text_need_not(tmp_path: Path) -> None:
    rows = [[f"t{i // 2}", "the same", ("x", "y")[i % 2]] for i in range(80)]
    task = load(write(tmp_path, ["text", "text_pair", "label"], rows))
    train = {e.text for e in task["train"]}
    assert not train & {e.text for e in task["inner"] + task["dev"]}
    assert (len(task["inner"]), len(task["dev"])) == (8, 8)


def test_saved_and_read_again(tmp_path: Path) -> None:
    task = load(cells(tmp_path, ["a|b", "a", "", "b"] * 5), class_weights="balanced")
    save_task(task, tmp_path / "task")
    again = read_task(tmp_path / "task")
    assert again == task
    assert isinstance(again["train"][0], Example)
    assert all(isinstance(e.labels, tuple) for e in again["train"])
