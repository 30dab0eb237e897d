"""Where the rows of a user's own data come from: files, pandas DataFrames, or a data set of the Hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from bertvision.core.errors import BadInput, shorten
from bertvision.core.progress import log_line
from bertvision.tasks.readers.files import PARQUET, Row, read_table
from bertvision.tasks.readers.hub import class_names, load_hub, with_names
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
    return _distinct(tables)


def _given(split: str, value: Any, encoding: str | None) -> list[Table]:
    """Files and DataFrames, one or several."""
    several = [value] if _is_frame(value) or not isinstance(value, list | tuple) else value
    if any(_is_frame(one) for one in several):
        return [_frame(split, one) if _is_frame(one) else _file(split, one, encoding) for one in several]
    return [_file(split, path, encoding) for path in as_paths(split, value)]


def _is_frame(value: object) -> TypeGuard[Frame]:
    return hasattr(value, "itertuples") and hasattr(value, "columns")


def _file(split: str, value: Any, encoding: str | None) -> Table:
    (path,) = as_paths(split, value)
    unit = "row" if path.suffix.lower() == PARQUET else "line"
    read = partial(_read_file, path, encoding)
    return Table(split, path.stem, str(path), unit, read, path.resolve())


def _read_file(path: Path, encoding: str | None, bad: BadRows) -> Iterator[Row]:
    return read_table(path, bad, encoding)


def _frame(split: str, frame: Frame) -> Table:
    return Table(split, split, f"the {split} DataFrame", "row", partial(_frame_rows, split, frame), id(frame))


def _frame_rows(split: str, frame: Frame, bad: BadRows) -> Iterator[Row]:
    """Rows by their place from 0, whatever the index says; missing values are None."""
    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"the {split} DataFrame: two columns are named {shorten(name)}; rename one")
    number = -1
    for number, cells in enumerate(frame.itertuples(index=False, name=None)):
        yield number, {name: _plain(cell) for name, cell in zip(names, cells, strict=True)}
    if number < 0:
        raise BadInput(f"the {split} DataFrame has no rows; expected at least one row")


def _plain(cell: Any) -> object:
    """What pandas and numpy wrap, unwrapped."""
    if type(cell).__name__ in MISSING:
        return None
    return cell.tolist() if hasattr(cell, "tolist") else cell


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
    return [_hub_table(split, hub, found, splits[found]) for split, found in chosen.items()]


def _hub_table(split: str, hub: str, found: str, rows: Any) -> Table:
    return Table(split, found, f"{hub}, {found}", "row", partial(_hub_rows, rows), (hub, found))


def _hub_rows(rows: Any, bad: BadRows) -> Iterator[Row]:
    names = class_names(rows.features)
    return ((number, with_names(row, names)) for number, row in enumerate(rows))


def _distinct(tables: Sequence[Table]) -> list[Table]:
    """Names numbered where several tables have one; the same rows twice would be learnt by heart."""
    named: dict[str, Table] = {}
    sources: set[object] = set()
    for table in tables:
        if table.source in sources:
            raise BadInput(
                f"{table.where}: given twice; dev must be other rows than train, or left out to be cut off train"
            )
        sources.add(table.source)
        numbered = (f"{table.name}-{number}" for number in count(2))
        name = table.name if table.name not in named else next(name for name in numbered if name not in named)
        named[name] = replace(table, name=name)
    return list(named.values())
