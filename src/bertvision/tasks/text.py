"""The ``text`` task: a user's own table of texts, or pairs of texts, with a label, several, or a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Example, Kind
from bertvision.tasks.readers.columns import Columns, RequestedColumns, cell_text, choose_columns, is_number, read_cell
from bertvision.tasks.readers.sources import Table, Tabular, find_tables
from bertvision.tasks.splits import make_splits
from bertvision.tasks.task import TASKS, BadRow, BadRows, Task, check_integer

SEPARATORS = ("|", ";", ",")
"""What may stand between the labels of a cell; where several occur, the first of these is the one."""

YES_NO = {"1": True, "0": False, "true": True, "false": False, "1.0": True, "0.0": False}

RawLabels = str | tuple[str, ...]
"""Labels as a cell has them, still to be split; or as a list or the names of the columns that say 1."""

KINDS: Mapping[str, Kind] = {"classify": "classify", "multilabel": "multilabel", "regress": "regress"}

METRICS = {"classify": "accuracy", "multilabel": "f1_micro", "regress": "spearmanr"}

MOST_NUMBER_CLASSES = 20
"""Whole numbers with more distinct values than this are taken for amounts, not for names of classes."""

PEEKED_ROWS = 100
"""Rows whose keys are taken for the columns of a JSON-lines file; in other tables one row has them all."""


def read_labels(row: Mapping[str, object], columns: Columns) -> RawLabels:
    """The labels of a row as they are written; a blank cell is none."""
    if columns.more:
        marked = []
        for column in (columns.label, *columns.more):
            text = cell_text(row.get(column), column)
            if text.lower() not in YES_NO:
                raise BadRow("not 0 or 1", f"column {column!r}: got {shorten(text)}, expected 0 or 1 (or true, false)")
            if YES_NO[text.lower()]:
                marked.append(column)
        return tuple(marked)
    if columns.label not in row:
        raise BadRow("missing label", f"no {columns.label!r}; expected labels, or an empty one for none")
    value = row[columns.label]
    if isinstance(value, list | tuple):
        return tuple(cell_text(item, columns.label) for item in value)
    return cell_text(value, columns.label)


def find_separator(written: Iterable[RawLabels]) -> str:
    """The first of the known separators that stands in any of the cells."""
    cells = [cell for cell in written if isinstance(cell, str)]
    used = (separator for separator in SEPARATORS if any(separator in cell for cell in cells))
    return next(used, SEPARATORS[0])


def split_labels(written: RawLabels, separator: str) -> tuple[str, ...]:
    """Labels, each once, in the order they are written."""
    parts = written.split(separator) if isinstance(written, str) else written
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A row whose label is still as written: what it means depends on all the others."""

    where: str
    example: Example
    label: RawLabels


@TASKS.register("text")
def load_text(
    train: Tabular | None = None,
    dev: Tabular | None = None,
    *,
    hub: str | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    label_separator: str | None = None,
    kind: str | None = None,
    encoding: str | None = None,
    split_seed: int = 0,
    limit: int | None = None,
    skip_bad: bool = False,
    max_length: int = 256,
) -> Task:
    """CSV, TSV, JSON lines, Parquet, pandas or a data set of the Hub; labels, sets of labels or numbers.

    Columns and kind are guessed where that leaves no doubt; ``multilabel`` is asked for, or follows
    from several label columns. Without ``dev``, a tenth of the rows is cut off for it, another tenth
    for every ``split_seed``. ``limit`` takes that many training rows, spread over all files by a
    hash, and leaves at most as many for dev.
    """
    check_integer("max_length", max_length, 1)
    label_columns = (label_column,) if isinstance(label_column, str) else tuple(label_column or ())
    kind = _check_kind(kind, len(label_columns) > 1, label_separator)
    bad = BadRows(skip_bad)
    wanted = RequestedColumns(text_column, pair_column, label_columns[0] if label_columns else None, label_columns[1:])
    rows = _read_tables(find_tables(train, dev, hub, encoding), wanted, bad, kind == "multilabel")
    settled = KINDS[kind or _guess_kind(rows["train"])]
    if settled == "multilabel":
        separator = label_separator or find_separator(row.label for row in rows["train"])
        for split, part in rows.items():
            rows[split] = [replace(row, label=split_labels(row.label, separator)) for row in part]
    labels = _label_names(rows["train"], settled, label_columns if len(label_columns) > 1 else ())
    examples = {split: _number_labels(split, part, labels, bad) for split, part in rows.items()}
    stratify = settled != "regress"
    return Task(
        name="text",
        kind=settled,
        splits=make_splits(examples["train"], examples.get("dev"), stratify=stratify, limit=limit, seed=split_seed),
        metric=METRICS[settled],
        labels=labels,
        max_length=max_length,
        overlap=0,
        skipped=dict(bad.counts),
    )


