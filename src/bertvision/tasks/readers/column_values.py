"""What the values of a column look like in the first rows of a table: a text, a label, or neither."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bertvision.core.errors import shorten
from bertvision.tasks.readers.columns import IDS, cell_text, is_number
from bertvision.tasks.task import BadRow

MOSTLY = 0.9
"""A column is of dates, addresses or codes if at least this part of its values is."""

FEW_LABELS = 20
"""That many different values are never too many for labels, if they repeat."""

LONGEST_LABEL = 40
"""Labels have at most this many characters on average."""

SENTENCE_WORDS = 4
"""Names of persons and places have fewer words on average."""

LARGEST_NUMBER = 1e9
"""Columns with larger whole numbers hold ids or times, not something to predict."""

_DATE_WORD = re.compile(
    r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)[a-z]*|[ecmp][sd]t|[ap]m|utc|gmt|t|z"
)
_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)
_TIME = re.compile(r"\d:\d\d")
_ADDRESS = re.compile(r"(https?://|www\.)\S+\Z", re.IGNORECASE)
_SPACE = re.compile(r"\s")
_CODE_MARK = re.compile(r"[0-9@/\\]")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class ColumnValues:
    """The values of a column that are not blank, as text, in the first ``rows`` rows."""

    name: str
    rows: int
    texts: tuple[str, ...]

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.texts)

    @property
    def filled(self) -> float:
        """The part of the rows with a value."""
        return len(self.texts) / self.rows

    @cached_property
    def length(self) -> float:
        """Mean number of characters of a value."""
        return sum(map(len, self.texts)) / max(len(self.texts), 1)

    @property
    def sentences(self) -> bool:
        """Whether values have several words on average; writing without spaces has none."""
        return sum(len(text.split()) for text in self.texts) >= SENTENCE_WORDS * len(self.texts)

    @cached_property
    def numbers(self) -> bool:
        return all(map(is_number, self.distinct))

    @property
    def holds_texts(self) -> bool:
        """Values are mostly different, and not numbers, dates, addresses or codes."""
        if self._cannot_be_guessed or self.numbers or self.filled < 1 / 2:
            return False
        return len(self.distinct) > len(self.texts) / 2 and not any(map(self._mostly, (is_date, is_address, is_code)))

    @property
    def holds_labels(self) -> bool:
        """Values are short and repeat, or are numbers, and not dates or addresses."""
        if self._cannot_be_guessed:
            return False
        if self.numbers:
            return not self._holds_ids
        few = len(self.distinct) <= min(len(self.texts) / 2, max(FEW_LABELS, len(self.texts) / 10))
        return few and self.length <= LONGEST_LABEL and not any(map(self._mostly, (is_date, is_address)))

    @property
    def looks_like_data(self) -> bool:
        """Whether the name may be a value: the first row of a file without a header."""
        return is_number(self.name) or self.name in self.distinct

    @property
    def _cannot_be_guessed(self) -> bool:
        """A constant; an id; or a column that a tool added, such as ``_unit_state`` or ``__index_level_0__``."""
        return len(self.distinct) < 2 or self.name.startswith("_") or last_word(self.name) in IDS

    @property
    def _holds_ids(self) -> bool:
        """Whole numbers that differ, or that are too large to be a count or a rating."""
        numbers = [float(text) for text in self.distinct]
        differ = len(numbers) > MOSTLY * len(self.texts)
        return all(map(float.is_integer, numbers)) and (differ or max(map(abs, numbers)) > LARGEST_NUMBER)

    def _mostly(self, is_sort: Callable[[str], bool]) -> bool:
        return sum(map(is_sort, self.texts)) >= MOSTLY * len(self.texts)

    def __str__(self) -> str:
        """The name with the number of different values and one of them, for messages."""
        if not self.texts:
            return f"{shorten(self.name, 40)} (blank)"
        values = "1 value" if len(self.distinct) == 1 else f"{len(self.distinct)} different values"
        return f"{shorten(self.name, 40)} ({values}, e.g. {shorten(min(self.distinct), 40)})"


def values_by_column(rows: Sequence[Mapping[str, object]], lists: bool) -> dict[str, ColumnValues]:
    """The values of every column; lists count as values only if ``lists``."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: ColumnValues(name, len(rows), tuple(_texts((row.get(name) for row in rows), name, lists)))
        for name in names
    }


def _texts(cells: Iterable[object], column: str, lists: bool) -> Iterable[str]:
    for cell in cells:
        try:
            text = "|".join(map(str, cell)) if lists and isinstance(cell, list | tuple) else cell_text(cell, column)
        except (BadRow, ValueError):  # neither text nor a number that Python prints
            continue
        if text:
            yield text


def last_word(name: str) -> str:
    """The last word of a name, in lower case: ``rating`` of ``star_rating`` and of ``starRating``."""
    return next(reversed(_NAME_PART.findall(name)), "").lower()


def is_date(text: str) -> bool:
    """A date or a time: three numbers, a month and a number, or hours and minutes, and nothing else."""
    if len(text) > LONGEST_LABEL or re.search(r"[^a-zA-Z0-9\s:/.,+-]", text):
        return False
    words, numbers = re.findall(r"[a-z]+", text.lower()), re.findall(r"[0-9]+", text)
    if not numbers or not all(map(_DATE_WORD.fullmatch, words)):
        return False
    return len(numbers) >= 3 or bool(_MONTH.search(text) or _TIME.search(text))


def is_address(text: str) -> bool:
    """An address of a web page."""
    return _ADDRESS.match(text) is not None


def is_code(text: str) -> bool:
    """One word with a digit, an @ or a slash: an id, an e-mail address, a path."""
    return text.isascii() and not _SPACE.search(text) and _CODE_MARK.search(text) is not None
