"""Tables of rows as people have them: CSV, TSV (as in GLUE, no quoting), JSON lines, Parquet.

Every reader streams, and numbers a row by the line it begins on, as a text editor shows it (Parquet,
which has no lines, from 0). What is wrong with one row goes to ``BadRows``; what is wrong with the
whole file ends the reading.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.core.files import distinct_keys
from bertvision.tasks.readers.encodings import open_file, read_lines
from bertvision.tasks.readers.hub import class_names, with_names
from bertvision.tasks.task import BadRow, BadRows

SUFFIX = ".parquet"

Row = tuple[int, dict[str, object]]

LARGEST_CELL = 2**31 - 1  # the largest limit that the csv module takes on every platform


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """All rows, a batch in memory at a time; labels that the Hub stores as numbers get their names back."""
    open_file(path).close()
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise missing_extra("pyarrow", "tables") from None
    number = -1
    try:
        with parquet.ParquetFile(path) as file:
            names = _label_names(path, file.schema_arrow)
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches())
            for number, row in enumerate(rows):
                yield number, with_names(row, names)
    except BadInput:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as Parquet: {shorten(str(error), 200)}; write it again") from None
    if number < 0:
        raise BadInput(f"{path}: a table without rows; expected at least one row")


def _label_names(path: Path, schema: Any) -> Mapping[str, Sequence[str]]:
    """What ``datasets`` writes beside the columns; a file without it has none."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise BadInput(f"{path}: two columns are named {shorten(name)}; rename one")
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return class_names({column: _feature(told) for column, told in features.items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _feature(told: Any) -> SimpleNamespace:
    """A feature as it is written down: ``{"names": [...]}``, or one of a list under ``feature``."""
    inside = told[0] if isinstance(told, list) else told.get("feature")
    names = told.get("names") if isinstance(told, dict) else None
    return SimpleNamespace(names=names, feature=None if inside is None else _feature(inside))


def is_unicode(text: str) -> bool:
    """False for text that no encoder can take: half a surrogate pair, as in ``"\\ud83d"``."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def read_table(path: Path, bad: BadRows, encoding: str | None = None) -> Iterator[Row]:
    """The good rows of a file as (number, column -> value); the extension says how to read it."""
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: unknown extension {path.suffix!r}; known: {', '.join(FORMATS)}")
    return reader(path, encoding, bad)


def read_headerless(path: Path, names: Sequence[str], bad: BadRows) -> Iterator[Row]:
    """The good rows of a TSV file without a header, e.g. CoLA's; ``names`` are those of all its columns."""
    for number, line in enumerate(read_lines(path, None, newline="\n"), start=1):
        cells = line.rstrip("\r\n").split("\t")
        with bad.row(f"{path}, line {number}"):
            if len(cells) != len(names):
                columns = ", ".join(names)
                raise BadRow("wrong number of cells", f"got {len(cells)}, expected {len(names)}: {columns}, no header")
            yield number, dict(zip(names, cells, strict=True))


def _csv_rows(path: Path, encoding: str | None, bad: BadRows) -> Iterator[Row]:
    advice = "put cells that hold the separator in double quotes"
    return _under_header(path, _csv_records(path, encoding, bad), bad, advice)


def _csv_records(path: Path, encoding: str | None, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    """Records with their first line. A quote that never closes has swallowed rows: that is never skipped."""
    csv.field_size_limit(LARGEST_CELL)
    lines = read_lines(path, encoding, newline="")
    header = next(lines)
    reader = csv.reader(chain([header], lines), delimiter=_delimiter(path, header), strict=True)
    start = 1
    while True:
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where, detail = f"{path}, line {start}", f"{error}; write a quote inside a quoted cell twice"
            if start == 1 or "unexpected end" in str(error):
                raise BadInput(f"{where}: a quoted cell that begins here is not closed properly: {detail}") from None
            bad.add("broken quotes", where, detail)
        start = reader.line_num + 1


def _delimiter(path: Path, header: str) -> str:
    """A semicolon (spreadsheets of half of Europe) only where the header holds no comma at all."""
    if "," in header:
        return ","
    if ";" not in header and "\t" in header:
        raise BadInput(f"{path}: the header is separated by tabs, expected commas; rename the file to .tsv")
    return ";" if ";" in header else ","


def _tsv_rows(path: Path, encoding: str | None, bad: BadRows) -> Iterator[Row]:
    lines = enumerate(read_lines(path, encoding, newline="\n"), start=1)
    records = ((number, line.rstrip("\r\n").split("\t")) for number, line in lines)
    return _under_header(path, records, bad, "a cell cannot hold a tab")


def _under_header(path: Path, records: Iterator[tuple[int, list[str]]], bad: BadRows, advice: str) -> Iterator[Row]:
    """Rows by column name; columns without a name (an index, stray separators) are left out."""
    _, cells = next(records)
    names = _column_names(path, cells)
    number, skipped = 1, bad.counts.total()
    for number, cells in records:
        with bad.row(f"{path}, line {number}"):
            _check_cells(cells, len(names), advice)
            yield number, {name: cell for name, cell in zip(names, cells, strict=True) if name}
    if number == 1 and bad.counts.total() == skipped:
        raise BadInput(f"{path}: a header and no rows; expected at least one row")


def _check_cells(cells: Sequence[str], columns: int, advice: str) -> None:
    if not any(cell.strip() for cell in cells):
        raise BadRow("blank row", "expected cells; delete the line")
    if len(cells) != columns:
        raise BadRow("wrong number of cells", f"got {len(cells)}, expected {columns} as in the header; {advice}")


def _column_names(path: Path, cells: Iterable[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise BadInput(f"{path}, line 1: blank, expected the names of the columns")
    for name in names:
        if name and names.count(name) > 1:
            raise BadInput(f"{path}, line 1: two columns are named {shorten(name)}; rename one (is there a header?)")
    return names


def _json_rows(path: Path, encoding: str | None, bad: BadRows) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, encoding, newline="\n"), start=1):
        with bad.row(f"{path}, line {number}"):
            yield number, _json_object(line)


def _json_object(line: str) -> dict[str, object]:
    if not line.strip():
        raise BadRow("blank row", "expected a JSON object; delete the line")
    try:
        row = json.loads(line, object_pairs_hook=distinct_keys)
    except json.JSONDecodeError as error:
        raise BadRow("not JSON", f"{error.msg} at column {error.colno}; expected one object per line") from None
    except (ValueError, RecursionError) as error:
        raise BadRow("not JSON", f"{error}; expected one object per line") from None
    if not isinstance(row, dict):
        raise BadRow("not a JSON object", f'got {shorten(row)}, expected {{"column": value, ...}}')
    return row


FORMATS: dict[str, Callable[[Path, str | None, BadRows], Iterator[Row]]] = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    SUFFIX: lambda path, encoding, bad: parquet_rows(path),
}
