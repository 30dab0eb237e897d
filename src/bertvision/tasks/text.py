"""The ``text`` task: a user's own table of texts, or pairs of texts, with a label or a number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from bertvision.errors import BadInput, shorten
from bertvision.records import Example
from bertvision.tasks.base import TASKS, BadRow, BadRows, Task
from bertvision.tasks.columns import Columns, Wanted, choose_columns
from bertvision.tasks.files import Row, is_unicode, read_table
from bertvision.tasks.options import PathsLike, as_paths, check_whole
from bertvision.tasks.splits import make_splits

MOST_NUMBER_CLASSES = 20
"""Whole numbers with more distinct values than this are taken for amounts, not for names of classes."""

LARGEST_VALUE = 1e100
"""What is beyond this is no measurement, and its square would overflow."""

PEEKED_ROWS = 100
"""Rows whose keys are taken for the columns of a JSON-lines file; in other tables one row has them all."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A row whose label is still as written: what it means depends on all the others."""

    where: str
    example: Example
    label: str


@TASKS.register("text")
def load_text(
    train: PathsLike,
    dev: PathsLike | None = None,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    kind: str | None = None,
    encoding: str | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    max_length: int = 256,
) -> Task:
    """CSV, TSV or JSON-lines files as a task; columns and kind are guessed where that leaves no doubt.

    Without ``dev``, a tenth of the rows is cut off for it. ``limit`` takes that many training rows,
    spread over all files by a hash, and leaves at most as many for dev.
    """
    check_whole("max_length", max_length, 1)
    if kind not in (None, "classify", "regress"):
        raise BadInput(f"--kind: got {shorten(kind)}, expected classify or regress")
    bad, wanted = BadRows(skip_bad), Wanted(text_column, pair_column, label_column)
    files = _name_files(as_paths("train", train), () if dev is None else as_paths("dev", dev))
    rows = _read_files(files, wanted, bad, encoding)
    classify = (kind or _guess_kind(rows["train"])) == "classify"
    labels = _label_names(rows["train"]) if classify else ()
    examples = {split: _read_labels(split, found, labels, bad) for split, found in rows.items()}
    return Task(
        name="text",
        kind="classify" if classify else "regress",
        splits=make_splits(examples["train"], examples.get("dev"), stratify=classify, limit=limit),
        metric="accuracy" if classify else "spearmanr",
        labels=labels,
        max_length=max_length,
        overlap=0,
        skipped=dict(bad.counts),
    )


def _name_files(train: Sequence[Path], dev: Sequence[Path]) -> dict[str, tuple[str, Path]]:
    """(split, file) by the name that ids begin with: the stem, numbered if another file has the same."""
    named: dict[str, tuple[str, Path]] = {}
    seen: set[Path] = set()
    for split, path in [*(("train", path) for path in train), *(("dev", path) for path in dev)]:
        if path.resolve() in seen:
            raise BadInput(f"{path}: given twice; dev must be other rows than train, or left out to be cut off train")
        seen.add(path.resolve())
        names = chain([path.stem], (f"{path.stem}-{number}" for number in range(2, len(named) + 3)))
        named[next(name for name in names if name not in named)] = (split, path)
    return named


def _read_files(
    files: Mapping[str, tuple[str, Path]], wanted: Wanted, bad: BadRows, encoding: str | None
) -> dict[str, list[Labelled]]:
    """Rows by split; columns that were guessed in one file are the columns of those after it."""
    rows: dict[str, list[Labelled]] = {}
    for name, (split, path) in files.items():
        table = read_table(path, bad, encoding)
        peeked = list(islice(table, PEEKED_ROWS))
        rows.setdefault(split, [])
        if peeked:
            there = list(dict.fromkeys(key for _, row in peeked for key in row))
            columns = choose_columns(there, wanted, path)
            wanted = Wanted(columns.text, columns.pair, columns.label)
            rows[split] += _labelled(chain(peeked, table), path, name, columns, bad)
    return rows


def _labelled(rows: Iterable[Row], path: Path, name: str, columns: Columns, bad: BadRows) -> Iterator[Labelled]:
    for number, row in rows:
        where = f"{path}, line {number}"
        with bad.row(where):
            text = _cell(row, columns.text, "text")
            pair = _cell(row, columns.pair, "pair") if columns.pair else None
            label = _cell(row, columns.label, "label")
            yield Labelled(where, Example(f"{name}:{number}", text, pair), label)


def _cell(row: Mapping[str, object], column: str, what: str) -> str:
    """The text of a cell without outer blanks; in JSON it may be a number, true or false."""
    value = row.get(column)
    if isinstance(value, dict | list):
        raise BadRow("wrong type", f"column {column!r}: got {shorten(value)}, expected text or a number")
    if isinstance(value, bool):
        return str(value).lower()
    blank = value is None or (isinstance(value, float) and math.isnan(value))  # NaN is how tables write nothing
    text = "" if blank else str(value).strip()
    if not text:
        raise BadRow(f"missing {what}", f"column {column!r} is blank; fill it in or delete the row")
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: got half a surrogate pair, expected Unicode text")
    return text


def _is_number(label: str) -> bool:
    return bool(_NUMBER.match(label)) and abs(float(label)) < LARGEST_VALUE


def _guess_kind(rows: Sequence[Labelled]) -> str:
    """Numbers that are not all whole, or take many values, are values to predict; other labels are classes.

    A column in which most rows have a value of their own, and not all are numbers, is neither.
    """
    values = {row.label for row in rows}
    words = [value for value in values if not _is_number(value)]
    if not words:
        whole = all(float(value).is_integer() for value in values)
        return "classify" if whole and len(values) <= MOST_NUMBER_CLASSES else "regress"
    if len(values) > max(MOST_NUMBER_CLASSES, len(rows) / 2):
        raise BadInput(
            f"{len(values)} different labels in {len(rows)} rows, e.g. {shorten(min(words))}: neither classes nor "
            "numbers throughout; give another --label-column, or --kind classify or regress"
        )
    return "classify"


def _label_names(rows: Sequence[Labelled]) -> tuple[str, ...]:
    """The classes in order: numbers by size, else by name."""
    names = {row.label for row in rows}
    if len(names) == 1:
        raise BadInput(f"all {len(rows)} training rows are labelled {shorten(min(names))}; expected at least 2 classes")
    numbers = all(_is_number(name) for name in names)
    return tuple(sorted(names, key=lambda name: (float(name) if numbers else 0.0, name)))


def _read_labels(split: str, rows: Sequence[Labelled], labels: Sequence[str], bad: BadRows) -> list[Example]:
    """The examples with their labels as numbers: the place among ``labels`` or, without those, the value."""
    places = {label: float(place) for place, label in enumerate(labels)}
    examples = []
    for row in rows:
        with bad.row(row.where):
            label = _place(row.label, places) if places else _value(row.label)
            examples.append(replace(row.example, label=label))
    if not examples:
        raise BadInput(f"no row of the {split} files can be used; {bad}")
    return examples


def _place(label: str, places: Mapping[str, float]) -> float:
    if label not in places:
        known = shorten(list(places), 200)
        raise BadRow("unknown label", f"got {shorten(label)}, expected one that the training rows have: {known}")
    return places[label]


def _value(label: str) -> float:
    if not _is_number(label):
        raise BadRow("not a number", f"got {shorten(label)}, expected a number as label (or give --kind classify)")
    return float(label)
