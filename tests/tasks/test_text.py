"""The text task: columns, kinds and labels, guessed or given, and rows that cannot be used."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.task import Task, load_task
from bertvision.tasks.text import PEEKED_ROWS


def write(folder: Path, header: Sequence[object], rows: Sequence[Sequence[object]], name: str = "my.csv") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_reviews(
    folder: Path, labels: Sequence[object], header: Sequence[str] = ("text", "label"), name: str = "my.csv"
) -> Path:
    return write(folder, header, [[f"review {i}", label] for i, label in enumerate(labels)], name)


def all_examples(task: Task) -> list[Example]:
    return sorted((e for split in task.splits.values() for e in split), key=lambda e: int(e.id.rpartition(":")[2]))


def load(path: Path | list[Path], **options: object) -> Task:
    return load_task("text", train=path, **options)


def load_error(path: Path | list[Path], **options: object) -> str:
    with pytest.raises(BadInput) as error:
        load(path, **options)
    return str(error.value)


def test_repeated_labels_make_a_classification_task(tmp_path: Path) -> None:
    task = load(write_reviews(tmp_path, ["good", "bad"] * 20))
    assert (task.name, task.kind, task.metric, task.labels) == ("text", "classify", "accuracy", ("bad", "good"))
    assert (task.outputs, task.max_length, task.overlap, task.no_answer) == (2, 256, 0, False)


def test_example_ids_are_file_and_line(tmp_path: Path) -> None:
    task = load(write(tmp_path, ["text", "label"], [["two\nlines", "b"], [" x ", "a"], ["y", "a"], ["z", "b"]]))
    assert all_examples(task) == [
        Example("my:2", "two\nlines", label=1.0),
        Example("my:4", "x", label=0.0),
        Example("my:5", "y", label=0.0),
        Example("my:6", "z", label=1.0),
    ]


def test_files_with_equal_names_have_different_ids(tmp_path: Path) -> None:
    files = [write_reviews(tmp_path / folder, ["a", "b"] * 5) for folder in "xyz"]
    task = load(files[:2], dev=files[2])
    assert {e.id.partition(":")[0] for e in task["train"] + task["inner"]} == {"my", "my-2"}
    assert {e.id for e in task["dev"]} == {f"my-3:{line}" for line in range(2, 12)}


def test_numbered_file_names_do_not_clash(tmp_path: Path) -> None:
    files = [write_reviews(tmp_path / "x", "abc", name=name) for name in ("a.csv", "a-2.csv")] + [
        write_reviews(tmp_path / "y", "abc", name="a.csv")
    ]
    assert len({e.id for e in all_examples(load(files))}) == 9


def test_splits_are_stratified_and_equal_texts_stay_together(tmp_path: Path) -> None:
    rows = [[f"text {i % 500}", "yes" if i % 500 < 150 else "no"] for i in range(1000)]
    task = load(write(tmp_path, ["text", "label"], rows))
    assert {split: len(task[split]) for split in task.splits} == {"train": 810, "inner": 90, "dev": 100}
    assert [sum(e.label == 1.0 for e in task[split]) for split in ("train", "inner", "dev")] == [244, 26, 30]
    assert not {e.text for e in task["train"]} & {e.text for e in task["inner"] + task["dev"]}


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        (["b", "a"], "classify", ("a", "b")),
        ([10, 9, 2], "classify", ("2", "9", "10")),
        (["-1", "1.0", "+2"], "classify", ("-1", "1.0", "+2")),
        (["10", "9", "x"], "classify", ("10", "9", "x")),
        (["1", "2", "nan"], "classify", ("1", "2", "nan")),
        (list(range(20)), "classify", tuple(map(str, range(20)))),
        (list(range(21)), "regress", ()),
        (["1", "2.5"], "regress", ()),
        (["1e-3", ".5", "3."], "regress", ()),
    ],
)
def test_kind_is_guessed_from_the_labels(
    tmp_path: Path, labels: list[object], kind: str, names: tuple[str, ...]
) -> None:
    task = load(write_reviews(tmp_path, labels * 3))
    assert (task.kind, task.labels) == (kind, names)
    assert task.metric == {"classify": "accuracy", "regress": "spearmanr"}[kind]
    expected = [float(names.index(str(v))) if names else float(str(v)) for v in labels * 3]
    assert [e.label for e in all_examples(task)] == expected


def test_kind_can_be_given(tmp_path: Path) -> None:
    path = write_reviews(tmp_path, [1, 2, 3] * 3)
    assert load(path, kind="regress").kind == "regress"
    assert load(write_reviews(tmp_path, ["1.5", "2.5"] * 3), kind="classify").labels == ("1.5", "2.5")
    assert "kind: got 'rank', expected classify, multilabel or regress" in load_error(path, kind="rank")


def test_many_labels_that_are_not_all_numbers_are_an_error(tmp_path: Path) -> None:
    path = write_reviews(tmp_path, [*(i + 0.5 for i in range(40)), "N/A"])
    message = load_error(path)
    assert "41 different labels in 41 rows, e.g. 'N/A'" in message
    assert "kind=classify" in message
    task = load(path, kind="regress", skip_bad=True)
    assert task.kind == "regress"
    assert task.skipped == {"not a number": 1}
    assert len(load(path, kind="classify").labels) == 41


def test_columns_are_guessed_or_given(tmp_path: Path) -> None:
    path = write(tmp_path, ["text", "text_pair", "score"], [[f"t{i}", f"p{i}", i % 2] for i in range(9)])
    assert all_examples(load(path))[3] == Example("my:5", "t3", "p3", label=1.0)
    assert all_examples(load(path, text_column="text_pair"))[3] == Example("my:5", "p3", label=1.0)
    given = load(path, text_column="text_pair", pair_column="text", label_column="score")
    assert all_examples(given)[3] == Example("my:5", "p3", "t3", label=1.0)
    expected = f"{path}: no column 'stars'; the file has: text, text_pair, score; give label_column (--label-column)"
    assert load_error(path, label_column="stars") == expected


def test_dev_file_needs_the_columns_of_train(tmp_path: Path) -> None:
    train, dev = write_reviews(tmp_path, "ab" * 4), write_reviews(tmp_path, "ab" * 4, ["text", "stars"], "dev.csv")
    assert f"{dev}: no column 'label'; the file has: text, stars" in load_error(train, dev=dev)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["x", ""], "missing label: column 'label' is blank"),
        ([" ", "a"], "missing text: column 'text' is blank"),
        (["x"], "wrong number of cells: got 1, expected 2"),
        (["", ""], "blank row"),
    ],
)
def test_bad_row_is_an_error_or_counted(tmp_path: Path, row: list[str], reason: str) -> None:
    path = write(tmp_path, ["text", "label"], [["a", "a"], ["b", "b"], row, ["c", "b"]])
    message = load_error(path)
    assert f"{path}, line 4: {reason}" in message
    assert "--skip-bad" in message
    task = load(path, skip_bad=True)
    assert dict(task.skipped) == {reason.partition(":")[0]: 1}
    assert len(all_examples(task)) == 3


def test_blank_pair_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, ["text", "text_pair", "label"], [["a", " ", "0"]])
    assert f"{path}, line 2: missing pair: column 'text_pair' is blank" in load_error(path)


def test_json_lines_with_numbers_and_missing_keys(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    rows = [{"text": "a"}, {"text": 5, "label": True}, {"text": "b", "label": False}, {"text": "c", "label": True}]
    rows += [{"text": "d", "label": float("nan")}, {"text": ["e"], "label": True}, {"text": "\ud83d", "label": True}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert f"{path}, line 1: missing label" in load_error(path)
    task = load(path, skip_bad=True)
    assert task.labels == ("false", "true")
    assert [e.text for e in all_examples(task)] == ["5", "b", "c"]
    assert task.skipped == {"missing label": 2, "wrong type": 1, "broken character": 1}


def test_equal_numbers_are_one_label(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    labels = [1, 1.0, 2, 2.0, 1.5, 2.5]
    path.write_text("".join(json.dumps({"text": f"t{i}", "label": x}) + "\n" for i, x in enumerate(labels)), "utf-8")
    assert load(path, kind="classify").labels == ("1", "1.5", "2", "2.5")


def test_split_seed_draws_another_stratified_dev(tmp_path: Path) -> None:
    path = write_reviews(tmp_path, ["good", "bad", "bad", "bad"] * 50)
    draws = [load(path, split_seed=seed) for seed in (0, 0, 1, 2)]
    chosen = [{e.id for e in task["dev"]} for task in draws]
    assert chosen[0] == chosen[1] == {e.id for e in load(path)["dev"]}
    assert len({frozenset(ids) for ids in chosen}) == 3
    assert all([sum(e.label == label for e in task["dev"]) for label in (0, 1)] == [15, 5] for task in draws)
    dev = write_reviews(tmp_path, ["good", "bad"], name="dev.csv")
    assert "split_seed chooses the rows of train that are held out as dev" in load_error(path, dev=dev, split_seed=1)
    assert "split_seed: got -1" in load_error(path, split_seed=-1)


def test_dev_label_missing_from_train_is_an_error(tmp_path: Path) -> None:
    train, dev = write_reviews(tmp_path, "ab" * 4), write_reviews(tmp_path, "abc", name="dev.csv")
    message = load_error(train, dev=dev)
    assert f"{dev}, line 4: unknown label: got 'c', expected a label of the training rows: ['a', 'b']" in message
    task = load(train, dev=dev, skip_bad=True)
    assert task.skipped == {"unknown label": 1}
    assert len(task["dev"]) == 2
    other = write_reviews(tmp_path, "cd", name="other.csv")
    assert "no usable row in the dev data; skipped 2 bad rows" in load_error(train, dev=other, skip_bad=True)


def test_invalid_number_is_an_error(tmp_path: Path) -> None:
    train = write_reviews(tmp_path, ["0.5", "1", "2"])
    dev = write_reviews(tmp_path, ["0.5", "3,5", "1e999", "-1e200"], name="dev.csv")
    assert f"{dev}, line 3: not a number: got '3,5'" in load_error(train, dev=dev)
    assert load(train, dev=dev, skip_bad=True).skipped == {"not a number": 3}


def test_single_class_is_an_error(tmp_path: Path) -> None:
    path = write_reviews(tmp_path, ["a"] * 5)
    assert "all 5 training rows are labelled 'a'; expected at least 2 classes" in load_error(path)


def test_label_that_appears_once_stays_in_train(tmp_path: Path) -> None:
    task = load(write_reviews(tmp_path, [*"ab" * 20, "rare"]))
    assert task.labels == ("a", "b", "rare")
    assert sum(e.label == 2.0 for e in task["train"]) == 1


def test_duplicate_file_is_an_error(tmp_path: Path) -> None:
    path = write_reviews(tmp_path, "ab" * 4)
    assert "given twice" in load_error(path, dev=tmp_path / "." / "my.csv")
    assert "given twice" in load_error([path, path])


def test_no_usable_row_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, ["text", "label"], [["a", ""], ["b", ""]])
    assert "no usable row in the train data; skipped 2 bad rows" in load_error(path, skip_bad=True)


def test_encoding_and_limit_are_applied(tmp_path: Path) -> None:
    path = tmp_path / "my.tsv"
    path.write_bytes(b"text\tlabel\n" + b"".join(f"é{i}\t{i % 2}\n".encode("cp1252") for i in range(50)))
    assert "not utf-16 (byte" in load_error(path, encoding="utf-16")
    task = load(path, encoding="cp1252", limit=30)
    assert len(task["train"]) + len(task["inner"]) == 30
    assert task["train"][0].text.startswith("é")
    assert "max_length: got 0" in load_error(path, max_length=0)


def test_single_byte_that_is_not_utf_8_spoils_its_row_only(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    rows = [f"né \u20ac{i},{'ab'[i % 2]}\n".encode() for i in range(20)]
    path.write_bytes(b"text,label\n" + b"".join([*rows[:5], b"caf\xe9,a\n", *rows[5:]]))
    assert f"{path}, line 7: broken character: column 'text': byte 0xe9 is not UTF-8" in load_error(path)
    task = load(path, skip_bad=True)
    assert task.skipped == {"broken character": 1}
    assert len(all_examples(task)) == 20


def test_guessed_columns_are_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = write(tmp_path, ["mood", "remark"], [["good" if i % 2 else "bad", f"the old town {i}"] for i in range(12)])
    dev = write(tmp_path, ["remark", "mood"], [["a new town", "bad"]], "dev.csv")
    task = load(train, dev=dev)
    assert (task.labels, task["dev"][0].text) == (("bad", "good"), "a new town")
    options = "text_column (--text-column), label_column (--label-column)"
    assert capsys.readouterr().err == f"columns: text 'remark', label 'mood', guessed; set with {options}\n"
    load(train, label_column="mood")
    assert capsys.readouterr().err == "columns: text 'remark', guessed; set with text_column (--text-column)\n"
    load(train, text_column="remark", label_column="mood")
    assert capsys.readouterr().err == ""


def test_columns_are_guessed_from_the_first_rows_only(tmp_path: Path) -> None:
    rows = [[f"the old town {i}", "good" if i >= PEEKED_ROWS - 1 else "bad", i % 9] for i in range(PEEKED_ROWS + 99)]
    assert load(write(tmp_path, ["remark", "mood", "id"], rows)).labels == ("bad", "good")
    rows = [[f"the old town {i}", "good" if i >= PEEKED_ROWS else "bad", i % 9] for i in range(PEEKED_ROWS + 99)]
    assert "'mood' (1 value, e.g. 'bad')" in load_error(write(tmp_path, ["remark", "mood", "id"], rows))


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ([1, 2, 5], "column 'label' holds the numbers 1 to 5 and is classified; use kind=regress (--kind regress) to "),
        ([0, 1], ""),
        (["1", "2", "x"], ""),
        (
            [i / 2 for i in range(30)],
            "column 'label' holds the numbers 0 to 14.5, 30 different ones, and is predicted as a number; "
            "use kind=classify (--kind classify) to predict classes",
        ),
    ],
)
def test_guessed_kind_of_numbers_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: list[object], line: str
) -> None:
    path = write_reviews(tmp_path, labels * 9)
    load(path, text_column="text", label_column="label")
    shown = capsys.readouterr().err
    assert shown.startswith(line)
    assert bool(line) == bool(shown)
    load(path, text_column="text", label_column="label", kind="classify")
    assert "column 'label'" not in capsys.readouterr().err


def test_rare_labels_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev = write_reviews(tmp_path, "ab", name="dev.csv")
    columns = {"text_column": "text", "label_column": "label", "dev": dev}
    load(write_reviews(tmp_path, [*"ab" * 20, "c"]), **columns)
    shown = capsys.readouterr().err
    assert shown.startswith(
        "rare labels: 'c' (1): with fewer than 3 training rows, a label can hardly be learned; add "
    )
    assert shown.count("\n") == 1
    load(write_reviews(tmp_path, [*"ab" * 20, *"cdefghijklm"]), **columns)
    assert "'j' (1) and 3 more: with fewer than 3 training rows" in capsys.readouterr().err
    load(write_reviews(tmp_path, [*"ab" * 20, *"c" * 9]), **columns)
    assert capsys.readouterr().err == ""
    load(write_reviews(tmp_path, ["a|b", "b", "a|c", "a"] * 3), kind="multilabel", **columns)
    assert capsys.readouterr().err.startswith("rare labels: 'c' (")


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(CELL, CELL), min_size=1, max_size=12),
    st.sampled_from([None, "classify", "multilabel", "regress"]),
)
def test_any_table_is_a_task_or_a_one_line_error(rows: list[tuple[str, str]], kind: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), ["text", "label"], rows)
        try:
            task = load(path, kind=kind, skip_bad=True)
        except BadInput:
            return
        assert len(all_examples(task)) + sum(task.skipped.values()) == len(rows)
        assert all(task.splits.values())
