"""Scores of label files: all of them for a table of one's own, the official ones for tasks that have a name.

Wang et al. 2018, https://arxiv.org/abs/1804.07461, table 1; the diagnostic set ``ax`` is scored by
Matthews correlation of its three labels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import unknown_name
from bertvision.evaluation.metrics.labels import classification_scores
from bertvision.evaluation.metrics.squad import read_by_id, read_gold
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.tasks import answerability
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.readers.columns import LABELS
from bertvision.tasks.readers.encodings import read_lines
from bertvision.tasks.readers.files import (
    JSON_LINES,
    TEXT_TABLES,
    Records,
    Row,
    column_names,
    csv_records,
    json_object,
    row_from_cells,
    tsv_records,
)
from bertvision.tasks.readers.squad_json import read_bytes
from bertvision.tasks.task import BadRow, BadRows

GOLD = (*LABELS, "quality", "is_duplicate")  # the last two: MRPC, QQP
PREDICTED = ("prediction",)
IDS = ("id", "index", "idx", "guid")


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
    headerless_columns: Sequence[str] = (),
) -> LabelFile:
    """Read a file whose label column is ``column`` or, if that is None, the only one called like one of ``names``.

    ``headerless_columns`` are the columns of a file that may come without a header, as GLUE's CoLA does.
    """
    rows = tuple(_rows(path, encoding, headerless_columns))
    columns = tuple(dict.fromkeys(name for _, row in rows for name in row))
    by_id = path.suffix.lower() == ".json"
    return LabelFile(path, rows, columns, "label" if by_id else _label_column(path, columns, names, column))


def _label_column(path: Path, columns: Sequence[str], names: Sequence[str], column: str | None) -> str:
    matches = [name for name in columns if (name == column if column else name.lower() in names)]
    if len(matches) == 1:
        return matches[0]
    among = f"among {', '.join(shorten(name, 40) for name in columns[:20])}"
    if column:
        raise BadInput(f"{path}: no column {column!r} {among}; give another --label-column")
    if names == PREDICTED and matches:
        raise BadInput(f"{path}: {len(matches)} columns are named 'prediction' (differing in case); keep one")
    if names == PREDICTED:
        raise BadInput(f"{path}: no column 'prediction' {among}; rename the column of predictions to that")
    options = f"the label column may be {' or '.join(map(repr, matches))}"
    raise BadInput(
        f"{path}: {options if matches else f'no label column found {among}'}; name it with --label-column NAME"
    )


def _rows(path: Path, encoding: str | None, headerless_columns: Sequence[str]) -> list[Row]:
    suffix = path.suffix.lower()
    if suffix == ".json":
        entries = read_by_id(path, '{"id": label, ...}')
        return [(number, {"id": key, "label": value}) for number, (key, value) in enumerate(entries.items(), 1)]
    if suffix not in TEXT_TABLES:
        raise BadInput(f"{path}: unknown extension {path.suffix!r}; known: .json, {', '.join(TEXT_TABLES)}")
    read_bytes(path, "rows of labels")
    # No guessing of encodings here: a label that is read wrongly would be a wrong score.
    encoding = encoding or "utf-8"
    if suffix in JSON_LINES:
        return list(_json_rows(path, encoding))
    if suffix == ".csv":
        records = csv_records(path, encoding, BadRows(skip=False, advice=""), unclosed="broken quotes")
    else:
        records = tsv_records(path, encoding)
    rows = list(_under_header(path, records, headerless_columns))
    if not rows:
        raise BadInput(f"{path}: no rows; expected a header and at least one row")
    return rows


def _under_header(path: Path, records: Records, headerless_columns: Sequence[str]) -> Iterator[Row]:
    """Rows by the names in the first record, or by ``headerless_columns`` where that is a row already."""
    number, first = next(records)
    if len(first) == len(headerless_columns) and "label" not in [cell.strip().lower() for cell in first]:
        names = list(headerless_columns)
        yield number, row_from_cells(names, first)
    else:
        names = column_names(path, first)
    for number, cells in records:
        if len(cells) != len(names):
            raise BadInput(f"{path}, line {number}: got {len(cells)} cells, expected {len(names)} as in the first line")
        yield number, row_from_cells(names, cells)


def _json_rows(path: Path, encoding: str) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, encoding, newline="\n"), 1):
        try:
            yield number, json_object(line)
        except BadRow as error:
            what = "not JSON: " if error.reason == "not JSON" else ""
            raise BadInput(f"{path}, line {number}: {what}{error.detail}") from None


@dataclass(frozen=True)
class LabelPairs:
    """Labels as written, gold row by gold row, and where each comes from."""

    gold: list[str]
    predicted: list[str]
    gold_locations: list[str]
    predicted_locations: list[str]


def pair_labels(gold: LabelFile, predicted: LabelFile) -> LabelPairs:
    """Every gold row with its one prediction; a row too many or too few on either side is named."""
    if predicted.id_column is not None:
        order: Sequence[int] = _by_id(gold, predicted)
    elif len(gold) == len(predicted):
        order = range(len(gold))
    else:
        raise BadInput(
            f"{predicted.path}: got {len(predicted)} predictions for the {len(gold)} rows of {gold.path}; "
            "expected one per row, in order (or a column 'id' or 'index')"
        )
    labels = predicted.labels
    return LabelPairs(
        gold.labels,
        [labels[row] for row in order],
        [gold.where(row) for row in range(len(gold))],
        [predicted.where(row) for row in order],
    )


def _by_id(gold: LabelFile, predicted: LabelFile) -> list[int]:
    """The prediction's row for each gold row."""
    what, gold_ids = _gold_ids(gold, predicted)
    rows = _rows_by_id(predicted, predicted.cells(predicted.id_column or ""))
    gold_rows = _rows_by_id(gold, gold_ids)
    extra = [key for key in rows if key not in gold_rows]
    missing = [key for key in gold_rows if key not in rows]
    if missing:
        raise BadInput(
            f"{predicted.path}: {len(missing)} of {len(gold)} gold rows have no prediction, the first is "
            f"{shorten(missing[0])} ({gold.where(gold_rows[missing[0]])}); ids are {what}"
        )
    if extra:
        raise BadInput(
            f"{predicted.where(rows[extra[0]])}: {shorten(extra[0])} is no gold row, nor are {len(extra) - 1} others; "
            f"ids are {what}"
        )
    return [rows[key] for key in gold_ids]


