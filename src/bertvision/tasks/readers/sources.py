"""Where the rows of a user's own data come from: files, pandas DataFrames, or a data set of the Hub."""

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
"""What the Hub's data sets call the rows to report on, best first."""

MISSING = ("NAType", "NaTType")
"""What pandas puts where a value is missing, besides None and NaN."""


class Frame(Protocol):
    """A pandas DataFrame, as far as it is used here."""

    columns: Any

    def itertuples(self, index: bool = ..., name: Any = ...) -> Iterable[Any]: ...


Tabular = PathsLike | Frame | Sequence[Frame]


@dataclass(frozen=True)
class Table:
    """Rows of a split: what their ids and what messages about them begin with, and how they are numbered."""

    split: str
    name: str
    where: str
    unit: str
    read: Callable[[BadRows], Iterator[Row]]
    source: object

    def place(self, number: int) -> str:
        return f"{self.where}, {self.unit} {number}"


def find_tables(train: Tabular | None, dev: Tabular | None, hub: str | None, encoding: str | None) -> list[Table]:
    """The tables of train and, if there are any, of dev, each under a name of its own."""
    if (train is None) == (hub is None):
        got = "neither" if hub is None else "both"
        raise BadInput(f"task 'text' needs --train FILE or --hub NAME: got {got}, expected one of them")
    tables = _given("train", train, encoding) if hub is None else _hub_tables(hub, dev is None)
    tables += [] if dev is None else _given("dev", dev, encoding)
    names: set[str] = set()
    for number, table in enumerate(tables):
        if any(table.source == other.source for other in tables[:number]):
            raise BadInput(
                f"{table.where}: given twice; dev must be other rows than train, or left out to be cut off train"
            )
        tables[number] = replace(table, name=unique_name(table.name, names))
        names.add(tables[number].name)
    return tables


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, numbered where another has it already."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(new for new in chain([name], numbered) if new not in taken)


def _given(split: str, value: Any, encoding: str | None) -> list[Table]:
    """Files and DataFrames, one or several."""
    several = value if isinstance(value, list | tuple) and not _is_frame(value) else [value]
    if not any(map(_is_frame, several)):
        several = as_paths(split, value)
    tables = []
    for source in several:
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
    """Rows by their number from 0, whatever the index says; missing values are None."""
    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"the {split} DataFrame: two columns are named {shorten(name)}; rename one")
    number = -1
    for number, cells in enumerate(frame.itertuples(index=False, name=None)):
        row: dict[str, object] = {}
        for name, cell in zip(names, cells, strict=True):
            missing = type(cell).__name__ in MISSING
            # Numpy's numbers and lists become Python's.
            row[name] = None if missing else cell.tolist() if hasattr(cell, "tolist") else cell
        yield number, row
    if number < 0:
        raise BadInput(f"the {split} DataFrame has no rows; expected at least one row")


def _hub_tables(hub: str, with_dev: bool) -> list[Table]:
    """``NAME`` or ``NAME:CONFIG``; dev is what the data set holds out for it."""
    name, _, config = hub.partition(":")
    splits = load_hub(name, config or None)
    if "train" not in splits:
        raise BadInput(f"--hub {hub}: no split 'train'; it has {', '.join(splits)}")
    held_out = next((split for split in HELD_OUT if split in splits), None) if with_dev else None
    if held_out == HELD_OUT[-1]:
        log_line(f"note: {hub} has no split for validation; {held_out!r} is what is reported on")
    chosen = {"train": "train"} | ({} if held_out is None else {"dev": held_out})
    tables = []
    for split, hub_split in chosen.items():
        rows = partial(_hub_rows, splits[hub_split])
        tables.append(Table(split, hub_split, f"{hub}, {hub_split}", "row", rows, (hub, hub_split)))
    return tables


def _hub_rows(rows: Any, bad: BadRows) -> Iterator[Row]:
    names = label_names_by_column(rows.features)
    return ((number, replace_label_ids(row, names)) for number, row in enumerate(rows))
