"""Scores as pure functions: plain numbers and strings in, plain numbers out.

Every score is times 100, so that one table can hold them all; an error such as ``rmse`` keeps the
unit of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.errors import BadInput


def check_rows(gold: Sequence[object], predicted: Sequence[object]) -> None:
    """Rows are compared by position, so there must be some, and as many on both sides."""
    if len(gold) != len(predicted):
        raise BadInput(f"got {len(predicted)} predictions for {len(gold)} gold rows; expected one per row, in order")
    if len(gold) == 0:
        raise BadInput("got no rows to score; expected at least one gold value and its prediction")
