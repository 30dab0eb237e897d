"""Imbalanced labels: counts, the one-line note, and balanced class weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.class_weights import (
    balanced_weights,
    class_counts,
    describe_imbalance,
    format_class_counts,
    with_class_weights,
)
from bertvision.tasks.task import Task, load_task

NAMES = ("no", "so", "yes")


def classify_task(labels: Sequence[int], names: tuple[str, ...] = NAMES) -> Task:
    train = tuple(Example(str(i), "text", label=float(label)) for i, label in enumerate(labels))
    return Task("t", "classify", {"train": train, "inner": (), "dev": ()}, "accuracy", names)


def multilabel_task(labels: Sequence[tuple[int, ...]]) -> Task:
    train = tuple(Example(str(i), "text", labels=label_set) for i, label_set in enumerate(labels))
    return Task("t", "multilabel", {"train": train, "inner": (), "dev": ()}, "f1_micro", NAMES)


def test_class_counts_are_those_of_train() -> None:
    task = classify_task([2, 0, 0])
    task = replace(task, splits={**task.splits, "dev": task["train"]})
    assert class_counts(task) == {"no": 2, "so": 0, "yes": 1}
    assert class_counts(multilabel_task([(0, 2), (), (2,)])) == {"no": 1, "so": 0, "yes": 2}
    assert format_class_counts(task) == "no 2, yes 1, so 0"


def test_format_class_counts_shortens_many_labels() -> None:
    names = tuple("abcdefghijk")
    line = format_class_counts(classify_task([i for i in range(11) for _ in range(i + 1)], names))
    assert line == "k 11, j 10, i 9, h 8, g 7, f 6, e 5, d 4, 3 more down to 1"


def test_describe_imbalance_in_one_line() -> None:
    uneven = classify_task([0] * 9 + [1] * 6 + [2] * 3)
    assert describe_imbalance(uneven) == (
        "imbalanced labels: no 9, so 6, yes 3; 50 % of train have the most common label, "
        "3.0 times as many as the rarest; consider --class-weights balanced"
    )
    weighted = with_class_weights(uneven, "balanced")
    assert describe_imbalance(weighted).endswith("as the rarest; balanced class weights are used")
    assert describe_imbalance(classify_task([0] * 8 + [1] * 6 + [2] * 3)) == ""
    assert "none has the rarest" in describe_imbalance(classify_task([0, 0, 2]))
    assert "67 % of train have the most common label, 2.0" not in describe_imbalance(
        multilabel_task([(0, 1), (0,), (2,)])
    )
    assert "75 % of train have the most common label, 3.0 times" in describe_imbalance(
        multilabel_task([(0, 1), (0, 2), (0,), ()])
    )


def test_regression_has_no_imbalance() -> None:
    values = replace(classify_task([]), kind="regress", labels=())
    assert describe_imbalance(values) == ""
    assert format_class_counts(values) == ""


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_balanced_weights_equal_scikit_learns(labels: list[int]) -> None:
    present = sorted(set(labels))
    task = classify_task([present.index(label) for label in labels], NAMES[: len(present)])
    expected = compute_class_weight(
        "balanced", classes=np.arange(len(present)), y=[present.index(label) for label in labels]
    )
    assert balanced_weights(task) == pytest.approx(expected.tolist())
    # The mean weight over train is 1.
    assert np.mean([balanced_weights(task)[present.index(label)] for label in labels]) == pytest.approx(1.0)


def test_weight_of_a_label_missing_from_train_is_one() -> None:
    assert balanced_weights(classify_task([0, 0, 0, 2])) == pytest.approx((4 / 9, 1.0, 4 / 3))


def test_multilabel_weights_treat_every_label_as_binary() -> None:
    assert balanced_weights(multilabel_task([(0, 2), (2,), (2,), ()])) == pytest.approx((3.0, 1.0, 1 / 3))
    # Labels of all rows or of none need no weights.
    assert balanced_weights(multilabel_task([(0,), (0,)])) == (1.0, 1.0, 1.0)


def write(folder: Path) -> Path:
    path = folder / "my.csv"
    path.write_text("text,label\n" + "".join(f"t{i},{'ab'[i % 5 == 0]}\n" for i in range(50)), "utf-8")
    return path


def test_class_weights_option_of_load_task(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert load_task("text", train=path).class_weights == ()
    assert load_task("text", train=path, class_weights="none").class_weights == ()
    task = load_task("text", train=path, class_weights="balanced")
    count = class_counts(task)
    rows = len(task["train"])
    assert task.class_weights == pytest.approx((rows / (2 * count["a"]), rows / (2 * count["b"])))


def test_balanced_weights_select_by_macro_f1() -> None:
    assert with_class_weights(classify_task([0, 0, 1, 2]), "balanced").metric == "macro_f1"
    assert with_class_weights(classify_task([0, 0, 1, 2]), "none").metric == "accuracy"
    assert with_class_weights(replace(classify_task([0, 0, 1, 2]), metric="f1"), "balanced").metric == "f1"


def test_invalid_class_weights_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no class_weights named 'balance'\. Did you mean 'balanced'"):
        load_task("text", train=write(tmp_path), class_weights="balance")
    values = tmp_path / "values.csv"
    values.write_text("text,label\na,0.5\nb,1.5\nc,2.5\n", "utf-8")
    with pytest.raises(BadInput, match="class_weights: task text has no labels"):
        load_task("text", train=values, class_weights="balanced")
    assert load_task("text", train=values, class_weights="none").kind == "regress"
