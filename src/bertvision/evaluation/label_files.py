"""Files of labels, gold or predicted, as a table of rows: CSV, TSV as in GLUE (no quoting), JSON lines, {id: label}.

Labels stay as they are written; what they mean depends on the task. Nothing is skipped: the first row
that cannot be used is named.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.convert import distinct_keys
from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.metrics.json_files import read_by_id

GLUE = ("gold_label", "quality", "is_duplicate")  # MNLI, MRPC, QQP
GOLD = ("label", "labels", "class", "target", "sentiment", "score", "category", "rating", "stars", *GLUE)
PREDICTED = ("prediction",)
IDS = ("id", "index", "idx", "guid")

LARGEST_CELL = 2**31 - 1  # the largest limit that the csv module takes on every platform

Row = tuple[int, dict[str, object]]
Records = Iterator[tuple[int, list[str]]]


@dataclass(frozen=True)
class LabelFile:
    """Rows with the line each begins on (of {id: label} JSON: its number), and which column is the label."""

    path: Path
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    label_column: str

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.path}, {'entry' if self.path.suffix.lower() == '.json' else 'line'} {self.rows[row][0]}"

    @property
    def labels(self) -> list[str]:
        return self.cells(self.label_column)

    @property
    def id_column(self) -> str | None:
        """The first column that is called like an id."""
        return next((name for name in self.columns if name.lower() in IDS and name != self.label_column), None)

    def cells(self, column: str) -> list[str]:
        """A column as text without outer blanks; in JSON it may be numbers, true and false. None may be blank."""
        return [self._cell(row, values.get(column), column) for row, (_, values) in enumerate(self.rows)]

    def _cell(self, row: int, value: object, column: str) -> str:
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if value is None or value != value or isinstance(value, dict | list) or not text:  # NaN is not itself
            raise BadInput(f"{self.where(row)}: {column!r} is {shorten(value)}, expected text or a number")
        return text


def read_labels(
    path: Path,
    names: Sequence[str],
    column: str | None = None,
    encoding: str | None = None,
    headless: Sequence[str] = (),
) -> LabelFile:
    """Read a file whose label column is ``column`` or, if that is None, the only one called like one of ``names``.

    ``headless`` are the columns of a file that may come without a header, as GLUE's CoLA does.
    """
    rows = tuple(_rows(path, encoding, headless))
    there = tuple(dict.fromkeys(name for _, row in rows for name in row))
    by_id = path.suffix.lower() == ".json"
    return LabelFile(path, rows, there, "label" if by_id else _label_column(path, there, names, column))


def _label_column(path: Path, there: Sequence[str], names: Sequence[str], column: str | None) -> str:
    found = [name for name in there if (name == column if column else name.lower() in names)]
    if len(found) == 1:
        return found[0]
    has = f"the file has: {', '.join(shorten(name, 40) for name in there[:20])}"
    if column:
        raise BadInput(f"{path}: no column {column!r}; {has}; name another --label-column")
    if not found and names == PREDICTED:
        raise BadInput(f"{path}: no column 'prediction'; {has}; rename the column of predictions to that")
    why = f"the label may be {' or '.join(map(repr, found))}" if found else "no column is called like a label"
    raise BadInput(f"{path}: {why}; {has}; give --label-column")


def _rows(path: Path, encoding: str | None, headless: Sequence[str]) -> list[Row]:
    if path.suffix.lower() == ".json":
        entries = read_by_id(path, '{"id": label, ...}')
        return [(number, {"id": key, "label": value}) for number, (key, value) in enumerate(entries.items(), 1)]
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: unknown extension {path.suffix!r}; known: .json, {', '.join(FORMATS)}")
    rows = list(reader(path, _text(path, encoding), headless))
    if not rows:
        raise BadInput(f"{path}: no rows; expected a header and at least one row")
    return rows


def _text(path: Path, encoding: str | None) -> str:
    try:
        text = path.read_bytes().decode(encoding or "utf-8-sig").removeprefix("\ufeff")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); expected a file of labels") from None
    except LookupError:
        raise BadInput(f"--encoding: got {shorten(encoding)}, expected one Python knows: utf-8, cp1252 ...") from None
    except UnicodeError as error:
        raise BadInput(f"{path}: not {encoding or 'utf-8'}: {error}; give the --encoding it was saved in") from None
    if "\0" in text or not text.strip():
        raise BadInput(f"{path}: {'holds a NUL' if text.strip() else 'the file is empty'}; expected rows of text")
    return text


def _csv_rows(path: Path, text: str, headless: Sequence[str]) -> Iterator[Row]:
    header = text.split("\n", 1)[0]
    return _under_header(path, _csv_records(path, text, ";" if ";" in header and "," not in header else ","), headless)


def _csv_records(path: Path, text: str, delimiter: str) -> Records:
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, line {start}: broken quotes: {error}; write a quote in a quoted cell twice") from None


def _tsv_rows(path: Path, text: str, headless: Sequence[str]) -> Iterator[Row]:
    lines = text.removesuffix("\n").split("\n")  # no splitlines: a form feed does not end a row
    records = ((number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines, 1))
    return _under_header(path, records, headless)


def _under_header(path: Path, records: Records, headless: Sequence[str]) -> Iterator[Row]:
    number, first = next(records)
    bare = len(first) == len(headless) and "label" not in [cell.strip().lower() for cell in first]
    names = list(headless) if bare else _column_names(path, first)
    if bare:
        yield number, dict(zip(names, first, strict=True))
    for number, cells in records:
        if len(cells) != len(names):
            raise BadInput(f"{path}, line {number}: got {len(cells)} cells, expected {len(names)} as in the first line")
        yield number, {name: cell for name, cell in zip(names, cells, strict=True) if name}


def _column_names(path: Path, cells: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"{path}, line 1: two columns are named {shorten(twice)}; rename one (is there a header?)")
    return names


def _json_rows(path: Path, text: str, headless: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            row = json.loads(line, object_pairs_hook=distinct_keys)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}: not JSON: {error}; expected one object per line") from None
        if not isinstance(row, dict):
            raise BadInput(f'{path}, line {number}: got {shorten(row)}, expected {{"column": value, ...}}')
        yield number, row


FORMATS: Mapping[str, Callable[[Path, str, Sequence[str]], Iterator[Row]]] = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
}
