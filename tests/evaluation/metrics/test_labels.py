"""Label scores against cases worked out by hand and against scikit-learn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_oracles import accuracy, f1, macro_f1, matthews_correlation
from sklearn import metrics

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.labels import classification_scores

ROWS = st.integers(2, 4).flatmap(
    lambda labels: st.tuples(
        st.just(labels),
        st.lists(st.tuples(*[st.integers(0, labels - 1)] * 2), min_size=1, max_size=30),
    )
)


def test_two_labels_by_hand() -> None:
    """TP 2, FN 1, FP 1, TN 1: F1 of label 1 is 4/6, of label 0 is 2/4; Matthews (2·1 - 1·1) / sqrt(3·3·2·2)."""
    scores = classification_scores([1, 1, 1, 0, 0], [1, 1, 0, 1, 0], labels=2)
    assert list(scores) == ["accuracy", "f1", "macro_f1", "matthews_correlation"]
    assert list(scores.values()) == pytest.approx([60, 100 * 2 / 3, 100 * (2 / 3 + 1 / 2) / 2, 100 / 6])


def test_three_labels_have_no_plain_f1() -> None:
    """F1 by label: 2/3, 2/3, 1."""
    scores = classification_scores([0, 0, 1, 2], [0, 1, 1, 2], labels=3)
    assert list(scores) == ["accuracy", "macro_f1", "matthews_correlation"]
    assert scores["accuracy"] == 75
    assert scores["macro_f1"] == pytest.approx(100 * (2 / 3 + 2 / 3 + 1) / 3)


def test_opposite_labels_correlate_negatively() -> None:
    assert classification_scores([0, 1, 0, 1], [1, 0, 1, 0], labels=2)["matthews_correlation"] == pytest.approx(-100)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([0, 1, 1, 0], [0, 0, 0, 0], [50, 0, 100 / 3, 0]),
        ([0, 1, 1, 0], [1, 1, 1, 1], [50, 200 / 3, 100 / 3, 0]),
        ([0, 0], [0, 0], [100, 0, 100, 0]),  # label 1 occurs nowhere: it has no F1, and macro leaves it out
        ([1, 1], [1, 1], [100, 100, 100, 0]),
        ([1], [0], [0, 0, 0, 0]),
    ],
)
def test_constant_labels_have_defined_scores(gold: list[int], predicted: list[int], expected: list[float]) -> None:
    assert list(classification_scores(gold, predicted, labels=2).values()) == pytest.approx(expected)


@settings(deadline=None)  # scikit-learn takes its time on a busy machine
@given(ROWS)
def test_scores_match_scikit_learn(rows: tuple[int, list[tuple[int, int]]]) -> None:
    labels, pairs = rows
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    scores = classification_scores(gold, predicted, labels)
    assert ("f1" in scores) == (labels == 2)
    assert scores["accuracy"] == pytest.approx(100 * metrics.accuracy_score(gold, predicted))
    macro = metrics.f1_score(gold, predicted, average="macro", zero_division=0)
    assert scores["macro_f1"] == pytest.approx(100 * macro)
    if len(set(gold)) > 1 and len(set(predicted)) > 1:
        matthews = metrics.matthews_corrcoef(gold, predicted)
        assert scores["matthews_correlation"] == pytest.approx(100 * matthews)
    if labels == 2:
        assert scores["f1"] == pytest.approx(100 * metrics.f1_score(gold, predicted, zero_division=0))


@given(
    st.integers(2, 40).flatmap(
        lambda labels: st.tuples(
            st.just(labels), st.lists(st.tuples(*[st.integers(0, labels - 1)] * 2), min_size=1, max_size=60)
        )
    )
)
def test_scores_equal_the_naive_definitions_exactly(rows: tuple[int, list[tuple[int, int]]]) -> None:
    labels, pairs = rows
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    naive = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews_correlation": matthews_correlation}
    expected = {name: 100 * score(gold, predicted) for name, score in naive.items() if labels == 2 or name != "f1"}
    assert classification_scores(gold, predicted, labels) == expected


def test_invalid_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="2 predictions for 3 gold rows"):
        classification_scores([0, 1, 1], [0, 1], labels=2)
    with pytest.raises(BadInput, match="no rows"):
        classification_scores([], [], labels=2)
    with pytest.raises(BadInput, match=r"predicted row 1: got label 2, expected an integer 0\.\.1"):
        classification_scores([0, 1], [0, 2], labels=2)
    with pytest.raises(BadInput, match="gold row 0: got label -1"):
        classification_scores([-1, 1], [0, 1], labels=2)
