"""Cells of a table as text: whatever CSV, JSON, Parquet and pandas put there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from bertvision.core.errors import shorten
from bertvision.tasks.readers.encodings import broken_part
from bertvision.tasks.readers.files import is_unicode
from bertvision.tasks.task import BadRow

LARGEST_VALUE = 1e100
"""What is beyond this is no measurement, and its square would overflow."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


def is_number(text: str) -> bool:
    """Whether a label can be a value to predict."""
    return bool(_NUMBER.match(text)) and abs(float(text)) < LARGEST_VALUE


def read_cell(row: Mapping[str, object], column: str, what: str) -> str:
    """The text of a cell that must not be blank; ``what`` it is, for the message."""
    text = cell_text(row.get(column), column)
    if not text:
        raise BadRow(f"missing {what}", f"column {column!r} is blank; fill it in or delete the row")
    return text


def cell_text(value: object, column: str) -> str:
    """A cell without outer blanks, nothing for a blank one; it may be a number, true or false."""
    if isinstance(value, dict | list | tuple | bytes):
        raise BadRow("wrong type", f"column {column!r}: got {shorten(value)}, expected text or a number")
    text = _written(value).strip()
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: {broken_part(text)}")
    return text


def _written(value: object) -> str:
    """A typed value as one would write it; 2.0 is 2, because a missing value turns a column's 2 into 2.0."""
    if value is None or (isinstance(value, float) and math.isnan(value)):  # NaN is how tables write nothing
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else str(value)
