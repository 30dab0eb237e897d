"""Predictions of QuestionAnswerer and TextClassifier: offsets, no-answer, labels, values and batching."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
        for got_item, wanted_item in zip(got, wanted, strict=True):
            assert_close(got_item, wanted_item)
    else:
        assert got == (pytest.approx(wanted, abs=1e-5) if isinstance(wanted, float) else wanted)


def test_answer_has_the_keys_and_types_of_a_question_answering_pipeline(qa: QuestionAnswerer) -> None:
    answer = qa(question="Where does Ben live?", context=CONTEXT)
    assert list(answer) == ["answer", "score", "start", "end", "no_answer_probability"]
    assert [type(answer[key]) for key in answer] == [str, float, int, int, float]
    assert 0 <= answer["score"] <= 1
    assert 0 <= answer["no_answer_probability"] <= 1
    json.dumps(answer)


@pytest.mark.parametrize(
    "context", [CONTEXT, LONG, "  \n Ben  lives\tin  Oslo ! \n", "Ünder the old Café in Bern — Ben", "x"]
)
def test_answer_text_is_at_its_offsets(qa: QuestionAnswerer, context: str) -> None:
    for entry in qa("  Where does Ben live?  ", context, top_k=30, handle_impossible_answer=True):
        assert context[entry["start"] : entry["end"]] == entry["answer"]
        assert entry["answer"] == entry["answer"].strip()
        if not entry["answer"]:
            assert (entry["start"], entry["end"]) == (0, 0)


def test_top_k_answers_are_sorted_and_their_probabilities_sum_to_one(qa: QuestionAnswerer) -> None:
    several = qa("Where does Ben live?", LONG, top_k=5)
    scores = [entry["score"] for entry in several]
    assert len(several) == 5
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) <= 1 + 1e-9
    assert several[0] == qa("Where does Ben live?", LONG)
    assert len({(entry["start"], entry["end"]) for entry in several}) == 5
    everything = qa("Where does Ben live?", "Ben in Oslo", top_k=1000, handle_impossible_answer=True)
    assert sum(entry["score"] for entry in everything) == pytest.approx(1.0)


def with_threshold(model: QuestionAnswerer, threshold: float) -> QuestionAnswerer:
    return QuestionAnswerer(model.encoder, model.predictors[0], model.task, threshold=threshold)


def test_no_answer_is_given_above_the_threshold_only(qa: QuestionAnswerer) -> None:
    never, always = with_threshold(qa, 1e6), with_threshold(qa, -1e6)
    asked = ("Where does Ben live?", CONTEXT)
    assert never(*asked)["answer"] != ""
    assert never(*asked)["no_answer_probability"] < 0.01
    assert (always(*asked)["answer"], always(*asked)["start"], always(*asked)["end"]) == ("", 0, 0)
    assert always(*asked)["no_answer_probability"] > 0.99


def test_no_answer_probability_is_one_half_at_the_threshold(qa: QuestionAnswerer) -> None:
    asked = ("Where does Ben live?", CONTEXT)
    probability = with_threshold(qa, 0.0)(*asked)["no_answer_probability"]
    # Null score minus best span score.
    score_difference = float(np.log(probability / (1 - probability))) * qa.temperatures["no_answer"]
    assert with_threshold(qa, score_difference)(*asked)["no_answer_probability"] == pytest.approx(0.5, abs=1e-4)
    assert with_threshold(qa, score_difference + 0.01)(*asked)["answer"] != ""
    assert with_threshold(qa, score_difference - 0.01)(*asked)["answer"] == ""


def test_impossible_answers_can_be_switched_off_and_on(qa: QuestionAnswerer, span_task: Task) -> None:
    asked = ("Where does Ben live?", CONTEXT)
    always = with_threshold(qa, -1e6)
    forced = always(*asked, handle_impossible_answer=False)
    assert forced["answer"] != ""
    assert forced["no_answer_probability"] == always(*asked)["no_answer_probability"]
    assert all(entry["answer"] for entry in always(*asked, top_k=50, handle_impossible_answer=False))
    plain = QuestionAnswerer(qa.encoder, qa.predictors[0], replace(span_task, no_answer=False), threshold=None)
    assert plain(*asked)["answer"] != ""
    assert "" in [entry["answer"] for entry in plain(*asked, top_k=1000, handle_impossible_answer=True)]


def test_answers_do_not_depend_on_batching(qa: QuestionAnswerer, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [
        (f"Where does {name} live?", context) for name in ("Ben", "Cleo", "Q") for context in (CONTEXT, LONG, "Oslo")
    ]
    questions, contexts = [q for q, _ in pairs], [c for _, c in pairs]
    alone = [qa(q, c, top_k=3) for q, c in pairs]
    assert_close(qa(questions, contexts, top_k=3), alone)
    monkeypatch.setattr(model_module, "BATCH_TOKENS", 70)
    monkeypatch.setattr(model_module, "CHUNK", 2)
    assert_close(qa(questions, contexts, top_k=3), alone)


def test_single_context_or_question_is_paired_with_every_other(qa: QuestionAnswerer) -> None:
    questions, contexts = ["Where does Ben live?", "Where does Cleo live?"], [CONTEXT, LONG]
    assert_close(qa(questions, CONTEXT), [qa(question, CONTEXT) for question in questions])
    assert_close(qa(questions[0], contexts), [qa(questions[0], context) for context in contexts])
    assert qa([], []) == []
    with pytest.raises(BadInput, match="got lists of 2 and 3 texts"):
        qa(questions, [CONTEXT] * 3)


@pytest.mark.parametrize(
    ("question", "context", "what"), [("", CONTEXT, "question"), ("  ", CONTEXT, "question"), ("Q?", " \n", "context")]
)
def test_empty_question_or_context_is_an_error(qa: QuestionAnswerer, question: str, context: str, what: str) -> None:
    with pytest.raises(BadInput, match=f"question 1: the {what} is empty"):
        qa(question, context)
    with pytest.raises(BadInput, match=f"question 3: the {what} is empty"):
        qa(["Q?", "Q?", question], [CONTEXT, CONTEXT, context])


def test_too_long_question_and_invalid_top_k_are_errors(qa: QuestionAnswerer) -> None:
    with pytest.raises(BadInput, match="question longer than the window"):
        qa("where " * 100, CONTEXT)
    with pytest.raises(BadInput, match="top_k is 0, expected at least 1"):
        qa("Where?", CONTEXT, top_k=0)


def test_label_comes_with_the_scores_of_all_labels(classifier: TextClassifier, label_task: Task) -> None:
    answer = classifier("the good old town")
    assert list(answer) == ["label", "score", "scores"]
    assert list(answer["scores"]) == list(label_task.labels)
    assert sum(answer["scores"].values()) == pytest.approx(1.0)
    assert answer["score"] == max(answer["scores"].values()) == answer["scores"][answer["label"]]
    json.dumps(answer)


def test_labels_are_those_scored_on_dev(
    classifier: TextClassifier, label_heads: list[FittedHead], label_store: Store, label_task: Task
) -> None:
    expected = score_predictions(label_task, predict(label_heads[1], label_store["dev"])[0]).result.answers
    assert [answer["label"] for answer in classifier([e.text for e in label_task["dev"]])] == list(expected.values())


def test_values_are_on_the_scale_of_the_data(
    value_encoder: Encoder, value_heads: list[FittedHead], value_store: Store, value_task: Task
) -> None:
    model = TextClassifier(value_encoder, value_heads[2], value_task)
    expected = score_predictions(value_task, predict(value_heads[2], value_store["dev"])[0]).result.answers
    answers = model([e.text for e in value_task["dev"]], [e.pair or "" for e in value_task["dev"]])
    assert all(list(answer) == ["value"] for answer in answers)
    assert [answer["value"] for answer in answers] == pytest.approx(list(expected.values()), abs=1e-3)
    assert 30 < answers[0]["value"] < 70


def test_texts_and_pairs_give_the_same_labels_alone_and_in_batches(classifier: TextClassifier) -> None:
    assert_close(classifier(TEXTS), [classifier(text) for text in TEXTS])
    assert_close(classifier(TEXTS, "where does Ben live"), [classifier(text, "where does Ben live") for text in TEXTS])
    assert_close(classifier("plain", TEXTS), [classifier("plain", text) for text in TEXTS])
    assert_close(classifier(TEXTS, TEXTS[::-1]), [classifier(*both) for both in zip(TEXTS, TEXTS[::-1], strict=True)])
    assert classifier("plain", "good") != classifier("plain")
    assert classifier([]) == []
    with pytest.raises(BadInput, match="got lists of 4 and 3 texts"):
        classifier(TEXTS, TEXTS[:3])


def test_text_without_pair_is_unchanged_by_pairs_in_its_batch(classifier: TextClassifier) -> None:
    mixed = list(classifier.labels([("plain", None), ("plain", "good")]))
    assert_close(mixed, [classifier("plain"), classifier("plain", "good")])
