"""Columns of a table: which is the text, the second text and the label; and the text of a cell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
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


def choose_columns(columns: Sequence[str], requested: RequestedColumns, path: str | Path) -> Columns:
    """The requested columns; the others are guessed from their names if only one column matches.

    A pair is guessed only together with its text: a text column that is given alone is a single text.
    """
    labels = [("label", name) for name in (requested.label, *requested.more)]
    given = [(role, name) for role, name in (("text", requested.text), ("pair", requested.pair), *labels) if name]
    names = [name for _, name in given]
    for role, name in given:
        if name not in columns:
            raise BadInput(f"{path}: no column {name!r}; {_list_columns(columns)}; give {role}_column")
        if names.count(name) > 1:
            raise BadInput(f"{path}: column {name!r} is named twice; text, pair and label must be different columns")
    others = [name for name in columns if name not in names]
    label = requested.label
    if label is None:
        label = _only_candidate([(name,) for name in others if name.lower() in LABELS], "label", columns, path)[0]
    if requested.text:
        return Columns(requested.text, requested.pair, label, requested.more)
    text, *pair = _only_candidate(_text_candidates(others, not requested.pair), "text", columns, path)
    return Columns(text, requested.pair or (pair[0] if pair else None), label, requested.more)


def _text_candidates(columns: Sequence[str], pairs: bool) -> list[tuple[str, ...]]:
    """Known pairs of columns, and known single columns that are in none of these pairs."""
    by_lower = {name.lower(): name for name in columns}
    candidates: list[tuple[str, ...]] = []
    paired: set[str] = set()
    for first, second in PAIRS:
        if pairs and first in by_lower and second in by_lower:
            candidates.append((by_lower[first], by_lower[second]))
            paired |= {by_lower[first], by_lower[second]}
    return candidates + [(name,) for name in columns if name.lower() in TEXTS and name not in paired]


def _only_candidate(
    candidates: Sequence[tuple[str, ...]], role: str, columns: Sequence[str], path: str | Path
) -> tuple[str, ...]:
    if len(candidates) == 1:
        return candidates[0]
    options = " or ".join(" with ".join(repr(name) for name in names) for names in candidates)
    reason = f"the {role} may be {options}" if candidates else f"no column has a known name for a {role}"
    raise BadInput(f"{path}: {reason}; {_list_columns(columns)}; give {role}_column")


def _list_columns(columns: Sequence[str]) -> str:
    """Column names for messages, shortened in case the first row of data was read as a header."""
    return f"the file has: {', '.join(name if len(name) <= 40 else name[:37] + '...' for name in columns)}"


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
