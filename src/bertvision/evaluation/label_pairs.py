"""Which prediction belongs to which gold row: by id where the predictions name ids, else by position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bertvision.core.errors import BadInput, shorten
from bertvision.evaluation.label_files import LabelFile


@dataclass(frozen=True)
class LabelPairs:
    """Labels as written, gold row by gold row, and where each comes from."""

    gold: list[str]
    predicted: list[str]
    gold_places: list[str]
    predicted_places: list[str]


def pair_labels(gold: LabelFile, predicted: LabelFile) -> LabelPairs:
    """Every gold row with its one prediction; a row too many or too few on either side is named."""
    order = _by_position(gold, predicted) if predicted.id_column is None else _by_id(gold, predicted)
    labels = predicted.labels
    return LabelPairs(
        gold.labels,
        [labels[row] for row in order],
        [gold.where(row) for row in range(len(gold))],
        [predicted.where(row) for row in order],
    )


def _by_position(gold: LabelFile, predicted: LabelFile) -> Sequence[int]:
    if len(gold) != len(predicted):
        raise BadInput(
            f"{predicted.path}: got {len(predicted)} predictions for the {len(gold)} rows of {gold.path}; "
            "expected one per row, in order (or a column 'id' or 'index')"
        )
    return range(len(gold))


def _by_id(gold: LabelFile, predicted: LabelFile) -> list[int]:
    """The prediction's row for each gold row."""
    what, gold_ids = _gold_ids(gold, predicted)
    rows = _rows_by_id(predicted, predicted.cells(predicted.id_column or ""))
    known = _rows_by_id(gold, gold_ids)
    extra = [key for key in rows if key not in known]
    missing = [key for key in known if key not in rows]
    if missing:
        raise BadInput(
            f"{predicted.path}: {len(missing)} of {len(gold)} gold rows have no prediction, the first is "
            f"{shorten(missing[0])} ({gold.where(known[missing[0]])}); ids are {what}"
        )
    if extra:
        raise BadInput(
            f"{predicted.where(rows[extra[0]])}: {shorten(extra[0])} is no gold row, nor are {len(extra) - 1} others; "
            f"ids are {what}"
        )
    return [rows[key] for key in gold_ids]


def _rows_by_id(file: LabelFile, ids: Sequence[str]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, key in enumerate(ids):
        if key in rows:
            raise BadInput(
                f"{file.where(row)}: id {shorten(key)} is already at {file.where(rows[key])}; expected it once"
            )
        rows[key] = row
    return rows


def _gold_ids(gold: LabelFile, predicted: LabelFile) -> tuple[str, list[str]]:
    """What the ids of the predictions are of the gold file, in words, and its rows by them.

    A column of the same name, first of all. Else an ``index`` counts rows from 0, as in GLUE; a key
    like ``dev:17`` (``dev-2:17`` for a second file of that name) is the file's stem and line, as runs
    name their examples; anything else is the gold file's id column or, for want of one, again the row.
    """
    column = predicted.id_column or ""
    by_key = predicted.path.suffix.lower() == ".json"
    prefix = predicted.cells(column)[0].rpartition(":")[0]
    if column in gold.columns and column != gold.label_column and not by_key:
        return f"column {column!r} of {gold.path}", gold.cells(column)
    if by_key and re.fullmatch(rf"{re.escape(gold.path.stem)}(-\d+)?", prefix):
        return f"{prefix}:line of {gold.path}", [f"{prefix}:{line}" for line, _ in gold.rows]
    if gold.id_column is not None and column.lower() != "index":
        return f"column {gold.id_column!r} of {gold.path}", gold.cells(gold.id_column)
    return f"the row numbers of {gold.path}, from 0", [str(row) for row in range(len(gold))]
