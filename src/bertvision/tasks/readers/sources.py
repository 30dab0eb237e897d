"""Sources of the rows of a user's own data: files, pandas DataFrames, or a dataset of the Hub."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import Any, Protocol, TypeGuard

from bertvision.core.errors import BadInput, shorten
from bertvision.core.progress import log_line
from bertvision.tasks.readers.files import PARQUET, Row, read_table
from bertvision.tasks.readers.hub import label_names_by_column, load_hub, replace_label_ids
from bertvision.tasks.task import BadRows, PathsLike, as_paths

HELD_OUT = ("validation", "valid", "dev", "test")
"""Names of the Hub's splits to report on, in order of preference."""

MISSING = ("NAType", "NaTType")
"""Types of pandas' missing values besides None and NaN."""


class Frame(Protocol):
    """The part of a pandas DataFrame that is used here."""

    columns: Any

    def itertuples(self, index: bool = ..., name: Any = ...) -> Iterable[Any]: ...


Tabular = PathsLike | Frame | Sequence[Frame]


@dataclass(frozen=True)
class Table:
    """A source of rows for a split.

    Row ids start with ``name``, messages with ``where``, and ``unit`` is what row numbers count.
    """

    split: str
    name: str
    where: str
    unit: str
    read: Callable[[BadRows], Iterator[Row]]
    source: object


def find_tables(train: Tabular | None, dev: Tabular | None, hub: str | None, encoding: str | None) -> list[Table]:
    """The tables of train and, if given, of dev, with distinct names."""
    if (train is None) == (hub is None):
        got = "neither" if hub is None else "both"
        raise BadInput(f"task 'text' needs train (files) or hub (a dataset's name): got {got}, expected one of them")
    tables = _local_tables("train", train, encoding) if hub is None else _hub_tables(hub, dev is None)
    tables += [] if dev is None else _local_tables("dev", dev, encoding)
    names: set[str] = set()
    for number, table in enumerate(tables):
        if any(table.source == other.source for other in tables[:number]):
            raise BadInput(f"{table.where}: given twice; give other rows as dev, or no dev to hold it out from train")
        tables[number] = replace(table, name=unique_name(table.name, names))
        names.add(tables[number].name)
    return tables


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number appended if it is taken."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(candidate for candidate in chain([name], numbered) if candidate not in taken)


def _local_tables(split: str, value: Any, encoding: str | None) -> list[Table]:
    """Tables of one or several files and DataFrames."""
    sources = value if isinstance(value, list | tuple) and not _is_frame(value) else [value]
    if not any(map(_is_frame, sources)):
        sources = as_paths(split, value)
    tables = []
    for source in sources:
        if _is_frame(source):
            rows: Callable[[BadRows], Iterator[Row]] = partial(_frame_rows, split, source)
            tables.append(Table(split, split, f"the {split} DataFrame", "row", rows, id(source)))
        else:
            (path,) = as_paths(split, source)
            unit = "row" if path.suffix.lower() == PARQUET else "line"
            rows = partial(read_table, path, encoding=encoding)
            tables.append(Table(split, path.stem, str(path), unit, rows, path.resolve()))
    return tables


def _is_frame(value: object) -> TypeGuard[Frame]:
    return hasattr(value, "itertuples") and hasattr(value, "columns")


def _frame_rows(split: str, frame: Frame, bad: BadRows) -> Iterator[Row]:
    """Rows numbered from 0 regardless of the index; missing values are None."""
    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"the {split} DataFrame: two columns are named {shorten(name)}; rename one")
    number = -1
    for number, cells in enumerate(frame.itertuples(index=False, name=None)):
        row: dict[str, object] = {}
        for name, cell in zip(names, cells, strict=True):
            missing = type(cell).__name__ in MISSING
            # tolist() converts NumPy scalars and arrays to Python objects.
            row[name] = None if missing else cell.tolist() if hasattr(cell, "tolist") else cell
        yield number, row
    if number < 0:
        raise BadInput(f"the {split} DataFrame has no rows; expected at least one row")


def _hub_tables(hub: str, with_dev: bool) -> list[Table]:
    """Tables of a dataset ``NAME`` or ``NAME:CONFIG``; dev is its validation or, failing that, test split."""
    name, _, config = hub.partition(":")
    splits = load_hub(name, config or None)
    if "train" not in splits:
        raise BadInput(f"hub: {hub} has no split 'train'; it has {', '.join(splits)}")
    held_out = next((split for split in HELD_OUT if split in splits), None) if with_dev else None
    if held_out == HELD_OUT[-1]:
        log_line(f"note: {hub} has no validation split; using {held_out!r} as dev")
    hub_splits = {"train": "train"} | ({} if held_out is None else {"dev": held_out})
    tables = []
    for split, hub_split in hub_splits.items():
        rows = partial(_hub_rows, splits[hub_split])
        tables.append(Table(split, hub_split, f"{hub}, {hub_split}", "row", rows, (hub, hub_split)))
    return tables


def _hub_rows(rows: Any, bad: BadRows) -> Iterator[Row]:
    names = label_names_by_column(rows.features)
    return ((number, replace_label_ids(row, names)) for number, row in enumerate(rows))