def _rows_by_id(file: LabelFile, ids: Sequence[str]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, key in enumerate(ids):
        if key in rows:
            raise BadInput(
                f"{file.where(row)}: id {shorten(key)} is already at {file.where(rows[key])}; expected it once"
            )
        rows[key] = row
    return rows


def _gold_ids(gold: LabelFile, predicted: LabelFile) -> tuple[str, list[str]]:
    """What the ids of the predictions are of the gold file, in words, and its rows by them.

    A column of the same name, first of all. Else an ``index`` counts rows from 0, as in GLUE; a key
    like ``dev:17`` (``dev-2:17`` for a second file of that name) is the file's stem and line, as runs
    name their examples; anything else is the gold file's id column or, for want of one, again the row.
    """
    column = predicted.id_column or ""
    by_key = predicted.path.suffix.lower() == ".json"
    prefix = predicted.cells(column)[0].rpartition(":")[0]
    if column in gold.columns and column != gold.label_column and not by_key:
        return f"column {column!r} of {gold.path}", gold.cells(column)
    if by_key and re.fullmatch(rf"{re.escape(gold.path.stem)}(-\d+)?", prefix):
        return f"{prefix}:line of {gold.path}", [f"{prefix}:{line}" for line, _ in gold.rows]
    if gold.id_column is not None and column.lower() != "index":
        return f"column {gold.id_column!r} of {gold.path}", gold.cells(gold.id_column)
    return f"the row numbers of {gold.path}, from 0", [str(row) for row in range(len(gold))]


@dataclass(frozen=True)
class TaskScoring:
    """How a task is scored: metrics, and labels by number (a file may write either); no labels: values."""

    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    headerless_columns: tuple[str, ...] = ()  # columns of a gold file that comes without a header


TASK_SCORING = {
    **{name: TaskScoring(task.labels, tuple(sorted(task.metrics)), task.header) for name, task in GLUE.items()},
    "answerability": TaskScoring(answerability.LABELS, ("accuracy", "f1")),
}


def find_task_scoring(task: str) -> tuple[str, TaskScoring | None]:
    """Canonical name and record, None for ``classify`` and ``regress``; SST-2 is sst2, sts_b is stsb."""
    plain = {_plain(name): name for name in ("classify", "regress", *TASK_SCORING)}
    name = plain.get(_plain(task))
    if name is None:
        raise BadInput(unknown_name("task to score", task, ["squad1", "squad2", *plain.values()]))
    return name, TASK_SCORING.get(name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def score_label_files(
    task: str,
    golds: Sequence[Path],
    predicted: Path,
    label_column: str | None = None,
    labels: Sequence[str] = (),
    encoding: str | None = None,
) -> tuple[str, int, dict[str, float]]:
    """(task, rows, scores times 100). ``labels`` are all that there are; of two, the second is the positive one.

    One gold file; the gold of ``answerability`` are SQuAD files, as many as there are.
    """
    name, official = find_task_scoring(task)
    values = name == "regress" or (official is not None and not official.labels)
    _check_labels(name, labels, 0 if values else len(official.labels) if official else None)
    if len(golds) != 1 and name != "answerability":
        raise BadInput(f"score {name} needs one gold file and one of predictions, got {len(golds) + 1} files")
    if name == "answerability":
        gold = _squad_labels(golds)
    else:
        gold = read_labels(golds[0], GOLD, label_column, encoding, official.headerless_columns if official else ())
    pairs = pair_labels(gold, read_labels(predicted, PREDICTED, encoding=encoding))
    sides = ((pairs.gold, pairs.gold_locations), (pairs.predicted, pairs.predicted_locations))
    if values:
        scores = regression_scores(*(_values(*side) for side in sides))
    else:
        numbers = _numbers(pairs, official, labels)
        truth, answers = (_numbered(*side, numbers) for side in sides)
        scores = classification_scores(truth, answers, len(set(numbers.values())))
    wanted = official.metrics if official else tuple(scores)
    return name, len(pairs.gold), {metric: scores[metric] for metric in wanted}


def _squad_labels(golds: Sequence[Path]) -> LabelFile:
    """Questions with the label that having answers gives them."""
    names = TASK_SCORING["answerability"].labels
    rows: list[Row] = []
    for number, (qid, texts) in enumerate(read_gold(golds).items(), 1):
        rows.append((number, {"id": qid, "label": names[not texts]}))
    return LabelFile(golds[0], tuple(rows), ("id", "label"), "label")


def _numbers(pairs: LabelPairs, official: TaskScoring | None, labels: Sequence[str]) -> dict[str, int]:
    """The number of everything that a label may be written as."""
    if labels or official is None:
        return {label: number for number, label in enumerate(labels or _label_names(pairs.gold))}
    written = {str(number): number for number in range(len(official.labels))}
    return written | {label: number for number, label in enumerate(official.labels)}


def _check_labels(task: str, labels: Sequence[str], count: int | None) -> None:
    if labels and count == 0:
        raise BadInput(f"labels: {task} predicts values; leave it out")
    if labels and count not in (None, len(labels)):
        raise BadInput(f"labels: got {len(labels)}, expected the {count} of {task}")
    if len(set(labels)) < len(labels) or not all(labels):
        raise BadInput(f"labels: got {shorten(list(labels))}, expected different names")


def _label_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels that occur, numbers by size, else by name; the order in which ``text`` tasks number them."""
    sizes = {name: _number(name) for name in set(labels)}
    by_size = None not in sizes.values()
    return tuple(sorted(sizes, key=lambda name: ((sizes[name] or 0.0) if by_size else 0.0, name)))


def _numbered(labels: Sequence[str], locations: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    for label, location in zip(labels, locations, strict=True):
        if label not in numbers:
            listed = shorten(list(numbers), 200)
            raise BadInput(f"{location}: got label {shorten(label)}, expected one of {listed} (or give all labels)")
    return [numbers[label] for label in labels]


def _values(labels: Sequence[str], locations: Sequence[str]) -> list[float]:
    values = []
    for label, location in zip(labels, locations, strict=True):
        value = _number(label)
        if value is None:
            raise BadInput(f"{location}: got {shorten(label)}, expected a finite number")
        values.append(value)
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
