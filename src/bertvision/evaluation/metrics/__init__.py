"""Metrics as pure functions of arrays, numbers and strings.

Every score is in percent, so that one table can hold all of them; an error such as ``rmse`` is in the unit
of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.errors import BadInput


def check_rows(gold: Sequence[object], predicted: Sequence[object]) -> None:
    """Check that there are as many predictions as gold rows, and at least one."""
    if len(gold) != len(predicted):
        raise BadInput(f"got {len(predicted)} predictions for {len(gold)} gold rows; expected one per row, in order")
    if len(gold) == 0:
        raise BadInput("got no rows to score; expected at least one gold value and its prediction")
