"""Tables as plain text."""

from __future__ import annotations

from bertvision.core.text_table import align_columns


def test_first_column_is_left_aligned_and_others_are_right_aligned() -> None:
    assert align_columns([["a", "1"], ["bcd", "22"]]) == ["a     1", "bcd  22"]
