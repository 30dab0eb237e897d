"""Reading tables: round trips, and a clear one-line error for everything that is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.readers.files import Row, read_table
from bertvision.tasks.task import BadRows

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FILLED = TEXT.map("x{}".format)
FLAT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), max_size=12)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def rows_of(path: Path, encoding: str | None = None) -> list[Row]:
    return list(read_table(path, BadRows(skip=False), encoding))


def read_error(path: Path, encoding: str | None = None, skip: bool = False) -> str:
    with pytest.raises(BadInput) as error:
        list(read_table(path, BadRows(skip), encoding))
    return str(error.value)


@QUICK
@given(st.lists(st.tuples(FILLED, TEXT, TEXT), min_size=1, max_size=8), st.sampled_from(",;"), st.booleans())
def test_csv_survives_a_round_trip(table: list[tuple[str, str, str]], delimiter: str, bom: bool) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerow(["a", "b", "c"])
    expected = []
    for cells in table:
        line = 1 + len(re.findall("\r\n|\r|\n", buffer.getvalue()))
        expected.append((line, dict(zip("abc", cells, strict=True))))
        writer.writerow(cells)
    with tempfile.TemporaryDirectory() as folder:
        content = buffer.getvalue().encode("utf-8-sig" if bom else "utf-8")
        assert rows_of(write(Path(folder), "t.csv", content)) == expected


@QUICK
@given(st.lists(st.tuples(FLAT.map("x{}".format), FLAT), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_tsv_survives_a_round_trip(table: list[tuple[str, str]], newline: str) -> None:
    content = newline.join(["a\tb", *("\t".join(cells) for cells in table), ""])
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(write(Path(folder), "t.tsv", content))
    assert rows == [(line, dict(zip("ab", cells, strict=True))) for line, cells in enumerate(table, start=2)]


@QUICK
@given(st.lists(st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT), min_size=1, max_size=8))
def test_json_lines_survive_a_round_trip(table: list[dict[str, object]]) -> None:
    for name in ("t.jsonl", "t.NDJSON"):
        with tempfile.TemporaryDirectory() as folder:
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table)
            assert rows_of(write(Path(folder), name, content)) == list(enumerate(table, start=1))


@QUICK
@given(st.binary(max_size=80), st.sampled_from([".csv", ".tsv", ".jsonl"]), st.booleans(), st.booleans())
def test_any_bytes_are_rows_or_a_one_line_error(content: bytes, extension: str, skip: bool, header: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), f"t{extension}", b"x,y\n" * header + content)
        try:
            rows = list(read_table(path, BadRows(skip)))
        except BadInput as error:
            assert str(path) in str(error)
        else:
            assert all(line >= 1 and isinstance(row, dict) for line, row in rows)


def test_quoted_csv_cell_may_contain_newlines_separators_and_quotes(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", 'text,label\n"two\nlines, ""quoted""",1\nplain,0\n')
    assert rows_of(path) == [
        (2, {"text": 'two\nlines, "quoted"', "label": "1"}),
        (4, {"text": "plain", "label": "0"}),
    ]


def test_csv_cell_may_be_huge(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "text,label\n" + "x" * 300_000 + ",1\n")
    assert len(str(rows_of(path)[0][1]["text"])) == 300_000


