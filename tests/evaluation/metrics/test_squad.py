"""The SQuAD scores against cases worked out by hand, against properties, and against published figures."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics import squad

WORDS = st.lists(st.sampled_from(["a", "The", "an", "cat", "Cat.", "dog", "42", "--", "é", "the-dog", " "]), max_size=6)
TEXTS = WORDS.map(" ".join) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat,  sat!", "cat sat"),
        ("an apple\ta day", "apple day"),
        ("Theatre another", "theatre another"),
        ("U.S.A.", "usa"),
        ("a.n. other", "other"),  # punctuation goes first and makes an article
        ("the-cat", "thecat"),
        ("“a” the—an", "“ ” —"),  # only ASCII punctuation goes; the rest still ends a word
        ("A, the: AN", ""),
        ("", ""),
    ],
)
def test_normalize_by_hand(text: str, normal: str) -> None:
    assert squad.normalize(text) == normal


@pytest.mark.parametrize(
    ("gold", "pred", "exact", "f1"),
    [
        ("the arid plains of Central Asia", "Central Asia", 0.0, 4 / 7),  # 5 words and 2, shared 2
        ("Central Asia", "central asia.", 1.0, 1.0),
        ("cat cat dog", "cat cat cat", 0.0, 4 / 6),  # a bag, not a set: two cats are shared
        ("dog cat", "cat dog", 0.0, 1.0),
        ("cat", "dog", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("", "the", 1.0, 1.0),
        ("cat", "", 0.0, 0.0),
        ("", "cat", 0.0, 0.0),
    ],
)
def test_exact_and_f1_of_a_pair_by_hand(gold: str, pred: str, exact: float, f1: float) -> None:
    assert squad.exact(gold, pred) == exact
    assert squad.f1(gold, pred) == pytest.approx(f1, abs=1e-15)


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_and_between_0_and_1(gold: str, pred: str) -> None:
    score = squad.f1(gold, pred)
    assert 0.0 <= score <= 1.0
    assert score == squad.f1(pred, gold)
    assert squad.exact(gold, pred) <= score
    assert squad.exact(gold, gold) == squad.f1(gold, gold) == 1.0


@given(TEXTS)
def test_normalising_leaves_single_spaced_lower_case(text: str) -> None:
    normal = squad.normalize(text)
    assert normal == " ".join(normal.split())
    assert not {"a", "an", "the"} & set(normal.split())
    assert not set(normal) & set(".,!?-'\"")


def test_best_over_golds_ignores_blank_golds() -> None:
    assert squad.best_over_golds(squad.f1, ["dog", "big cat", "cat"], "cat") == 1.0
    assert squad.best_over_golds(squad.exact, ["the", "cat"], "") == 0.0  # "the" is no gold; "cat" is one
    assert squad.best_over_golds(squad.exact, ["the", "!"], "") == 1.0
    assert squad.best_over_golds(squad.exact, [], "cat") == 0.0


GOLDS = {"q1": ["big cat", "cat"], "q2": ["dog"], "q3": [], "q4": []}
PREDICTIONS = {"q1": "a cat", "q2": "dog house", "q3": "", "q4": "dog", "elsewhere": "ignored"}


def test_score_examples_by_hand() -> None:
    scores = squad.score_examples(GOLDS, PREDICTIONS)
    assert list(scores) == list(GOLDS)
    assert scores == {"q1": (1.0, 1.0), "q2": (0.0, pytest.approx(2 / 3)), "q3": (1.0, 1.0), "q4": (0.0, 0.0)}


def test_squad_scores_have_the_official_names_and_order() -> None:
    scores = squad.squad_scores(GOLDS, PREDICTIONS)
    parts = ("", "HasAns_", "NoAns_")
    assert list(scores) == [f"{part}{name}" for part in parts for name in ("exact", "f1", "total")]
    assert list(scores.values()) == pytest.approx([50, 100 * (1 + 2 / 3 + 1) / 4, 4, 50, 250 / 3, 2, 50, 50, 2])


@pytest.mark.parametrize(("question", "prefix"), [("q1", "HasAns_"), ("q4", "NoAns_")])
def test_scores_of_absent_kinds_of_question_are_left_out(question: str, prefix: str) -> None:
    scores = squad.squad_scores({question: GOLDS[question]}, PREDICTIONS)
    assert list(scores) == ["exact", "f1", "total", f"{prefix}exact", f"{prefix}f1", f"{prefix}total"]


def test_question_with_a_blank_gold_counts_as_answerable() -> None:
    scores = squad.squad_scores({"q": ["the"]}, {"q": ""})
    assert scores["HasAns_exact"] == 100
    assert "NoAns_total" not in scores


def test_missing_predictions_are_counted_and_named() -> None:
    with pytest.raises(BadInput, match="2 of 4 questions have no prediction, the first is 'q2'"):
        squad.squad_scores(GOLDS, {"q1": "", "q4": ""})
    with pytest.raises(BadInput, match="no questions"):
        squad.squad_scores({}, PREDICTIONS)


def mean_score(
    threshold: float, scores: Mapping[str, float], answered: Mapping[str, float], has: Mapping[str, bool]
) -> float:
    return sum(answered[q] if scores[q] <= threshold else float(not has[q]) for q in has) / len(has)


QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from([-2.0, -0.5, 0.0, -0.0, 5e-324, 1.0, 3.0]) | st.floats(-1e300, 1e300),
        st.sampled_from([0.0, 0.4, 2 / 3, 1.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(QUESTIONS)
def test_best_threshold_equals_a_brute_force_search(rows: list[tuple[float, float, bool]]) -> None:
    scores = {str(i): row[0] for i, row in enumerate(rows)}
    answered = {str(i): row[1] for i, row in enumerate(rows)}
    has = {str(i): row[2] for i, row in enumerate(rows)}
    threshold, score = squad.best_threshold(scores, answered, has)
    assert math.isfinite(threshold)
    assert score == pytest.approx(mean_score(threshold, scores, answered, has), abs=1e-9)
    # Every split that any threshold can make is made by one of the scores themselves, or by -inf.
    candidates = [-math.inf, *scores.values()]
    assert score == pytest.approx(max(mean_score(t, scores, answered, has) for t in candidates), abs=1e-9)


def test_threshold_is_midway_between_neighbours() -> None:
    scores = {"a": -3.0, "b": 1.0, "c": 2.0, "d": 5.0}
    has = {"a": True, "b": True, "c": False, "d": False}
    threshold_and_score = squad.best_threshold(scores, {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}, has)
    assert threshold_and_score == (1.5, 1.0)


@pytest.mark.parametrize("level", [0.0, -7.5, 12.0, 1e300, -1e300])
def test_thresholds_that_answer_all_or_nothing_are_finite(level: float) -> None:
    scores = {"a": level, "b": level / 2}
    nothing, score = squad.best_threshold(scores, {"a": 0.0, "b": 0.0}, {"a": False, "b": False})
    assert (score, math.isfinite(nothing), nothing < min(scores.values())) == (1.0, True, True)
    everything, score = squad.best_threshold(scores, {"a": 1.0, "b": 0.5}, {"a": True, "b": True})
    assert (score, math.isfinite(everything), everything > max(scores.values())) == (0.75, True, True)


def test_questions_with_tied_scores_are_answered_together() -> None:
    """Answering "a" and not "b" would score 1, but no threshold can do it."""
    _, score = squad.best_threshold({"a": 2.0, "b": 2.0}, {"a": 1.0, "b": 0.0}, {"a": True, "b": False})
    assert score == 0.5


def test_threshold_separates_neighbouring_floats() -> None:
    for low in (1.0, math.nextafter(1.0, 2.0), 5e-324, -5e-324):
        scores = {"a": low, "b": math.nextafter(low, math.inf)}
        threshold, score = squad.best_threshold(scores, {"a": 1.0, "b": 0.0}, {"a": True, "b": False})
        assert scores["a"] <= threshold < scores["b"]
        assert score == 1.0


def test_tied_thresholds_take_the_lowest_despite_rounding() -> None:
    """Answering all gains 2/11 + 4/5 + 9/11 + 1/5 and loses the two unanswerable: nothing, but 4e-16 in floats."""
    answered = {"a": 0.0, "b": 0.0, "c": 2 / 11, "d": 4 / 5, "e": 9 / 11, "f": 1 / 5}
    assert sum(answered.values()) > 2
    scores = dict(zip("abcdef", range(6), strict=True))
    has = {question: question > "b" for question in scores}
    threshold, score = squad.best_threshold(scores, answered, has)
    assert threshold < 0
    assert score == 2 / 6


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e301])
def test_threshold_needs_finite_scores(score: float) -> None:
    with pytest.raises(BadInput, match=r"question 'b'.*finite"):
        squad.best_threshold({"a": 0.0, "b": score}, {"a": 1.0, "b": 1.0}, {"a": True, "b": True})


def test_threshold_needs_every_score() -> None:
    with pytest.raises(BadInput, match="1 of 2 questions have no no-answer score, the first is 'b'"):
        squad.best_threshold({"a": 0.0}, {"a": 1.0, "b": 1.0}, {"a": True, "b": True})
    with pytest.raises(BadInput, match="1 of 2 questions have no score, the first is 'a'"):
        squad.best_threshold({"a": 0.0, "b": 0.0}, {"b": 1.0}, {"a": True, "b": True})
    with pytest.raises(BadInput, match="no questions"):
        squad.best_threshold({}, {}, {})


DATA = os.environ.get("BERTVISION_DATA")


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="BERTVISION_DATA names no folder")
def test_published_systems_get_their_official_scores() -> None:
    folder = Path(DATA or "") / "squad"
    golds = squad.read_gold([folder / "squad2-train.json", folder / "squad2-dev.json"])
    expected = json.loads((folder / "official_predictions" / "expected_scores.json").read_text(encoding="utf-8"))
    assert len(expected) == 3
    for name, scores in expected.items():
        computed = squad.squad_scores(golds, squad.read_predictions(folder / "official_predictions" / name))
        assert list(computed) == list(scores)
        assert computed == pytest.approx(scores, abs=1e-6, rel=0)
