"""Analyses as pure functions, with results computed by hand on a few examples."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.records import Answer, Example, Reliability, Row
from bertvision.evaluation.analyses.agreement import agreement, kappa, with_pair_name
from bertvision.evaluation.analyses.answers import Answers, context_word_counts, grade_answers
from bertvision.evaluation.analyses.breakdowns import (
    answer_length,
    answer_types,
    context_length,
    first_question_word,
    question_word,
)
from bertvision.evaluation.analyses.calibration import calibration_table
from bertvision.evaluation.analyses.cost import (
    Floor,
    PredictorCost,
    cost_against_score,
    efficiency,
    pareto,
)
from bertvision.evaluation.analyses.layer_weights import LayerWeights, layer_weights
from bertvision.evaluation.analyses.learning_curves import Step, by_layer, learning_curve
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.search_history import (
    SearchTrial,
    search_history,
    search_importance,
    variance_explained,
)
from bertvision.evaluation.analyses.second_best import second_best
from bertvision.report.analyses import format_gold
from bertvision.report.charts import draw
from bertvision.tasks.task import Task


def question(number: int, text: str, answer: str | None, context: str = "the red cat sat on a mat") -> Example:
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return Example(f"q{number}", text, context, answers)


EXAMPLES = (
    question(0, "Who sat?", "red cat"),
    question(1, "Where did it sit?", "mat", "a mat"),
    question(2, "In what city?", None),
    question(3, "How many dogs sat there?", None),
)
TASK = Task("spans", "span", {"train": (), "inner": (), "dev": EXAMPLES}, "f1", no_answer=True)
HEAD = {"q0": "the red cat", "q1": "", "q2": "", "q3": "a mat"}
OTHER = {"q0": "", "q1": "mat", "q2": "", "q3": ""}


def graded(answers: dict[str, str], name: str = "head") -> Answers:
    return grade_answers(TASK, "dev", name, "head", answers)


def checked_rows(finding: Finding) -> dict[str, Any]:
    """A finding must go through JSON as it is, name a column for every cell shown, and be drawable."""
    assert json.loads(json.dumps(finding.document()))["name"] == finding.name
    assert all(set(finding.columns) <= set(row) for row in finding.rows)
    for plot in finding.plots:
        picture = draw(plot)
        assert picture.startswith("<svg")
        assert 'role="img"' in picture
    return {str(next(iter(row.values()))): row for row in finding.rows}


def test_grade_answers_scores_each_answer() -> None:
    answers = graded(HEAD)
    assert answers.right.tolist() == [True, False, True, False]  # articles do not count
    assert answers.score.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert context_word_counts(EXAMPLES) == [7, 2, 7, 7]
    assert context_word_counts([Example("t", "two words", "one", label=1.0)]) == [3]


def test_answer_types_count_answers_that_were_not_given() -> None:
    rows = checked_rows(answer_types(EXAMPLES, [graded(HEAD), graded(OTHER, "other")]))
    head = rows["head"]
    assert (head["has_answer"], head["no_answer"]) == (2, 2)
    assert (head["has_answer_right"], head["no_answer_right"]) == (50.0, 50.0)
    assert (head["has_answer_missed"], head["missed_by_silence"]) == (1, 100.0)
    wrong = checked_rows(answer_types(EXAMPLES, [graded({**HEAD, "q0": "mat", "q1": "a"})]))["head"]
    assert (wrong["has_answer_missed"], wrong["missed_by_silence"]) == (2, 0.0)
    perfect = checked_rows(answer_types(EXAMPLES, [graded({"q0": "red cat", "q1": "mat", "q2": "", "q3": ""})]))["head"]
    assert perfect["missed_by_silence"] is None


def test_second_best_answer_differs_after_normalisation() -> None:
    ranked = [["mat", "Mat.", "red cat"], ["mat", ""], ["red", "the red", ""], ["", "mat"]]
    row = checked_rows(second_best(TASK, "dev", {"head": ranked}))["head"]
    assert (row["wrong"], row["second_right"], row["share"]) == (2, 2, 100.0)
    assert (row["has_answer_share"], row["no_answer_share"], row["rescued_has_answer"]) == (100.0, 100.0, 50.0)
    nothing = checked_rows(second_best(TASK, "dev", {"head": [["a"], ["b"], ["c"], []]}))["head"]
    assert (nothing["wrong"], nothing["second_right"]) == (4, 0)


def test_second_best_label_by_hand() -> None:
    texts = tuple(Example(str(i), "text", label=float(i % 2)) for i in range(4))
    task = Task("labels", "classify", {"train": (), "inner": (), "dev": texts}, "accuracy", ("no", "maybe", "yes")[:2])
    ranked = [["no", "maybe"], ["no", "maybe"], ["maybe", "no"], ["no", "maybe"]]
    row = checked_rows(second_best(task, "dev", {"head": ranked}))["head"]
    assert (row["wrong"], row["second_right"], row["share"]) == (3, 3, 100.0)


def test_context_length_of_examples_that_one_predictor_alone_gets_right() -> None:
    finding = context_length([7, 2, 7, 7], [graded(HEAD), graded(OTHER, "other")])
    checked_rows(finding)
    rows = {(row["name"], row["against"]): row for row in finding.rows}
    assert rows["head", None]["right_length"] == 7.0
    assert rows["head", None]["wrong_length"] == 4.5
    assert (rows["head", "other"]["right"], rows["head", "other"]["right_length"]) == (1, 7.0)
    assert (rows["other", "head"]["right"], rows["other", "head"]["right_length"]) == (2, 4.5)


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=30))
def test_context_length_plot_counts_every_example_once(pairs: list[tuple[int, bool]]) -> None:
    right = np.array([flag for _, flag in pairs])
    answers = Answers("head", "head", ("",) * len(pairs), right, right.astype(float))
    points = context_length([size for size, _ in pairs], [answers]).plots[0].series["head"]
    assert sum(int(title.split()[0]) for _, _, title in points) == len(pairs)
    assert sum(int(title.split()[0]) * share for _, share, title in points) == pytest.approx(100 * right.sum())


def test_answer_length_by_hand() -> None:
    rows = checked_rows(answer_length(EXAMPLES, [graded(HEAD)]))
    assert list(rows) == ["1", "2"]
    assert (rows["1"]["right_0"], rows["1"]["words_0"]) == (0.0, None)
    assert (rows["2"]["right_0"], rows["2"]["words_0"]) == (100.0, 3.0)


def test_question_word_by_hand() -> None:
    asked = {"Who?": "who", "In what year": "what", "How many?": "how many", "HOW": "how", "Is it somewhat?": "other"}
    assert [first_question_word(question) for question in asked] == list(asked.values())
    rows = checked_rows(question_word(EXAMPLES, [graded(HEAD)]))
    assert rows["who"] == {"word": "who", "questions": 1, "no_answer": 0.0, "right_0": 100.0}
    assert rows["what"]["no_answer"] == 100.0


def test_agreement_counts_and_shows_both_sides() -> None:
    finding = agreement(TASK, "dev", [(graded(HEAD), graded(OTHER, "other"))])
    row = checked_rows(finding)["head"]
    assert [row[key] for key in ("both", "only_a", "only_b", "neither", "either", "same")] == [25, 25, 50, 0, 100, 25]
    assert next((case["sort"], case["id"]) for case in finding.examples) == ("only_a", "q0")
    assert {case["id"] for case in finding.examples if case["sort"] == "only_b"} == {"q1", "q3"}


@pytest.mark.parametrize("positions", [None, {"q3": (20, 24)}])
def test_disagreement_on_spans_shows_gold_context_and_positions(positions: Any) -> None:
    answers = grade_answers(TASK, "dev", "head", "head", HEAD, positions)
    cases = {case["id"]: case for case in agreement(TASK, "dev", [(answers, graded(OTHER, "other"))]).examples}
    assert (cases["q0"]["gold"], cases["q3"]["gold"]) == ("red cat", "")
    assert cases["q0"]["pair"] == EXAMPLES[0].pair
    assert cases["q0"]["spans"] == [[4, 11]]
    assert cases["q3"].get("a_place") == (positions and [20, 24])
    assert "b_place" not in cases["q3"]


@pytest.mark.parametrize(
    ("kind", "marks", "right", "wrong", "golds"),
    [
        ("classify", {"label": 1.0}, "yes", "no", "yes"),
        ("multilabel", {"labels": (0, 1)}, ["no", "yes"], [], "no, yes"),
        ("multilabel", {"labels": ()}, [], ["no"], ""),
    ],
)
def test_disagreement_on_labels_names_the_gold(kind: Any, marks: Any, right: Any, wrong: Any, golds: str) -> None:
    examples = (Example("e", "one text", "another", **marks),)
    task = Task("t", kind, {"train": (), "inner": (), "dev": examples}, "accuracy", ("no", "yes"))
    sides = grade_answers(task, "dev", "a", "head", {"e": right}), grade_answers(task, "dev", "b", "head", {"e": wrong})
    (case,) = agreement(task, "dev", [sides]).examples
    assert (case["gold"], case["pair"], case["sort"]) == (golds, "another", "only_a")
    assert "spans" not in case
    assert format_gold(case) == (golds or "no label")


def test_two_pairs_never_share_a_name() -> None:
    finding = agreement(TASK, "dev", [(graded(HEAD), graded(OTHER, "other"))])
    names = [
        with_pair_name(finding, a, b).name
        for a, b in (("a:x=1", "b"), ("a:x-1", "b"), ("b", "a:x=1"), ("a" * 300, "b"))
    ]
    names.append(with_pair_name(finding, "a:x=1", "b", "another/run").name)
    assert len(set(names)) == 5
    assert all(re.fullmatch("agreement-[A-Za-z0-9-]{1,80}", name) for name in names)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_is_one_for_equals_and_symmetric(pairs: list[tuple[bool, bool]]) -> None:
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    assert kappa(a, b) == (None if kappa(b, a) is None else pytest.approx(kappa(b, a)))
    assert kappa(a, a) in (None, pytest.approx(1.0))


def test_layer_weights_by_state_and_seed() -> None:
    finding = layer_weights([LayerWeights("pool", ("0", "4", "8"), ((0.2, 0.3, 0.5), (0.0, 0.1, 0.9)))])
    checked_rows(finding)
    assert [row["weight"] for row in finding.rows] == pytest.approx([0.1, 0.2, 0.7])
    assert [row["highest"] for row in finding.rows] == [0.2, 0.3, 0.9]
    assert finding.rows[0]["centre"] == pytest.approx(0.8)


def test_layer_weights_are_plotted_at_their_state_numbers() -> None:
    weights = (0.2, 0.1, 0.3, 0.4)
    last = LayerWeights("pool:layers=last4", ("3", "4", "5", "6"), (weights,))
    pooled = LayerWeights("pool:pooled=true", ("pooled", "0", "1", "2"), (weights,))
    finding = layer_weights([last, pooled])
    checked_rows(finding)
    at = {name: [(x, weight) for x, weight, _ in line] for name, line in finding.plots[0].series.items()}
    assert at["pool:layers=last4"] == [(3, 0.2), (4, 0.1), (5, 0.3), (6, 0.4)]
    assert at["pool:pooled=true"] == [(0, 0.1), (1, 0.3), (2, 0.4)]
    assert finding.rows[4]["state"] == "pooled"
    assert finding.rows[0]["centre"] == pytest.approx((0.1 + 0.6 + 1.2) / 3)
    assert finding.rows[4]["centre"] == pytest.approx((0.3 + 0.8) / (2 * 0.8))
    assert "not in the plot" in finding.about
    assert "not in the plot" not in layer_weights([last]).about
    alone = layer_weights([LayerWeights("pool:read=pooled", ("pooled",), ((1.0,),))])
    checked_rows(alone)
    assert (alone.rows[0]["centre"], alone.plots) == (None, ())


def test_learning_curve_shows_the_mean_and_range_of_seeds() -> None:
    steps = [
        Step("a", 10, (50.0, 60.0), (1.0, 2.0), 7),
        Step("a", 100, (70.0,), (3.0,), 70),
        Step("b", 10, (9.0,)),
    ]
    finding = learning_curve(steps, "f1", {"encoder": 65.0})
    checked_rows(finding)
    assert next((row["dev"], row["dev_lowest"], row["dev_highest"], row["seeds"]) for row in finding.rows) == (
        55,
        50,
        60,
        2,
    )
    assert [row["inner"] for row in finding.rows] == [1.5, 3.0, None]
    picture = str(draw(finding.plots[0]))
    assert "encoder" in picture
    assert "a: 55.00 (50.00 to 60.00) at 10, 70.00 at 100" in picture
    assert picture.count("<title>50.00 to 60.00</title>") == 1
    assert "span the lowest to the highest seed" in finding.about
    assert "in 'encoder limited too' only the initial weights of the head" in finding.about
    assert "sample" not in by_layer(steps[:2], "f1", {}).about
    assert "series" not in by_layer(steps[:2], "f1", {}).columns
    assert "lowest to the highest" not in by_layer(steps[1:2], "f1", {}).about


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_pareto_front_is_exactly_the_points_that_are_not_dominated(points: list[tuple[int, int]]) -> None:
    front = pareto(points)
    for index, (price, score) in enumerate(points):
        dominated = any(p <= price and s >= score and (p, s) != (price, score) for p, s in points)
        assert (index in front) == (not dominated)


def test_cost_marks_the_pareto_front_and_skips_unmeasured_costs() -> None:
    costs = [
        PredictorCost("big", 80.0, 1e6, 100.0),
        PredictorCost("small", 79.0, 1e3, 10.0),
        PredictorCost("bad", 70.0, 1e5, 50.0),
    ]
    finding = cost_against_score(costs, "f1", Floor("always no", 70.0))
    rows = checked_rows(finding)
    assert (rows["small"]["efficiency"], rows["bad"]["efficiency"]) == (pytest.approx(3.0), 0.0)
    assert finding.about.endswith("The floor is f1 70.00 (always no).")
    assert rows["small"]["front"] == "trained parameters, training seconds"
    assert rows["bad"]["front"] == ""
    assert [plot.x for plot in finding.plots] == ["trained parameters", "training seconds"]
    assert [title for *_, title in finding.plots[0].series["on the front"]] == ["small", "big"]
    never_answering = 50.0  # the floor in Hulburd's paper, on SQuAD 2.0
    assert efficiency(76.3, 108_311_810, never_answering) == pytest.approx(3.27, abs=0.005)  # Hulburd's table 1
    assert efficiency(50.0, 1.0, never_answering) is None
    assert pareto([(None, 9.0), (1.0, float("nan")), (2.0, 3.0)]) == {2}


def test_calibration_errors_are_in_percent() -> None:
    calibration = {"answer": {"temperature": 1.5, "ece_raw": 0.12, "ece": 0.03}}
    row = Row("head", "head", "head", 0, 1, 0.1, {}, {}, 1.0, calibration=calibration)
    finding = calibration_table([row], [Reliability("head", 0, "answer", (), ((0.5, 0.4, 3),))])
    assert checked_rows(finding)["head"]["ece_raw"] == pytest.approx(12.0)


def test_search_history_and_importance_by_hand() -> None:
    scores = [50.0, None, 70.0, 60.0]
    settings = [{"head": "a", "fit.lr": 0.1}, {"head": "b"}, {"head": "a", "fit.lr": 0.2}, {"head": "b"}]
    trials = [SearchTrial(i, s, score, "complete") for i, (s, score) in enumerate(zip(settings, scores, strict=True))]
    history = search_history(trials, "f1")
    checked_rows(history)
    assert [row["best"] for row in history.rows] == [50.0, 50.0, 70.0, 70.0]
    rows = checked_rows(search_importance(trials))
    assert (rows["head"]["trials"], rows["head"]["best"]) == (3, "a")
    assert rows["fit.lr"]["share"] is None  # no value twice


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30))
def test_variance_explained_is_between_0_and_100_percent(pairs: list[tuple[int, float]]) -> None:
    share = variance_explained(
        np.array([score for _, score in pairs]), np.array([group for group, _ in pairs], np.int64)
    )
    assert share is None or -1e-9 <= share <= 100 + 1e-9
    assert variance_explained(np.array([1.0, 1.0, 5.0, 5.0]), np.array([0, 0, 1, 1])) == pytest.approx(100)
