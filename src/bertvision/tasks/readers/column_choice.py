"""Choice of columns: which is the text, the second text and the label; by name, else by the values of the first rows.

A choice depends neither on the order of the rows nor on that of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertvision.core.errors import BadInput, as_option, shorten
from bertvision.tasks.readers.column_values import ColumnValues, last_word, values_by_column
from bertvision.tasks.readers.columns import LABELS, PAIRS, TEXTS, Columns, RequestedColumns

CLEARLY_LONGER = 2
"""Of several columns of texts, one with values this many times as long as those of all others is the text, unless
these are sentences too, which may be the second text of a pair."""

ALMOST_ALL = 0.95
"""A label that is given in fewer rows is chosen only if there is no other."""

MOST_LISTED = 5
"""Columns described in an error."""


def choose_columns(
    rows: Sequence[Mapping[str, object]], requested: RequestedColumns, path: str | Path, kind: str | None = None
) -> Columns:
    """The requested columns; the others are guessed from names that are known, then from the values of ``rows``.

    A pair is guessed from names only, and only together with its text: a text column that is given alone is a single
    text. ``kind`` is the kind of task, if it is given: only numbers can be predicted as numbers.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    given = _check_requested(names, requested, path)
    others = [name for name in names if name not in given]
    if requested.text and requested.label:
        return Columns(requested.text, requested.pair, requested.label, requested.more)
    values = values_by_column(rows, lists=kind == "multilabel")
    named_labels = [name for name in others if name.lower() in LABELS]
    text: tuple[str, ...] = (requested.text or "",)
    if not requested.text:
        # A column that is the label by its name is not the text, even if its values look like texts.
        open_to_text = [name for name in others if requested.label or named_labels != [name]]
        text = _choose_text({name: values[name] for name in open_to_text}, not requested.pair, path)
    label = requested.label
    if not label:
        open_to_label = {name: values[name] for name in others if name not in text}
        label = _choose_label(open_to_label, kind == "regress", path)
    return Columns(text[0], requested.pair or (text[1] if len(text) > 1 else None), label, requested.more)


def _check_requested(names: Sequence[str], requested: RequestedColumns, path: str | Path) -> list[str]:
    """The requested names; an error for one that the table does not have, or that is given twice."""
    labels = [("label", name) for name in (requested.label, *requested.more)]
    given = [(role, name) for role, name in (("text", requested.text), ("pair", requested.pair), *labels) if name]
    requested_names = [name for _, name in given]
    for role, name in given:
        if name not in names:
            listed = ", ".join(name if len(name) <= 40 else name[:37] + "..." for name in names)
            raise BadInput(f"{path}: no column {name!r}; the file has: {listed}; give {as_option(f'{role}_column')}")
        if requested_names.count(name) > 1:
            raise BadInput(f"{path}: column {name!r} is named twice; text, pair and label must be different columns")
    return requested_names


def _choose_text(columns: Mapping[str, ColumnValues], pairs: bool, path: str | Path) -> tuple[str, ...]:
    """The column of the text or, of a known pair, both columns."""
    named = _named_texts(list(columns), pairs)
    if len(named) > 1:  # values can decide between names
        named = [names for names in named if all(columns[name].holds_texts for name in names)] or named
    if len(named) == 1:
        return named[0]
    if named:
        raise _tie("text", [[columns[name] for name in names] for names in named], path)
    fitting = _with_known_end([column for column in columns.values() if column.holds_texts], TEXTS)
    _check_header(fitting, path)
    longest = max((column.length for column in fitting), default=0)
    fitting = [column for column in fitting if column.sentences or column.length * CLEARLY_LONGER > longest]
    return (_only(fitting, "text", columns, path),)


def _choose_label(columns: Mapping[str, ColumnValues], numbers_only: bool, path: str | Path) -> str:
    named = [column for column in columns.values() if column.name.lower() in LABELS]
    if len(named) == 1:
        return named[0].name
    fitting = [column for column in named or columns.values() if column.holds_labels]
    if numbers_only:
        fitting = [column for column in fitting if column.numbers]
    if not named:
        fitting = _with_known_end(fitting, LABELS)
        _check_header(fitting, path)
    fitting = _without_derived(fitting)
    fitting = [column for column in fitting if column.filled >= ALMOST_ALL] or fitting
    return _only(fitting or named, "label", columns, path)


def _named_texts(names: Sequence[str], pairs: bool) -> list[tuple[str, ...]]:
    """Known pairs of columns, and known single columns that are in none of these pairs."""
    candidates: list[tuple[str, ...]] = [
        (first, second)
        for known_first, known_second in PAIRS
        for first in names
        for second in names
        if pairs and (first.lower(), second.lower()) == (known_first, known_second)
    ]
    paired = {name for pair in candidates for name in pair}
    return candidates + [(name,) for name in names if name.lower() in TEXTS and name not in paired]


def _with_known_end(columns: list[ColumnValues], known_names: Sequence[str]) -> list[ColumnValues]:
    """The columns whose name ends with a known one, as ``star_rating`` does; all columns if there is none."""
    return [column for column in columns if last_word(column.name) in known_names] or columns


def _without_derived(columns: Sequence[ColumnValues]) -> list[ColumnValues]:
    """Without columns that describe another one, as ``topic:confidence`` and ``topic_gold`` describe ``topic``."""

    def describes(name: str, other: str) -> bool:
        return name.startswith(other) and name[len(other) : len(other) + 1] in tuple("_:.- ")

    return [column for column in columns if not any(describes(column.name, other.name) for other in columns)]


def _check_header(columns: Sequence[ColumnValues], path: str | Path) -> None:
    """Raise BadInput if the candidates are named like their values: a row would be lost as the header."""
    if columns and all(column.looks_like_data for column in columns):
        raise BadInput(
            f"{path}: the column name {shorten(columns[0].name)} looks like a value; is there a header? Add one, or "
            f"give {as_option('text_column')} and {as_option('label_column')}"
        )


def _only(fitting: Sequence[ColumnValues], role: str, columns: Mapping[str, ColumnValues], path: str | Path) -> str:
    if len(fitting) == 1:
        return fitting[0].name
    if fitting:
        raise _tie(role, [[column] for column in fitting], path)
    expected = "texts that are mostly different" if role == "text" else "short values that repeat, or numbers"
    listed = ", ".join(map(str, list(columns.values())[:MOST_LISTED])) or "no other column"
    more = f" and {len(columns) - MOST_LISTED} more" if len(columns) > MOST_LISTED else ""
    raise BadInput(
        f"{path}: no column has a known name for a {role}, or holds {expected}; the file has: {listed}{more}; "
        f"give {as_option(f'{role}_column')}"
    )


def _tie(role: str, candidates: Sequence[Sequence[ColumnValues]], path: str | Path) -> BadInput:
    listed = " or ".join(" with ".join(map(str, columns)) for columns in candidates[:MOST_LISTED])
    more = f" or {len(candidates) - MOST_LISTED} more" if len(candidates) > MOST_LISTED else ""
    advice = f"give {as_option(f'{role}_column')}"
    if role == "text":
        advice += f", and {as_option('pair_column')} if two belong together"
    return BadInput(f"{path}: the {role} may be {listed}{more}; {advice}")
