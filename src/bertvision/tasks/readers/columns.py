"""Which column of a table is the text, which the second text, which the label."""

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
"""What is beyond this is no measurement, and its square would overflow."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


@dataclass(frozen=True)
class RequestedColumns:
    """The columns as the user named them; None is for guessing."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns as they are; no pair where a text stands alone, more labels where each has its own column."""

    text: str
    pair: str | None
    label: str
    more: tuple[str, ...] = ()


def choose_columns(columns: Sequence[str], wanted: RequestedColumns, path: str | Path) -> Columns:
    """The columns that were named, and for the others the only one that is called like what is looked for.

    A pair is guessed only together with its text: who names the text alone wants it alone.
    """
    labels = [("label", name) for name in (wanted.label, *wanted.more)]
    named = [(what, name) for what, name in (("text", wanted.text), ("pair", wanted.pair), *labels) if name]
    names = [name for _, name in named]
    for what, name in named:
        if name not in columns:
            raise BadInput(f"{path}: no column {name!r}; {_listed(columns)}; give --{what}-column")
        if names.count(name) > 1:
            raise BadInput(f"{path}: column {name!r} is named twice; text, pair and label must be different columns")
    left = [name for name in columns if name not in names]
    label = wanted.label or _only([(name,) for name in left if name.lower() in LABELS], "label", columns, path)[0]
    if wanted.text:
        return Columns(wanted.text, wanted.pair, label, wanted.more)
    text, *pair = _only(_text_candidates(left, not wanted.pair), "text", columns, path)
    return Columns(text, wanted.pair or (pair[0] if pair else None), label, wanted.more)


def _text_candidates(columns: Sequence[str], pairs: bool) -> list[tuple[str, ...]]:
    """Known pairs of columns, and known single ones that are in none of these pairs."""
    written = {name.lower(): name for name in columns}
    candidates: list[tuple[str, ...]] = []
    paired: set[str] = set()
    for first, second in PAIRS:
        if pairs and first in written and second in written:
            candidates.append((written[first], written[second]))
            paired |= {written[first], written[second]}
    return candidates + [(name,) for name in columns if name.lower() in TEXTS and name not in paired]


def _only(
    candidates: Sequence[tuple[str, ...]], what: str, columns: Sequence[str], path: str | Path
) -> tuple[str, ...]:
    if len(candidates) == 1:
        return candidates[0]
    listed = " or ".join(" with ".join(repr(name) for name in names) for names in candidates)
    why = f"the {what} may be {listed}" if candidates else f"no column is called like a {what}"
    raise BadInput(f"{path}: {why}; {_listed(columns)}; give --{what}-column")


def _listed(columns: Sequence[str]) -> str:
    """The names, cut where a first line of data is taken for a header."""
    return f"the file has: {', '.join(name if len(name) <= 40 else name[:37] + '...' for name in columns)}"


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
    if value is None or (isinstance(value, float) and math.isnan(value)):  # NaN is how tables write nothing
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # a missing value turns a column's 2 into 2.0
    text = str(value).strip()
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: {describe_bad_character(text)}")
    return text
