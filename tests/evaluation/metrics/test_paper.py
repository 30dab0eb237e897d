"""Exact match and F1 on word pieces, as in the paper: cases worked out by hand; nothing is normalised."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.paper import exact, f1, paper_scores
from bertvision.evaluation.metrics.squad import squad_scores

PIECES = st.lists(st.integers(1, 4), max_size=6)
THE, CAT, SAT = 1996, 4937, 2938


@pytest.mark.parametrize(
    ("gold", "pred", "em", "overlap"),
    [
        ((CAT, SAT), (CAT, SAT), 1, 1),
        ((CAT, SAT), (SAT, CAT), 0, 1),  # F1 is over bags, EM over lists
        ((CAT,), (THE, CAT), 0, 2 / 3),
        ((CAT, CAT, SAT), (CAT, SAT, SAT, THE), 0, 4 / 7),  # one cat and one sat are shared
        ((CAT,), (SAT,), 0, 0),
        ((CAT,), (), 0, 0),
        ((), (CAT,), 0, 0),
        ((), (), 1, 1),
    ],
)
def test_exact_and_f1_of_a_pair_by_hand(
    gold: tuple[int, ...], pred: tuple[int, ...], em: float, overlap: float
) -> None:
    assert exact(gold, pred) == em
    assert f1(gold, pred) == pytest.approx(overlap)


@settings(deadline=None, derandomize=True)
@given(PIECES, PIECES)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(gold: list[int], pred: list[int]) -> None:
    shared = sum((Counter(gold) & Counter(pred)).values())
    if shared:
        precision, recall = shared / len(pred), shared / len(gold)
        assert f1(gold, pred) == pytest.approx(2 * precision * recall / (precision + recall))
    else:
        assert f1(gold, pred) == float(not gold and not pred)
    assert f1(gold, pred) == f1(pred, gold)
    assert exact(gold, pred) <= f1(gold, pred) <= 1


def test_scores_are_percentages_overall_and_by_answerability() -> None:
    golds: list[list[tuple[int, ...]]] = [[(CAT, SAT)], [(CAT,), (SAT,)], [], []]
    scores = paper_scores(golds, [(CAT,), (SAT,), (), (CAT,)])
    assert scores == pytest.approx(
        {
            "legacy_exact": 50,
            "legacy_f1": 100 * (2 / 3 + 1 + 1 + 0) / 4,
            "HasAns_legacy_exact": 50,
            "HasAns_legacy_f1": 100 * (2 / 3 + 1) / 2,
            "NoAns_legacy_exact": 50,
            "NoAns_legacy_f1": 50,
        }
    )


def test_exact_and_f1_each_take_their_best_gold() -> None:
    scores = paper_scores([[(CAT,), (THE, CAT, SAT, SAT)]], [(THE, CAT, SAT)])
    assert scores == pytest.approx(scores | {"legacy_exact": 0, "legacy_f1": 100 * 6 / 7})


def test_scores_of_absent_kinds_of_question_are_left_out() -> None:
    assert list(paper_scores([[(CAT,)]], [()])) == [
        "legacy_exact",
        "legacy_f1",
        "HasAns_legacy_exact",
        "HasAns_legacy_f1",
    ]
    assert paper_scores([[]], [()])["NoAns_legacy_exact"] == 100


def test_word_pieces_are_not_normalised() -> None:
    """The official script forgives the article; word pieces do not."""
    assert squad_scores({"q": ["cat"]}, {"q": "the cat"})["exact"] == 100
    assert paper_scores([[(CAT,)]], [(THE, CAT)])["legacy_exact"] == 0


def test_wrong_number_of_predictions_is_an_error() -> None:
    with pytest.raises(BadInput, match="got 1 predictions for 2 gold rows"):
        paper_scores([[], []], [()])
    with pytest.raises(BadInput, match="no rows"):
        paper_scores([], [])
