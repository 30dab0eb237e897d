"""Readers of tables: CSV, TSV (as in GLUE, without quoting), JSON lines, Parquet.

Every reader streams. A row's number is the line it starts on, as in a text editor (Parquet: from 0).
Problems of one row go to ``BadRows``; problems of the whole file raise BadInput.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.core.files import reject_duplicate_keys
from bertvision.tasks.readers.encodings import open_file, read_lines
from bertvision.tasks.readers.hub import label_names_by_column, replace_label_ids
from bertvision.tasks.task import BadRow, BadRows

JSON_LINES = (".jsonl", ".ndjson")
TEXT_TABLES = (".csv", ".tsv", *JSON_LINES)
PARQUET = ".parquet"
TABLES = (*TEXT_TABLES, PARQUET)
UNCLOSED = "a quoted cell that starts here is not closed properly"
LARGEST_CELL = 2**31 - 1  # the largest limit that the csv module accepts on every platform

Row = tuple[int, dict[str, object]]
Records = Iterator[tuple[int, list[str]]]  # the line a record starts on, and its cells


def read_table(path: Path, bad: BadRows, encoding: str | None = None) -> Iterator[Row]:
    """The good rows of a file as (number, column -> value); the format is chosen by the extension."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        advice = "put cells that contain the separator in double quotes"
        return _rows_with_header(path, csv_records(path, encoding, bad), bad, advice)
    if suffix == ".tsv":
        return _rows_with_header(path, tsv_records(path, encoding), bad, "a cell cannot contain a tab")
    if suffix in JSON_LINES:
        return _json_rows(path, encoding, bad)
    if suffix == PARQUET:
        return parquet_rows(path)
    raise BadInput(f"{path}: unknown extension {path.suffix!r}; known: {', '.join(TABLES)}")


def read_headerless(path: Path, names: Sequence[str], bad: BadRows) -> Iterator[Row]:
    """The good rows of a TSV file without a header, e.g. CoLA's; ``names`` are all its columns."""
    for number, cells in tsv_records(path, None):
        with bad.row(f"{path}, line {number}"):
            if len(cells) != len(names):
                columns = ", ".join(names)
                raise BadRow("wrong number of cells", f"got {len(cells)}, expected {len(names)}: {columns}, no header")
            yield number, dict(zip(names, cells, strict=True))


def csv_records(path: Path, encoding: str | None, bad: BadRows, unclosed: str = UNCLOSED) -> Records:
    """Cells of each record of a CSV file.

    The separator is a semicolon (as in many European locales) only if the header has no comma. A quote that
    is never closed has swallowed rows, so that it raises BadInput with ``unclosed`` and is never skipped.
    """
    csv.field_size_limit(LARGEST_CELL)
    lines = read_lines(path, encoding, newline="")
    header = next(lines)
    if "\t" in header and not {",", ";"} & set(header):
        raise BadInput(f"{path}: the header is separated by tabs, expected commas; rename the file to .tsv")
    delimiter = ";" if ";" in header and "," not in header else ","
    reader = csv.reader(chain([header], lines), delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where, detail = f"{path}, line {start}", f"{error}; write a quote inside a quoted cell twice"
            if start == 1 or "unexpected end" in str(error):
                raise BadInput(f"{where}: {unclosed}: {detail}") from None
            bad.add("broken quotes", where, detail)
        start = reader.line_num + 1


def tsv_records(path: Path, encoding: str | None) -> Records:
    """Cells of each line of a TSV file; quotes have no meaning."""
    for number, line in enumerate(read_lines(path, encoding, newline="\n"), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def column_names(path: Path, cells: Sequence[str]) -> list[str]:
    """The names in a header: at least one that is not blank, and no duplicates."""
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise BadInput(f"{path}, line 1: blank, expected the names of the columns")
    for name in names:
        if name and names.count(name) > 1:
            raise BadInput(f"{path}, line 1: two columns are named {shorten(name)}; rename one (is there a header?)")
    return names


def row_from_cells(names: Sequence[str], cells: Sequence[str]) -> dict[str, object]:
    """Column -> cell; columns without a name (an index, extra separators) are left out."""
    return {name: cell for name, cell in zip(names, cells, strict=True) if name}


def _rows_with_header(path: Path, records: Records, bad: BadRows, advice: str) -> Iterator[Row]:
    """Rows under the names in the first record."""
    names = column_names(path, next(records)[1])
    number, skipped = 1, bad.counts.total()
    for number, cells in records:
        with bad.row(f"{path}, line {number}"):
            if not any(cell.strip() for cell in cells):
                raise BadRow("blank row", "expected cells; delete the line")
            if len(cells) != len(names):
                detail = f"got {len(cells)}, expected {len(names)} as in the header; {advice}"
                raise BadRow("wrong number of cells", detail)
            yield number, row_from_cells(names, cells)
    if number == 1 and bad.counts.total() == skipped:
        raise BadInput(f"{path}: got a header and no rows; expected at least one row")


def _json_rows(path: Path, encoding: str | None, bad: BadRows) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, encoding, newline="\n"), start=1):
        with bad.row(f"{path}, line {number}"):
            if not line.strip():
                raise BadRow("blank row", "expected a JSON object; delete the line")
            yield number, json_object(line)


def json_object(line: str) -> dict[str, object]:
    """Parse one line of JSON lines, or raise :class:`BadRow`."""
    try:
        row = json.loads(line, object_pairs_hook=reject_duplicate_keys)
    except json.JSONDecodeError as error:
        raise BadRow("not JSON", f"{error.msg} at column {error.colno}; expected one object per line") from None
    except (ValueError, RecursionError) as error:
        raise BadRow("not JSON", f"{error}; expected one object per line") from None
    if not isinstance(row, dict):
        raise BadRow("not a JSON object", f'got {shorten(row)}, expected {{"column": value, ...}}')
    return row


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """All rows, one batch in memory at a time; labels that ``datasets`` stores as ids get their names back."""
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
                yield number, replace_label_ids(row, names)
    except BadInput:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as Parquet: {shorten(str(error), 200)}; write it again") from None
    if number < 0:
        raise BadInput(f"{path}: got a table without rows; expected at least one row")


def _label_names(path: Path, schema: Any) -> Mapping[str, Sequence[str]]:
    """Label names by column from the metadata that ``datasets`` writes; none without it."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise BadInput(f"{path}: two columns are named {shorten(name)}; rename one")
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return label_names_by_column({column: _parse_feature(feature) for column, feature in features.items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _parse_feature(feature: Any) -> SimpleNamespace:
    """A feature from its JSON: ``{"names": [...]}``, or a list of features or ``{"feature": ...}``."""
    element = feature[0] if isinstance(feature, list) else feature.get("feature")
    names = feature.get("names") if isinstance(feature, dict) else None
    return SimpleNamespace(names=names, feature=None if element is None else _parse_feature(element))
