"""Broken GLUE files and folders: a one-line error, or every row is used or counted."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import Task, load_task

NAMES = tuple(name for name in GLUE if name not in ("mnli-mm", "ax"))


def load_error(name: str, **options: object) -> str:
    with pytest.raises(BadInput) as error:
        load_task(name, **options)
    return str(error.value)


def row_lines(task: Task) -> list[int]:
    return sorted(int(e.id.split(":")[1]) for split in task.splits.values() for e in split)


def test_missing_train_file_is_an_error(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "qnli")
    (tmp_path / "QNLI/train.tsv").unlink()
    message = load_error("qnli", data=tmp_path)
    assert message.startswith("task qnli has no train file: expected QNLI/train.tsv or train.tsv (or .jsonl)")
    assert message.endswith("QNLI contains dev.tsv; give train files")


def test_missing_dev_file_is_an_error(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "mnli")
    message = load_error("mnli-mm", data=tmp_path)
    assert "no dev file: expected MNLI/dev_mismatched.tsv" in message
    assert "MNLI contains dev_matched.tsv, train.tsv" in message


def test_wrong_folders_are_errors(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "rte")
    assert "no such folder" in load_error("rte", data=tmp_path / "nowhere")
    assert "expected MRPC/train.tsv or train.tsv" in load_error("mrpc", data=tmp_path)
    # WNLI's files have the columns of RTE, so only the folder's name distinguishes them.
    assert "folder of another task; task wnli is in WNLI" in load_error("wnli", data=tmp_path / "RTE")
    assert "it contains nothing" in load_error("wnli", data=_make_folder(tmp_path / "empty"))


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_files_of_another_task_are_errors(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "rte")
    glue.write_task(tmp_path, "sst2")
    rte, sst2 = tmp_path / "RTE/train.tsv", tmp_path / "SST-2/train.tsv"
    assert "train.tsv: not a file of task qnli: got columns 'index, sentence1" in load_error("qnli", train=rte)
    assert "line 1: wrong number of cells: got 2, expected 4: source, label, notation" in load_error("cola", train=sst2)
    assert "line 2: unknown label: got 'entailment', expected 0 or not_" in load_error("mrpc", train=rte)
    assert "unknown extension '.csv'" in load_error("rte", train=tmp_path / "a.csv")


def test_missing_conflicting_and_duplicate_sources_are_errors(tmp_path: Path, glue: Any) -> None:
    glue.write_task(tmp_path, "rte")
    train = tmp_path / "RTE/train.tsv"
    assert load_error("rte") == "task 'rte' needs data (a folder), train (files) or hub (a dataset's name)"
    assert "needs data" in load_error("rte", dev=train)
    assert "got both" in load_error("rte", data=tmp_path, hub="nyu-mll/glue")
    assert "given twice" in load_error("rte", train=train, dev=train)
    assert "max_length" in load_error("rte", train=train, max_length=0)
    assert "named 'encoding'" in load_error("rte", train=train, encoding="cp1252")


BROKEN_ROWS = [
    ("qqp", '"\tWas Muhammad a real historical figure?\t0', "wrong number of cells"),
    ("qqp", "1\t2\t3\t\tWhat is it?\t0", "missing text"),
    ("qqp", "1\t2\t3\tWhat is it?\tWhy?\t", "missing label"),
    ("qqp", "1\t2\t3\tWhat is it?\tWhy?\t2", "unknown label"),
    ("mnli", "0\tp\tp\tg\tx\tx\tx\tx\ta\tb\tneutral\t-", "no gold label"),
    ("mnli", "0\tp\tp\tg\tx\tx\tx\tx\ta\tb\tneutral\tneut", "unknown label"),
    ("cola", "gj04\t1\t\t ", "missing text"),
    ("cola", "gj04\tyes\t\tA sentence.", "unknown label"),
    ("cola", "gj04\t1", "wrong number of cells"),
    ("stsb", "0\tg\tf\ty\to\ts\ts\ta\tb\t5.1", "not a score"),
    ("stsb", "0\tg\tf\ty\to\ts\ts\ta\tb\tnan", "not a score"),
    ("stsb", "0\tg\tf\ty\to\ts\ts\ta\tb\thigh", "not a score"),
    ("sst2", "cut in the mid", "wrong number of cells"),
    ("rte", "", "blank row"),
]


@pytest.mark.parametrize(("name", "row", "reason"), BROKEN_ROWS)
def test_broken_row_is_an_error_or_counted(name: str, row: str, reason: str, tmp_path: Path, glue: Any) -> None:
    good_lines = glue.lines(glue.labelled[name], glue.rows(name, 20))
    path = glue.write(tmp_path / "train.tsv", [*good_lines[:8], row, *good_lines[8:]])
    message = load_error(name, train=path)
    assert f"train.tsv, line 9: {reason}: " in message
    assert "--skip-bad" in message
    task = load_task(name, train=path, skip_bad=True)
    assert task.skipped == {reason: 1}
    first_line = 1 if name == "cola" else 2
    assert row_lines(task) == [line for line in range(first_line, first_line + 21) if line != 9]


def test_hidden_labels_are_explained(tmp_path: Path, glue: Any) -> None:
    row = json.dumps({"sentence": "x", "label": -1})
    assert "-1 marks the hidden labels of a test set" in load_error(
        "sst2", train=glue.write(tmp_path / "a.jsonl", [row])
    )


def test_file_without_usable_rows_is_an_error(tmp_path: Path, glue: Any) -> None:
    header, _ = glue.labelled["rte"]
    rows = ["0\ta\tb\tmaybe", "1\ta\tb\tperhaps"]
    path = glue.write(tmp_path / "train.tsv", [header, *rows])
    assert "no usable row; skipped 2 bad rows: unknown label (2)" in load_error("rte", train=path, skip_bad=True)
    path = glue.write(tmp_path / "train.tsv", [header, "0\ta", "1"])
    assert "no usable row; skipped 2 bad rows" in load_error("rte", train=path, skip_bad=True)


def test_json_texts_must_be_strings(tmp_path: Path, glue: Any) -> None:
    for text, reason in ((7, "wrong type"), (None, "missing text"), ("\ud83d", "broken character")):
        path = glue.write(tmp_path / "a.jsonl", [json.dumps({"sentence": text, "label": 1})])
        assert f"line 1: {reason}: column 'sentence'" in load_error("sst2", train=path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_mutated_files_load_with_all_rows_counted_or_raise_bad_input(data: st.DataObject, glue: Any) -> None:
    """After inserting, deleting and truncating bytes: an error, or every row is an example or counted."""
    name = data.draw(st.sampled_from(NAMES))
    content = "\n".join(glue.lines(glue.labelled[name], glue.rows(name, 12))).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content)))
        end = data.draw(st.sampled_from([position, position + 1, position + 9, len(content)]))
        content = (
            content[:position]
            + data.draw(st.sampled_from([b"", b"\t", b"\n", b'"', b"\r", b"-", b"\xff", b"\0", b"x"]))
            + content[end:]
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.tsv"
        path.write_bytes(content)
        try:
            task = load_task(name, train=path, skip_bad=True)
        except BadInput:
            return
    rows = content.count(b"\n") + (not content.endswith(b"\n")) - (name != "cola")
    assert len(row_lines(task)) + sum(task.skipped.values()) == rows
