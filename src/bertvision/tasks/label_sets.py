"""Any number of labels for a text: in one cell, in a list, or in a column of 0 and 1 for each label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bertvision.core.errors import shorten
from bertvision.tasks.readers.cells import cell_text
from bertvision.tasks.readers.columns import Columns
from bertvision.tasks.task import BadRow

SEPARATORS = ("|", ";", ",")
"""What may stand between the labels of a cell; where several occur, the first of these is the one."""

YES_NO = {"1": True, "0": False, "true": True, "false": False, "1.0": True, "0.0": False}

Written = str | tuple[str, ...]
"""Labels as a cell has them, still to be split; or as a list or the names of the columns that say 1."""


def read_labels(row: Mapping[str, object], columns: Columns) -> Written:
    """The labels of a row as they are written; a blank cell is none."""
    if columns.more:
        return tuple(column for column in (columns.label, *columns.more) if _is_set(row, column))
    if columns.label not in row:
        raise BadRow("missing label", f"no {columns.label!r}; expected labels, or an empty one for none")
    value = row[columns.label]
    if isinstance(value, list | tuple):
        return tuple(cell_text(item, columns.label) for item in value)
    return cell_text(value, columns.label)


def _is_set(row: Mapping[str, object], column: str) -> bool:
    text = cell_text(row.get(column), column)
    if text.lower() not in YES_NO:
        raise BadRow("not 0 or 1", f"column {column!r}: got {shorten(text)}, expected 0 or 1 (or true, false)")
    return YES_NO[text.lower()]


def find_separator(written: Iterable[Written]) -> str:
    """The first of the known separators that stands in any of the cells."""
    found = {separator for cell in written if isinstance(cell, str) for separator in SEPARATORS if separator in cell}
    return next((separator for separator in SEPARATORS if separator in found), SEPARATORS[0])


def split_labels(written: Written, separator: str) -> tuple[str, ...]:
    """Labels, each once, in the order they are written."""
    parts = written.split(separator) if isinstance(written, str) else written
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
