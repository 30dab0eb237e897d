"""Reading label files: every format, one clear line per error, and matching of predictions to gold rows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.evaluation.score_files import GOLD, PREDICTED, pair_labels, read_labels

COLA = ("source", "label", "mark", "sentence")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "index\tprediction\n0\tyes\n1\tno\n"),
        ("a.tsv", "\ufeffindex\tprediction\r\n0\tyes\r\n1\tno"),
        ("a.csv", "prediction,index\n yes ,0\nno,1\n"),
        ("a.csv", 'index;prediction\n"0";"yes"\n1;no\n'),
        ("a.jsonl", '{"index": 0, "prediction": "yes"}\n{"prediction": "no", "index": 1}\n'),
        ("a.json", '{"0": "yes", "1": "no"}'),
    ],
)
def test_all_formats_give_the_same_labels(tmp_path: Path, name: str, content: str) -> None:
    file = read_labels(write(tmp_path / name, content), PREDICTED)
    assert file.labels == ["yes", "no"]
    assert file.id_column is not None
    assert file.cells(file.id_column) == ["0", "1"]


def test_json_values_become_text(tmp_path: Path) -> None:
    file = read_labels(write(tmp_path / "a.json", '{"a": 1, "b": 2.5, "c": true, "d": "x"}'), PREDICTED)
    assert file.labels == ["1", "2.5", "true", "x"]


@pytest.mark.parametrize(
    ("header", "label"),
    [
        ("index\tsentence1\tsentence2\tlabel", "label"),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "Quality"),
        ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "is_duplicate"),
        ("index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label", "gold_label"),
        ("index\tgenre\tsentence1\tsentence2\tscore", "score"),
    ],
)
def test_label_column_of_gold_is_guessed(tmp_path: Path, header: str, label: str) -> None:
    names = header.split("\t")
    path = write(tmp_path / "dev.tsv", header + "\n" + "\t".join(f"value of {name}" for name in names) + "\n")
    assert read_labels(path, GOLD).labels == [f"value of {label}"]


def test_quotes_in_tsv_files_are_plain_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.tsv", 'sentence\tlabel\n"half a quote\t1\na form\x0cfeed\t0\n')
    assert read_labels(path, GOLD).labels == ["1", "0"]


def test_quoted_csv_cell_may_span_lines(tmp_path: Path) -> None:
    file = read_labels(write(tmp_path / "dev.csv", 'text,label\n"one\ntwo",1\nthree,0\n'), GOLD)
    assert (file.labels, file.where(1)) == (["1", "0"], f"{file.path}, line 4")


def test_headerless_file_is_read_with_its_known_columns(tmp_path: Path) -> None:
    bare = write(tmp_path / "dev.tsv", "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tThey sailors.\n")
    assert read_labels(bare, GOLD, headerless_columns=COLA).labels == ["1", "0"]
    headed = write(tmp_path / "own.tsv", "id\tlabel\tmark\ttext\n7\t1\t\tx\n")
    assert read_labels(headed, GOLD, headerless_columns=COLA).labels == ["1"]


def test_encoding_option_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.csv", "text,label\nx,caf\xe9\n".encode("cp1252"))
    assert read_labels(path, GOLD, encoding="cp1252").labels == ["café"]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.txt", "x", "unknown extension '.txt'; known: .json, .csv"),
        ("a.csv", "", "the file is empty"),
        ("a.csv", "  \n", "the file is empty"),
        ("a.csv", b"a\x00b,label\n", "contains a NUL byte"),
        ("a.csv", b"text,label\n\xff,1\n", "not utf-8"),
        ("a.csv", "text,label\n", "no rows"),
        ("a.csv", "text,label\nx\n", "line 2: got 1 cells, expected 2"),
        ("a.csv", "text,label\nx,1\n\n", "line 3: got 0 cells, expected 2"),
        ("a.csv", 'text,label\n"x,1\n', "line 2: broken quotes"),
        ("a.csv", "label,label\n0,1\n", "line 1: two columns are named 'label'"),
        ("a.csv", "text,stuff\nx,1\n", "no label column found among 'text', 'stuff'; name it with --label-column NAME"),
        ("a.csv", "class,label\nx,1\n", "the label column may be 'class' or 'label'; name it with --label-column NAME"),
        ("a.csv", "text,label\nx, \n", "line 2: 'label' is ' ', expected text or a number"),
        ("a.jsonl", '{"label": 1}\n\n', "line 2: not JSON"),
        ("a.jsonl", '{"label": 1}\n[1]\n', "line 2: got [1]"),
        ("a.jsonl", '{"label": 1}\n{"text": 1}\n', "line 2: 'label' is None"),
        ("a.jsonl", '{"label": NaN}\n', "line 1: 'label' is nan"),
        ("a.jsonl", '{"label": [1]}\n', "line 1: 'label' is [1]"),
        ("a.jsonl", '{"label": 1, "label": 2}\n', "the key 'label' is given twice"),
        ("a.json", '{"1": null}', "entry 1: 'label' is None"),
        ("a.json", '{"1": "a", "1": "b"}', "the key '1' is given twice"),
        ("a.json", "[1, 2]", "expected one object"),
        ("a.json", '{"label": 1}\n{"label": 2}\n', "line 2, column 1: not JSON"),
    ],
)
def test_invalid_label_file_error_names_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, part: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(BadInput) as caught:
        assert read_labels(path, GOLD).labels
    assert part in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_missing_columns_and_files_are_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,1\n")
    with pytest.raises(BadInput, match="no column 'stars' among 'text', 'label'; give another --label-column"):
        read_labels(path, GOLD, "stars")
    with pytest.raises(BadInput, match=r"no column 'prediction'.*rename"):
        read_labels(path, PREDICTED)
    both = write(tmp_path / "p.csv", "prediction,Prediction\n1,1\n")
    with pytest.raises(BadInput, match=r"p\.csv: 2 columns are named 'prediction' \(differing in case\); keep one"):
        read_labels(both, PREDICTED)
    with pytest.raises(BadInput, match=r"no such file"):
        read_labels(tmp_path / "none.csv", GOLD)
    with pytest.raises(BadInput, match="encoding: got 'latin-99'"):
        read_labels(path, GOLD, encoding="latin-99")


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["csv", "tsv", "jsonl", "json"]),
    st.lists(st.sampled_from(["label", "id", ",", "\t", "\n", "\r", '"', "{", "}", ":", "1", "0", "é", "\x00", " "])),
)
def test_any_content_is_read_completely_or_refused(tmp_path: Path, suffix: str, parts: list[str]) -> None:
    path = write(tmp_path / f"f.{suffix}", "".join(parts))
    with suppress(BadInput):
        file = read_labels(path, GOLD)
        assert len(file.labels) == len(file) > 0
        if suffix != "csv":  # there a quoted cell may hold lines
            lines = "".join(parts).removesuffix("\n").split("\n")
            assert len(file) == len(lines) - (suffix == "tsv") or suffix == "json"


def paired_labels(tmp_path: Path, gold: str, predicted: str) -> list[tuple[str, str]]:
    suffix = "json" if predicted.startswith("{") else "csv"
    pairs = pair_labels(
        read_labels(write(tmp_path / "dev.csv", gold), GOLD),
        read_labels(write(tmp_path / f"p.{suffix}", predicted), PREDICTED),
    )
    return list(zip(pairs.gold, pairs.predicted, strict=True))


BARE = "text,label\nx,A\ny,B\n"
NAMED = "id,label\nq7,A\nq8,B\n"
COUNTED = "id,label\n1,A\n0,B\n"


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        (BARE, "prediction\na\nb\n"),
        (BARE, "index,prediction\n1,b\n0,a\n"),
        (BARE, "id,prediction\n1,b\n0,a\n"),
        (BARE, '{"1": "b", "0": "a"}'),
        (BARE, '{"dev:3": "b", "dev:2": "a"}'),  # name of the file, line
        (BARE, '{"dev-2:3": "b", "dev-2:2": "a"}'),  # the second file of that name
        (NAMED, "prediction\na\nb\n"),
        (NAMED, "id,prediction\nq8,b\nq7,a\n"),
        (NAMED, "guid,prediction\nq8,b\nq7,a\n"),
        (NAMED, "index,prediction\n1,b\n0,a\n"),  # an index counts rows unless gold has an index too
        (NAMED, '{"q8": "b", "q7": "a"}'),
        (NAMED, '{"dev:3": "b", "dev:2": "a"}'),
        (COUNTED, '{"0": "b", "1": "a"}'),
        (COUNTED, "index,prediction\n1,b\n0,a\n"),
        (COUNTED.replace("id", "index"), "index,prediction\n0,b\n1,a\n"),
    ],
)
def test_predictions_are_matched_to_gold_rows(tmp_path: Path, gold: str, predicted: str) -> None:
    assert paired_labels(tmp_path, gold, predicted) == [("A", "a"), ("B", "b")]


@pytest.mark.parametrize(
    ("gold", "predicted", "part"),
    [
        (BARE, "prediction\na\n", "got 1 predictions for the 2 rows of"),
        (BARE, "index,prediction\n0,a\n", "1 of 2 gold rows have no prediction, the first is '1' ("),
        (BARE, "index,prediction\n0,a\n1,b\n2,c\n", "line 4: '2' is no gold row, nor are 0 others; ids are the row"),
        (BARE, "index,prediction\n0,a\n1,b\n1,b\n", "line 4: id '1' is already at"),
        (BARE, "index,prediction\n0,a\n,b\n", "line 3: 'index' is '', expected"),
        (BARE, '{"train:2": "a", "train:3": "b"}', "the first is '0'"),
        (BARE, '{"dev:2": "a", "dev-2:3": "b"}', "the first is 'dev:3'"),
        (NAMED, '{"q7": "a", "q9": "b"}', "the first is 'q8'"),
        (NAMED, '{"q7": "a", "q8": "b", "q9": "b"}', "entry 3: 'q9' is no gold row"),
        ("id,label\n1,A\n1,B\n", "id,prediction\n1,a\n2,b\n", "line 3: id '1' is already at"),
    ],
)
def test_unmatched_predictions_are_errors(tmp_path: Path, gold: str, predicted: str, part: str) -> None:
    with pytest.raises(BadInput) as caught:
        paired_labels(tmp_path, gold, predicted)
    assert part in str(caught.value)
