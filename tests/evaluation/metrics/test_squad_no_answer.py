"""No-answer probabilities: the threshold and the sweep for the best one, ties included, match a naive definition."""

from __future__ import annotations

import operator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.squad import (
    f1,
    no_answer_scores,
    official_best_threshold,
    read_na_probs,
    score_examples,
    squad_scores,
)

GOLDS = {"q1": ["big cat", "cat"], "q2": ["dog"], "q3": [], "q4": []}
PREDICTIONS = {"q1": "a cat", "q2": "dog house", "q3": "", "q4": "dog"}
PROBS = {"q1": 0.1, "q2": 0.6, "q3": 0.9, "q4": 0.3}

ROWS = st.lists(
    st.tuples(
        st.sampled_from([(), ("cat",), ("big old cat", "dog"), ("the",)]),
        st.sampled_from(["", "cat", "the", "old dog cat", "bird", "a big cat"]),
        st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0]) | st.floats(-5, 5),
    ),
    min_size=1,
    max_size=9,
)


def test_no_answer_scores_by_hand() -> None:
    """At 0.5 q2 and q3 go unanswered: right are q1 and q3. Oracles: q1, then q4 is lost, then 2/3 of q2 gained."""
    scores = no_answer_scores(GOLDS, PREDICTIONS, PROBS, threshold=0.5)
    parts = [f"{part}{name}" for part in ("", "HasAns_", "NoAns_") for name in ("exact", "f1", "total")]
    oracles = ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert list(scores) == parts + oracles
    assert [scores[name] for name in parts] == pytest.approx([50, 50, 4, 50, 50, 2, 50, 50, 2])
    assert [scores[name] for name in oracles] == pytest.approx([75, 0.1, 75, 0.1])


def test_default_threshold_changes_no_prediction() -> None:
    scores = no_answer_scores(GOLDS, PREDICTIONS, PROBS | {"q1": 1.0})
    plain = squad_scores(GOLDS, PREDICTIONS)
    assert {name: scores[name] for name in plain} == plain


def test_only_probabilities_above_the_threshold_count_as_no_answer() -> None:
    assert no_answer_scores(GOLDS, PREDICTIONS, PROBS, threshold=0.1)["HasAns_exact"] == 50
    assert no_answer_scores(GOLDS, PREDICTIONS, PROBS, threshold=0.09)["HasAns_exact"] == 0
    assert no_answer_scores(GOLDS, PREDICTIONS, PROBS, threshold=0.09)["NoAns_exact"] == 100


def test_listed_gold_counts_as_answerable_even_if_blank() -> None:
    """Its best answer is "", yet no answer due to the threshold scores 0, as in the official script."""
    assert no_answer_scores({"q": ["the"]}, {"q": ""}, {"q": 0.5})["exact"] == 100
    assert no_answer_scores({"q": ["the"]}, {"q": ""}, {"q": 0.5}, threshold=0.4)["exact"] == 0


def test_best_threshold_is_zero_if_answering_never_helps() -> None:
    scores = no_answer_scores({"a": [], "b": ["x"]}, {"a": "y", "b": "y"}, {"a": -3.0, "b": -2.0})
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (50, 0.0)


def test_sweep_charges_an_article_but_not_an_empty_prediction() -> None:
    """ "the" is as right as "" but it is not empty, and the sweep only checks that."""
    golds, probs = {"a": [], "b": ["x"]}, {"a": 0.1, "b": 0.2}
    assert no_answer_scores(golds, {"a": "", "b": "x"}, probs)["best_exact"] == 100
    scores = no_answer_scores(golds, {"a": "the", "b": "x"}, probs)
    assert (scores["exact"], scores["best_exact"], scores["best_exact_thresh"]) == (100, 50, 0.0)


def test_ties_are_swept_one_by_one_in_the_order_of_the_file() -> None:
    """Answering "a" before "b" is best, though no threshold can tell them apart."""
    golds, predictions = {"a": ["x"], "b": []}, {"a": "x", "b": "x"}
    first = no_answer_scores(golds, predictions, {"a": 0.5, "b": 0.5})
    assert (first["best_exact"], first["best_exact_thresh"]) == (100, 0.5)
    last = no_answer_scores(golds, predictions, {"b": 0.5, "a": 0.5})
    assert (last["best_exact"], last["best_exact_thresh"]) == (50, 0.0)