def _check_kind(kind: str | None, several: bool, separator: str | None) -> str | None:
    if kind not in (None, *KINDS):
        raise BadInput(f"--kind: got {shorten(kind)}, expected classify, multilabel or regress")
    if several and kind not in (None, "multilabel"):
        raise BadInput(f"--label-column: got several columns, which are for --kind multilabel; --kind is {kind}")
    kind = "multilabel" if several else kind
    if separator is not None and (kind != "multilabel" or several or not separator):
        raise BadInput("--label-separator is for --kind multilabel with all labels of a text in one cell")
    return kind


def _read_tables(
    tables: Sequence[Table], wanted: RequestedColumns, bad: BadRows, sets: bool
) -> dict[str, list[LabelledRow]]:
    """Rows by split; columns that were guessed in one table are the columns of those after it."""
    rows: dict[str, list[LabelledRow]] = {}
    for table in tables:
        part = rows.setdefault(table.split, [])
        unread = table.read(bad)
        peeked = list(islice(unread, PEEKED_ROWS))
        if not peeked:
            continue
        names = list(dict.fromkeys(name for _, row in peeked for name in row))
        columns = choose_columns(names, wanted, table.where)
        wanted = RequestedColumns(columns.text, columns.pair, columns.label, columns.more)
        for number, row in chain(peeked, unread):
            where = table.place(number)
            with bad.row(where):
                text = read_cell(row, columns.text, "text")
                pair = read_cell(row, columns.pair, "pair") if columns.pair else None
                label = read_labels(row, columns) if sets else _read_label(row, columns.label)
                part.append(LabelledRow(where, Example(f"{table.name}:{number}", text, pair), label))
    return rows


def _read_label(row: Mapping[str, object], column: str) -> str:
    if isinstance(row.get(column), list | tuple):
        detail = f"column {column!r}: got {shorten(row[column])}, expected one label (or give --kind multilabel)"
        raise BadRow("wrong type", detail)
    return read_cell(row, column, "label")


def _guess_kind(rows: Sequence[LabelledRow]) -> str:
    """Numbers that are not all whole, or take many values, are values to predict; other labels are classes.

    A column in which most rows have a value of their own, and not all are numbers, is neither.
    """
    values = {str(row.label) for row in rows}
    words = [value for value in values if not is_number(value)]
    if not words:
        whole = all(float(value).is_integer() for value in values)
        return "classify" if whole and len(values) <= MOST_NUMBER_CLASSES else "regress"
    if len(values) > max(MOST_NUMBER_CLASSES, len(rows) / 2):
        raise BadInput(
            f"{len(values)} different labels in {len(rows)} rows, e.g. {shorten(min(words))}: neither classes nor "
            "numbers throughout; give another --label-column, or --kind classify, multilabel or regress"
        )
    return "classify"


def _label_names(rows: Sequence[LabelledRow], kind: Kind, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The labels in order: as the columns were given, else numbers by size, else by name; none for values."""
    if columns or kind == "regress":
        return columns
    names: set[str] = set()
    for row in rows:
        names.update(row.label if isinstance(row.label, tuple) else (row.label,))
    if len(names) == 1 and kind == "classify":
        raise BadInput(f"all {len(rows)} training rows are labelled {shorten(min(names))}; expected at least 2 classes")
    if len(names) < 2 and kind == "multilabel":
        only = shorten(min(names)) if names else "none"
        raise BadInput(f"the training rows hold {only} as label; --kind multilabel expects at least 2 labels")
    numbers = all(is_number(name) for name in names)
    return tuple(sorted(names, key=lambda name: (float(name) if numbers else 0.0, name)))


def _number_labels(split: str, rows: Sequence[LabelledRow], labels: Sequence[str], bad: BadRows) -> list[Example]:
    """The examples with their labels as numbers: indices into ``labels`` or, without those, the value."""
    indices = {label: index for index, label in enumerate(labels)}
    examples = []
    for row in rows:
        with bad.row(row.where):
            if isinstance(row.label, tuple):
                several = tuple(sorted(_index(label, indices) for label in row.label))
                examples.append(replace(row.example, labels=several))
            elif labels:
                examples.append(replace(row.example, label=float(_index(row.label, indices))))
            elif is_number(row.label):
                examples.append(replace(row.example, label=float(row.label)))
            else:
                detail = f"got {shorten(row.label)}, expected a number as label (or give --kind classify)"
                raise BadRow("not a number", detail)
    if not examples:
        raise BadInput(f"no row of the {split} data can be used; {bad}")
    return examples


def _index(label: str, indices: Mapping[str, int]) -> int:
    if label not in indices:
        known = shorten(list(indices), 200)
        raise BadRow("unknown label", f"got {shorten(label)}, expected one that the training rows have: {known}")
    return indices[label]