def test_tsv_quotes_are_literal(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", '\ufeffa\tb\n" open\tb"\n')
    assert rows_of(path) == [(2, {"a": '" open', "b": 'b"'})]


def test_tsv_rows_end_at_line_feeds_only(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "a\tb\nx\ry\u2028z\t1\n")
    assert rows_of(path) == [(2, {"a": "x\ry\u2028z", "b": "1"})]


def test_columns_without_a_name_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", ", text ,,label,\n0,a,,1,\n")
    assert rows_of(path) == [(2, {"text": "a", "label": "1"})]


def test_read_table_streams(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", b"a,b\n1,2\n" + b"3,4\n" * 50_000 + b"\xff")
    rows = read_table(path, BadRows(skip=False), "utf-8")
    assert next(rows) == (2, {"a": "1", "b": "2"})
    with pytest.raises(BadInput, match="offset 200008"):
        list(rows)


@pytest.mark.parametrize(
    ("name", "content", "line", "parts"),
    [
        ("t.csv", "a,b\n1,2\n1\n", 3, ["wrong number of cells", "got 1, expected 2", "double quotes"]),
        ("t.csv", "a,b\n1,2,3\n", 2, ["wrong number of cells", "got 3, expected 2"]),
        ("t.tsv", "a\tb\n1\t2\t3\n", 2, ["wrong number of cells", "got 3, expected 2", "tab"]),
        ("t.csv", "a,b\n\n1,2\n", 2, ["blank row", "delete the line"]),
        ("t.csv", "a,b\n , \n", 2, ["blank row"]),
        ("t.tsv", "a\tb\n1\t2\n\n", 3, ["blank row"]),
        ("t.csv", 'a,b\n"1"x,2\n', 2, ["broken quotes", "twice"]),
        ("t.jsonl", '{"a": 1}\n\n', 2, ["blank row"]),
        ("t.jsonl", '{"a": 1}\n{"a": 1,}\n', 2, ["not JSON", "column", "one object per line"]),
        ("t.jsonl", "[1, 2]\n", 1, ["not a JSON object", "got [1, 2]"]),
        ("t.jsonl", '{"a": 1, "a": 2}\n', 1, ["'a' is given twice"]),
        ("t.jsonl", "[" * 100_000, 1, ["not JSON"]),
        ("t.jsonl", '{"a": ' + "9" * 5000 + "}", 1, ["not JSON"]),
    ],
)
def test_bad_row_is_an_error_or_counted(tmp_path: Path, name: str, content: str, line: int, parts: list[str]) -> None:
    path = write(tmp_path, name, content)
    message = read_error(path)
    for part in [f"{path}, line {line}: ", "--skip-bad", *parts]:
        assert part in message
    bad = BadRows(skip=True)
    rows = list(read_table(path, bad))
    assert bad.counts.total() == 1
    assert all(number != line for number, _ in rows)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("t.csv", "", ["the file is empty"]),
        ("t.jsonl", "", ["the file is empty"]),
        ("t.csv", "a,b\n", ["a header and no rows"]),
        ("t.tsv", "a\tb", ["a header and no rows"]),
        ("t.csv", "\n1,2\n", ["line 1: blank", "names of the columns"]),
        ("t.csv", "\ufeff", ["line 1: blank"]),
        ("t.csv", "a,b, a\n1,2,3\n", ["line 1: two columns are named 'a'"]),
        ("t.csv", "a\tb\n1\t2\n", ["tabs", ".tsv"]),
        ("t.csv", 'a,b\n1,2\n"open,3\n4,5\n', ["line 3: a quoted cell", "unexpected end"]),
        ("t.csv", '"a"x,b\n1,2\n', ["line 1: a quoted cell"]),
        ("t.csv", "a,b\n1,2\n3,\0\n", ["line 3: contains a NUL byte", "encoding=utf-16"]),
        ("t.tsv", "a\tb\n1\t\0\n", ["line 2: contains a NUL"]),
        ("t.jsonl", '{"a": "\0"}', ["line 1: contains a NUL"]),
        ("t.xlsx", "a", ["unknown extension '.xlsx'", ".csv, .tsv, .jsonl, .ndjson, .parquet"]),
        ("t", "a", ["unknown extension ''"]),
    ],
)
def test_bad_file_is_an_error_even_with_skip_bad(tmp_path: Path, name: str, content: str, parts: list[str]) -> None:
    path = write(tmp_path, name, content)
    for skip in (False, True):
        message = read_error(path, skip=skip)
        assert all(part in message for part in [str(path), *parts]), message


def test_missing_file_and_folder_are_errors(tmp_path: Path) -> None:
    assert "none.csv: no such file" in read_error(tmp_path / "none.csv")
    (tmp_path / "d.csv").mkdir()
    assert "d.csv: this is a folder" in read_error(tmp_path / "d.csv")
    assert "cannot be read" in read_error(tmp_path / ("x" * 300 + ".csv"))
