"""Asking a model: answers that are where they say, "no answer", labels, values, and batches that change nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision import model as asking_module
from bertvision import model as model_module
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.scoring import score_predictions
from bertvision.model import QuestionAnswerer, TextClassifier
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict

CONTEXT = "Ben lives in Oslo. Cleo lives in Lima."
LONG = " ".join(
    f"{who} lives in {town}." for who in ("Anna", "Emil", "Ben") for town in ("Rome", "Oslo", "Quito", "Bern")
)
TEXTS = ["the good old town", "the bad town of Rome and Lima", "plain", "the old town of the old town of the old town"]


def assert_close(got: Any, wanted: Any) -> None:
    """Equal in everything but the last digits of numbers."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_close(one, other)
    else:
        assert got == (pytest.approx(wanted, abs=1e-5) if isinstance(wanted, float) else wanted)


def test_an_answer_has_the_shape_of_the_old_pipelines(qa: QuestionAnswerer) -> None:
    answer = qa(question="Where does Ben live?", context=CONTEXT)
    assert list(answer) == ["answer", "score", "start", "end", "no_answer_probability"]
    assert [type(answer[key]) for key in answer] == [str, float, int, int, float]
    assert 0 <= answer["score"] <= 1
    assert 0 <= answer["no_answer_probability"] <= 1
    json.dumps(answer)


@pytest.mark.parametrize(
    "context", [CONTEXT, LONG, "  \n Ben  lives\tin  Oslo ! \n", "Ünder the old Café in Bern — Ben", "x"]
)
def test_an_answer_is_where_it_says(qa: QuestionAnswerer, context: str) -> None:
    for entry in qa("  Where does Ben live?  ", context, top_k=30, handle_impossible_answer=True):
        assert context[entry["start"] : entry["end"]] == entry["answer"]
        assert entry["answer"] == entry["answer"].strip()
        if not entry["answer"]:
            assert (entry["start"], entry["end"]) == (0, 0)


def test_the_best_answers_are_sorted_and_their_probabilities_add_up(qa: QuestionAnswerer) -> None:
    several = qa("Where does Ben live?", LONG, top_k=5)
    scores = [entry["score"] for entry in several]
    assert len(several) == 5
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) <= 1 + 1e-9
    assert several[0] == qa("Where does Ben live?", LONG)
    assert len({(entry["start"], entry["end"]) for entry in several}) == 5
    everything = qa("Where does Ben live?", "Ben in Oslo", top_k=1000, handle_impossible_answer=True)
    assert sum(entry["score"] for entry in everything) == pytest.approx(1.0)


def at_threshold(model: QuestionAnswerer, threshold: float) -> QuestionAnswerer:
    return QuestionAnswerer(model.encoder, model.predictors[0], model.task, threshold=threshold)


def test_no_answer_is_said_above_the_threshold_only(qa: QuestionAnswerer) -> None:
    never, always = at_threshold(qa, 1e6), at_threshold(qa, -1e6)
    asked = ("Where does Ben live?", CONTEXT)
    assert never(*asked)["answer"] != ""
    assert never(*asked)["no_answer_probability"] < 0.01
    assert (always(*asked)["answer"], always(*asked)["start"], always(*asked)["end"]) == ("", 0, 0)
    assert always(*asked)["no_answer_probability"] > 0.99


def test_the_probability_of_no_answer_is_a_half_at_the_threshold(qa: QuestionAnswerer) -> None:
    asked = ("Where does Ben live?", CONTEXT)
    chance = at_threshold(qa, 0.0)(*asked)["no_answer_probability"]
    there = float(np.log(chance / (1 - chance))) * qa.temperatures["no_answer"]  # null score - best span score
    assert at_threshold(qa, there)(*asked)["no_answer_probability"] == pytest.approx(0.5, abs=1e-4)
    assert at_threshold(qa, there + 0.01)(*asked)["answer"] != ""
    assert at_threshold(qa, there - 0.01)(*asked)["answer"] == ""


def test_impossible_answers_can_be_switched_off_and_on(qa: QuestionAnswerer, span_task: Task) -> None:
    asked = ("Where does Ben live?", CONTEXT)
    always = at_threshold(qa, -1e6)
    forced = always(*asked, handle_impossible_answer=False)
    assert forced["answer"] != ""
    assert forced["no_answer_probability"] == always(*asked)["no_answer_probability"]
    assert all(entry["answer"] for entry in always(*asked, top_k=50, handle_impossible_answer=False))
    plain = QuestionAnswerer(qa.encoder, qa.predictors[0], replace(span_task, no_answer=False), threshold=None)
    assert plain(*asked)["answer"] != ""
    assert "" in [entry["answer"] for entry in plain(*asked, top_k=1000, handle_impossible_answer=True)]