def test_f1_is_rounded_like_the_official_formula() -> None:
    """The last bit decides ties: 0.8 / 1.4 is not quite 4 / 7."""
    assert f1("arid plains of Central Asia", "Central Asia") == 2 * 1.0 * 0.4 / (1.0 + 0.4) != 4 / 7


def brute_force(
    golds: dict[str, list[str]], predictions: dict[str, str], part: int, probs: dict[str, float]
) -> tuple[float, float]:
    """Every prefix of the questions, answered and summed from scratch; the first of the best."""
    scores = score_examples(golds, predictions)
    positions = {qid: position for position, qid in enumerate(probs)}
    order = sorted(golds, key=lambda qid: (probs[qid], positions[qid]))
    start = float(len([qid for qid in golds if not golds[qid]]))
    totals = []
    for count in range(len(order) + 1):
        steps = [scores[qid][part] if golds[qid] else float(-(predictions[qid] != "")) for qid in order[:count]]
        totals.append(reduce(operator.add, steps, start))
    best = totals.index(max(totals))
    return 100 * totals[best] / len(golds), probs[order[best - 1]] if best else 0.0


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_sweep_equals_the_naive_definition(rows: list[tuple[tuple[str, ...], str, float]], random: object) -> None:
    golds = {str(i): list(row[0]) for i, row in enumerate(rows)}
    predictions = {str(i): row[1] for i, row in enumerate(rows)}
    order = [str(i) for i in range(len(rows))] + ["elsewhere"]
    random.shuffle(order)  # type: ignore[attr-defined]
    probs = {qid: 0.3 if qid == "elsewhere" else rows[int(qid)][2] for qid in order}
    scores = no_answer_scores(golds, predictions, probs)
    for part, name in enumerate(("exact", "f1")):
        expected = brute_force(golds, predictions, part, {qid: probs[qid] for qid in order if qid in golds})
        assert (scores[f"best_{name}"], scores[f"best_{name}_thresh"]) == expected


@settings(deadline=None)
@given(ROWS)
def test_best_score_is_reached_at_its_threshold_without_ties(rows: list[tuple[tuple[str, ...], str, float]]) -> None:
    """Blank golds and articles aside, where sweep and score differ by definition."""
    plain = [row for row in rows if row[0] != ("the",) and row[1] != "the"]
    golds = {str(i): list(row[0]) for i, row in enumerate(plain)}
    predictions = {str(i): row[1] for i, row in enumerate(plain)}
    probs = {str(i): 1.0 + i + row[2] / 100 for i, row in enumerate(plain)}
    if not golds:
        return
    best = no_answer_scores(golds, predictions, probs)
    for name in ("exact", "f1"):
        at_threshold = no_answer_scores(golds, predictions, probs, threshold=best[f"best_{name}_thresh"])
        assert at_threshold[name] == pytest.approx(best[f"best_{name}"])


def test_questions_without_probability_are_counted_and_named() -> None:
    with pytest.raises(BadInput, match="2 of 4 questions have no no-answer probability, the first is 'q2'"):
        no_answer_scores(GOLDS, PREDICTIONS, {"q1": 0.1, "q4": 0.5})
    with pytest.raises(BadInput, match="no prediction"):
        no_answer_scores(GOLDS, {}, PROBS)


def test_probabilities_of_a_file_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "na.json"
    path.write_text('{"b": 1, "a": 0.25, "c": -3.5e0}')
    assert list(read_na_probs(path).items()) == [("b", 1.0), ("a", 0.25), ("c", -3.5)]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "the file is empty"),
        ("[0.5]", r"got \[0.5\], expected one object"),
        ("{}", "got no predictions"),
        ('{"q": "0.5"}', r"\$\['q'\]: got '0.5', expected a finite number"),
        ('{"q": true}', "got True, expected a finite number"),
        ('{"q": null}', "got None, expected a finite number"),
        ('{"q": NaN}', "got nan, expected a finite number"),
        ('{"q": -Infinity}', "got -inf, expected a finite number"),
        ('{"q": 1' + "0" * 400 + "}", "expected a finite number"),
        ('{"q": 0.5, "q": 0.6}', "the key 'q' is given twice"),
        ('{"q": 0.5', "not JSON"),
    ],
)
def test_invalid_probability_file_is_an_error(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "na.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=part) as caught:
        read_na_probs(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_sweep_skips_probabilities_of_unknown_questions() -> None:
    assert official_best_threshold({"a": ["x"]}, {"a": "x"}, {"a": 1.0}, {"z": 0.0, "a": 0.7}) == (100, 0.7)
