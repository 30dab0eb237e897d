"""Columns of a table: the names that texts and labels are known by; and the text of a cell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bertvision.core.errors import shorten
from bertvision.tasks.readers.encodings import describe_bad_character, is_unicode
from bertvision.tasks.task import BadRow

TEXTS = ("text", "sentence", "review", "content", "question", "tweet", "comment", "message", "body", "document")

PAIRS = (
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
)

IDS = ("id", "ids", "idx", "index", "guid", "uuid")

LABELS = ("label", "labels", "class", "target", "sentiment", "score", "category", "rating", "stars", "gold_label")

LARGEST_VALUE = 1e100
"""Larger numbers are not taken for values: their squares would overflow."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


@dataclass(frozen=True)
class RequestedColumns:
    """Column names given by the user; None for columns to guess."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """Column names of a table: no ``pair`` for single texts; ``more`` if every label has its own column."""

    text: str
    pair: str | None
    label: str
    more: tuple[str, ...] = ()


def is_number(text: str) -> bool:
    """Whether a label can be read as a value to predict."""
    return bool(_NUMBER.match(text)) and abs(float(text)) < LARGEST_VALUE


def read_cell(row: Mapping[str, object], column: str, role: str) -> str:
    """The text of a cell that must not be blank; ``role`` is for the message."""
    text = cell_text(row.get(column), column)
    if not text:
        raise BadRow(f"missing {role}", f"column {column!r} is blank; fill it in or delete the row")
    return text


def cell_text(value: object, column: str) -> str:
    """A cell (text, number or boolean) as stripped text; "" for a blank or missing one."""
    if isinstance(value, dict | list | tuple | bytes):
        raise BadRow("wrong type", f"column {column!r}: got {shorten(value)}, expected text or a number")
    if value is None or (isinstance(value, float) and math.isnan(value)):  # pandas marks missing cells by NaN
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # an integer column with a missing value is read as floats
    text = str(value).strip()
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: {describe_bad_character(text)}")
    return text