def test_batches_change_nothing(qa: QuestionAnswerer, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [
        (f"Where does {name} live?", context) for name in ("Ben", "Cleo", "Q") for context in (CONTEXT, LONG, "Oslo")
    ]
    questions, contexts = [q for q, _ in pairs], [c for _, c in pairs]
    alone = [qa(q, c, top_k=3) for q, c in pairs]
    assert_close(qa(questions, contexts, top_k=3), alone)
    monkeypatch.setattr(model_module, "BATCH_TOKENS", 70)
    monkeypatch.setattr(asking_module, "CHUNK", 2)
    assert_close(qa(questions, contexts, top_k=3), alone)


def test_one_context_serves_many_questions_and_the_reverse(qa: QuestionAnswerer) -> None:
    questions, contexts = ["Where does Ben live?", "Where does Cleo live?"], [CONTEXT, LONG]
    assert_close(qa(questions, CONTEXT), [qa(question, CONTEXT) for question in questions])
    assert_close(qa(questions[0], contexts), [qa(questions[0], context) for context in contexts])
    assert qa([], []) == []
    with pytest.raises(BadInput, match="got lists of 2 and 3 texts"):
        qa(questions, [CONTEXT] * 3)


@pytest.mark.parametrize(
    ("question", "context", "what"), [("", CONTEXT, "question"), ("  ", CONTEXT, "question"), ("Q?", " \n", "context")]
)
def test_an_empty_text_is_said(qa: QuestionAnswerer, question: str, context: str, what: str) -> None:
    with pytest.raises(BadInput, match=f"question 1: the {what} is empty"):
        qa(question, context)
    with pytest.raises(BadInput, match=f"question 3: the {what} is empty"):
        qa(["Q?", "Q?", question], [CONTEXT, CONTEXT, context])


def test_other_questions_that_cannot_be_asked(qa: QuestionAnswerer) -> None:
    with pytest.raises(BadInput, match="question longer than the window"):
        qa("where " * 100, CONTEXT)
    with pytest.raises(BadInput, match="top_k is 0, expected at least 1"):
        qa("Where?", CONTEXT, top_k=0)


def test_labels_come_with_all_their_scores(classifier: TextClassifier, label_task: Task) -> None:
    answer = classifier("the good old town")
    assert list(answer) == ["label", "score", "scores"]
    assert list(answer["scores"]) == list(label_task.labels)
    assert sum(answer["scores"].values()) == pytest.approx(1.0)
    assert answer["score"] == max(answer["scores"].values()) == answer["scores"][answer["label"]]
    json.dumps(answer)


def test_labels_are_those_of_the_board(
    classifier: TextClassifier, label_heads: list[FittedHead], label_store: Store, label_task: Task
) -> None:
    said = score_predictions(label_task, predict(label_heads[1], label_store["dev"])[0]).result.answers
    assert [answer["label"] for answer in classifier([e.text for e in label_task["dev"]])] == list(said.values())


def test_values_are_on_the_scale_of_the_data(
    value_encoder: Encoder, value_heads: list[FittedHead], value_store: Store, value_task: Task
) -> None:
    model = TextClassifier(value_encoder, value_heads[2], value_task)
    said = score_predictions(value_task, predict(value_heads[2], value_store["dev"])[0]).result.answers
    answers = model([e.text for e in value_task["dev"]], [e.pair or "" for e in value_task["dev"]])
    assert all(list(answer) == ["value"] for answer in answers)
    assert [answer["value"] for answer in answers] == pytest.approx(list(said.values()), abs=1e-3)
    assert 30 < answers[0]["value"] < 70


def test_texts_in_batches_pairs_and_alone(classifier: TextClassifier) -> None:
    assert_close(classifier(TEXTS), [classifier(text) for text in TEXTS])
    assert_close(classifier(TEXTS, "where does Ben live"), [classifier(text, "where does Ben live") for text in TEXTS])
    assert_close(classifier("plain", TEXTS), [classifier("plain", text) for text in TEXTS])
    assert_close(classifier(TEXTS, TEXTS[::-1]), [classifier(*both) for both in zip(TEXTS, TEXTS[::-1], strict=True)])
    assert classifier("plain", "good") != classifier("plain")
    assert classifier([]) == []
    with pytest.raises(BadInput, match="got lists of 4 and 3 texts"):
        classifier(TEXTS, TEXTS[:3])


def test_a_text_without_a_pair_is_the_same_beside_one_that_has_one(classifier: TextClassifier) -> None:
    mixed = list(classifier.labels([("plain", None), ("plain", "good")]))
    assert_close(mixed, [classifier("plain"), classifier("plain", "good")])
