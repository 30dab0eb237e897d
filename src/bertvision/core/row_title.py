"""The title of a leaderboard row: NAME@SEED, or NAME where there is no seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertvision.core.records import Predictions, Row


def row_title(row: Row | Predictions) -> str:
    """The name of a row, with its seed if it has one; also the name of its answer file, and of an ensemble's member."""
    return row.name if row.seed is None else f"{row.name}@{row.seed}"
