"""The ``text`` task: the user's own table of texts or text pairs, with labels, sets of labels, or values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from bertvision.core.errors import BadInput, as_option, shorten
from bertvision.core.progress import log_line
from bertvision.core.records import Example, Kind
from bertvision.tasks.class_weights import describe_rare_labels
from bertvision.tasks.readers.column_choice import choose_columns
from bertvision.tasks.readers.columns import Columns, RequestedColumns, cell_text, is_number, read_cell
from bertvision.tasks.readers.sources import Table, Tabular, find_tables
from bertvision.tasks.splits import make_splits
from bertvision.tasks.task import TASKS, BadRow, BadRows, Task, check_integer

SEPARATORS = ("|", ";", ",")
"""Separators of several labels in one cell, in order of preference."""

YES_NO = {"1": True, "0": False, "true": True, "false": False, "1.0": True, "0.0": False}

RawLabels = str | tuple[str, ...]
"""Labels as read: the text of one cell, not yet split; or a list, or the names of the columns that are 1."""

KINDS: Mapping[str, Kind] = {"classify": "classify", "multilabel": "multilabel", "regress": "regress"}

METRICS = {"classify": "accuracy", "multilabel": "f1_micro", "regress": "spearmanr"}

MOST_NUMBER_CLASSES = 20
"""Integer labels with more distinct values than this are values to predict, not classes."""

PEEKED_ROWS = 500
"""Rows whose keys make up the columns of a JSON-lines file (in other tables every row has all columns), and whose
values decide which columns are the text and the label if names do not."""


def read_labels(row: Mapping[str, object], columns: Columns) -> RawLabels:
    """The labels of a row of a ``multilabel`` task; a blank cell means none."""
    if columns.more:
        positive = []
        for column in (columns.label, *columns.more):
            text = cell_text(row.get(column), column)
            if text.lower() not in YES_NO:
                raise BadRow("not 0 or 1", f"column {column!r}: got {shorten(text)}, expected 0 or 1 (or true, false)")
            if YES_NO[text.lower()]:
                positive.append(column)
        return tuple(positive)
    if columns.label not in row:
        raise BadRow("missing label", f"no {columns.label!r}; expected labels, or an empty value for none")
    value = row[columns.label]
    if isinstance(value, list | tuple):
        return tuple(cell_text(label, columns.label) for label in value)
    return cell_text(value, columns.label)


def find_separator(labels: Iterable[RawLabels]) -> str:
    """The first of ``SEPARATORS`` that occurs in any cell."""
    cells = [cell for cell in labels if isinstance(cell, str)]
    for separator in SEPARATORS:
        if any(separator in cell for cell in cells):
            return separator
    return SEPARATORS[0]


def split_labels(labels: RawLabels, separator: str) -> tuple[str, ...]:
    """Distinct labels in the order they are written."""
    parts = labels.split(separator) if isinstance(labels, str) else labels
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A row with its label as read; how labels are interpreted depends on all rows."""

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

    Args:
        train: File or files (CSV, TSV, JSON lines, Parquet) or DataFrames to train on.
        dev: Files or DataFrames to report on; without them a tenth of the training rows is held out.
        hub: Dataset on the Hub to use instead of files, ``NAME`` or ``NAME:CONFIG``.
        text_column: Column of the text; None to guess it from names and values, which a log line reports.
        pair_column: Column of a second text; None to guess it from names.
        label_column: Column of the label, or several columns of 0 and 1, one per label; None to guess it like the text.
        label_separator: Separator of several labels in one cell.
        kind: ``"classify"``, ``"multilabel"`` or ``"regress"``; None to guess it from the labels.
        encoding: Encoding of CSV, TSV and JSON lines; None to detect it.
        split_seed: Holds out a different tenth as dev for each value.
        limit: Sample this many training rows by hash, and at most as many for dev.
        skip_bad: Skip and count rows that cannot be used.
        max_length: Tokens per text; longer texts are truncated.
    """
    check_integer("max_length", max_length, 1)
    label_columns = (label_column,) if isinstance(label_column, str) else tuple(label_column or ())
    kind = _check_kind(kind, len(label_columns) > 1, label_separator)
    bad = BadRows(skip_bad)
    first_label = label_columns[0] if label_columns else None
    requested = RequestedColumns(text_column, pair_column, first_label, label_columns[1:])
    rows, columns = _read_tables(find_tables(train, dev, hub, encoding), requested, bad, kind)
    task_kind = KINDS[kind or _guess_kind(rows["train"])]
    if kind is None:
        _log_numbers(rows["train"], columns.label, task_kind)
    if task_kind == "multilabel":
        separator = label_separator or find_separator(row.label for row in rows["train"])
        for split, split_rows in rows.items():
            rows[split] = [replace(row, label=split_labels(row.label, separator)) for row in split_rows]
    labels = _label_names(rows["train"], task_kind, label_columns if len(label_columns) > 1 else ())
    examples = {split: _index_labels(split, split_rows, labels, bad) for split, split_rows in rows.items()}
    stratify = task_kind != "regress"
    task = Task(
        name="text",
        kind=task_kind,
        splits=make_splits(examples["train"], examples.get("dev"), stratify=stratify, limit=limit, seed=split_seed),
        metric=METRICS[task_kind],
        labels=labels,
        max_length=max_length,
        overlap=0,
        skipped=dict(bad.counts),
    )
    rare = describe_rare_labels(task)
    if rare:
        log_line(rare)
    return task


def _check_kind(kind: str | None, several_columns: bool, separator: str | None) -> str | None:
    """The kind, "multilabel" for several label columns; raises for options that contradict it."""
    if kind not in (None, *KINDS):
        raise BadInput(f"kind: got {shorten(kind)}, expected classify, multilabel or regress")
    if several_columns and kind not in (None, "multilabel"):
        raise BadInput(f"label_column: got several columns with kind={kind}, expected kind=multilabel")
    kind = "multilabel" if several_columns else kind
    if separator is not None and (kind != "multilabel" or several_columns or not separator):
        raise BadInput("label_separator: expected kind=multilabel with all labels of a text in one cell")
    return kind


def _read_tables(
    tables: Sequence[Table], requested: RequestedColumns, bad: BadRows, kind: str | None
) -> tuple[dict[str, list[LabelledRow]], RequestedColumns]:
    """Rows by split, and the columns of the first table, which are required in all others."""
    rows: dict[str, list[LabelledRow]] = {}
    multilabel = kind == "multilabel"
    for table in tables:
        split_rows = rows.setdefault(table.split, [])
        unread = table.read(bad)
        peeked = list(islice(unread, PEEKED_ROWS))
        if not peeked:
            continue
        columns = choose_columns([row for _, row in peeked], requested, table.where, kind)
        _log_guess(columns, requested)
        requested = RequestedColumns(columns.text, columns.pair, columns.label, columns.more)
        for number, row in chain(peeked, unread):
            where = f"{table.where}, {table.unit} {number}"
            with bad.row(where):
                text = read_cell(row, columns.text, "text")
                pair = read_cell(row, columns.pair, "pair") if columns.pair else None
                label = read_labels(row, columns) if multilabel else _read_label(row, columns.label)
                split_rows.append(LabelledRow(where, Example(f"{table.name}:{number}", text, pair), label))
    return rows, requested


def _log_guess(columns: Columns, requested: RequestedColumns) -> None:
    """Report the columns that were not given, and how to give them."""
    roles = {
        "text": (columns.text, requested.text),
        "pair": (columns.pair, requested.pair),
        "label": (columns.label, requested.label),
    }
    guessed = {role: name for role, (name, given) in roles.items() if name and not given}
    if guessed:
        listed = ", ".join(f"{role} {shorten(name)}" for role, name in guessed.items())
        options = ", ".join(as_option(f"{role}_column") for role in guessed)
        log_line(f"columns: {listed}, guessed; set with {options}")


def _read_label(row: Mapping[str, object], column: str) -> str:
    if isinstance(row.get(column), list | tuple):
        detail = f"column {column!r}: got {shorten(row[column])}, expected one label (or give kind=multilabel)"
        raise BadRow("wrong type", detail)
    return read_cell(row, column, "label")


def _guess_kind(rows: Sequence[LabelledRow]) -> str:
    """Numbers with fractions or with many distinct values are values to predict; other labels are classes.

    Text labels that mostly occur only once are neither, and raise BadInput.
    """
    values = {str(row.label) for row in rows}
    words = [value for value in values if not is_number(value)]
    if not words:
        integers = all(float(value).is_integer() for value in values)
        return "classify" if integers and len(values) <= MOST_NUMBER_CLASSES else "regress"
    if len(values) > max(MOST_NUMBER_CLASSES, len(rows) / 2):
        raise BadInput(
            f"{len(values)} different labels in {len(rows)} rows, e.g. {shorten(min(words))}: too many classes, and "
            "not all are numbers; give another label_column, or kind=classify, multilabel or regress"
        )
    return "classify"


def _log_numbers(rows: Sequence[LabelledRow], column: str | None, kind: Kind) -> None:
    """Report whether a column of more than two numbers is taken for classes or for values, which is only a guess."""
    numbers = sorted({str(row.label) for row in rows if is_number(str(row.label))}, key=float)
    if len(numbers) < 3 or len(numbers) < len({row.label for row in rows}):
        return
    holds = f"column {shorten(column)} holds the numbers {float(numbers[0]):g} to {float(numbers[-1]):g}"
    if kind == "classify":
        log_line(f"{holds} and is classified; use {as_option('kind=regress')} to predict a number")
    else:
        log_line(
            f"{holds}, {len(numbers):,} different ones, and is predicted as a number; use {as_option('kind=classify')} "
            "to predict classes"
        )


def _label_names(rows: Sequence[LabelledRow], kind: Kind, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The labels: given columns in their order, else sorted, numerically if all are numbers; none for values."""
    if columns or kind == "regress":
        return columns
    names: set[str] = set()
    for row in rows:
        names.update(row.label if isinstance(row.label, tuple) else (row.label,))
    if len(names) == 1 and kind == "classify":
        raise BadInput(f"all {len(rows)} training rows are labelled {shorten(min(names))}; expected at least 2 classes")
    if len(names) < 2 and kind == "multilabel":
        got = f"only the label {shorten(min(names))}" if names else "no labels"
        raise BadInput(f"the training rows have {got}; kind=multilabel expects at least 2 labels")
    numeric = all(is_number(name) for name in names)
    return tuple(sorted(names, key=lambda name: (float(name) if numeric else 0.0, name)))


def _index_labels(split: str, rows: Sequence[LabelledRow], labels: Sequence[str], bad: BadRows) -> list[Example]:
    """Examples with their labels as indices into ``labels`` or, if that is empty, as values."""
    indices = {label: index for index, label in enumerate(labels)}

    def index_of(label: str) -> int:
        if label not in indices:
            listed = shorten(list(indices), 200)
            raise BadRow("unknown label", f"got {shorten(label)}, expected a label of the training rows: {listed}")
        return indices[label]

    examples = []
    for row in rows:
        with bad.row(row.where):
            if isinstance(row.label, tuple):
                examples.append(replace(row.example, labels=tuple(sorted(map(index_of, row.label)))))
            elif labels:
                examples.append(replace(row.example, label=float(index_of(row.label))))
            elif is_number(row.label):
                examples.append(replace(row.example, label=float(row.label)))
            else:
                detail = f"got {shorten(row.label)}, expected a number as label (or give kind=classify)"
                raise BadRow("not a number", detail)
    if not examples:
        raise BadInput(f"no usable row in the {split} data; {bad}")
    return examples
