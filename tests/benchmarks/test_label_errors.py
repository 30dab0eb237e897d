"""The benchmark of likely label errors: which labels it changes, and how it counts."""

from __future__ import annotations

from label_errors import change_labels, scores
from quality_tasks import LabelledText


def test_one_label_in_twenty_is_changed_to_another_one() -> None:
    rows = [LabelledText(f"f:{number}", f"text {number}", None, "abc"[number % 3]) for number in range(200)]
    noisy, changed = change_labels(rows, "0")
    assert {index for index in range(200) if noisy[index].label != rows[index].label} == changed
    assert len(changed) == 10
    assert {row.label for row in noisy} == set("abc")
    assert change_labels(rows, "0") == (noisy, changed)
    assert change_labels(rows, "1")[1] != changed


def test_precision_and_recall_of_listed_rows() -> None:
    found = scores([*range(10), *range(100, 120)], set(range(40)))
    assert found == {
        **{"listed": 30, "precision_20": "0.500", "precision_50": "", "precision_100": ""},
        **{"precision": "0.333", "recall": "0.250"},
    }
    assert scores([], {1})["precision"] == ""
