"""Saved models: equal outputs after loading, the outputs that were scored, and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Predictions
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.ensemble import ensemble
from bertvision.evaluation.leaderboard import evaluate
from bertvision.evaluation.scoring import score_predictions, score_split
from bertvision.model import Model, QuestionAnswerer, TextClassifier, load_model
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict, predict_own

FITTED = ["probe:layers=last1", "learned-pool", "compress:size=4,skip=true"]
QUICK: dict[str, Any] = {"epochs": 3, "lr": 3e-2, "batch": 8}
CONTEXT = "Ben lives in Oslo. Cleo lives in Lima."
LONG = " ".join(
    f"{name} lives in {town}." for name in ("Anna", "Emil", "Ben") for town in ("Rome", "Oslo", "Quito", "Bern")
)
TEXTS = ["the good old town", "the bad town of Rome and Lima", "plain", "the old town of the old town of the old town"]


def span_models(encoder: Encoder, heads: list[FittedHead], task: Task) -> dict[str, QuestionAnswerer]:
    """One model of every kind that can be saved."""
    pair = ["encoder", heads[2]]
    return {
        "head": QuestionAnswerer(encoder, heads[1], task),
        "encoder": QuestionAnswerer(encoder, "encoder", task, threshold=0.3),
        "max": QuestionAnswerer(encoder, pair, task, "max", threshold=-0.2),
        "mean": QuestionAnswerer(encoder, heads, task, "mean", threshold=0.1),
        "fitted": QuestionAnswerer(encoder, pair, task, "fitted", weights=[0.3, 0.7], threshold=0.0),
    }


@pytest.mark.parametrize("variant", ["head", "encoder", "max", "mean", "fitted"])
def test_saved_question_answerer_gives_the_same_answers(
    variant: str, span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task, tmp_path: Path
) -> None:
    model = span_models(span_encoder, span_heads, span_task)[variant]
    model.save_pretrained(tmp_path / "model")
    loaded = QuestionAnswerer.from_pretrained(tmp_path / "model")
    asked = {"question": ["Where does Ben live?", "Where does Fay live?"], "context": [CONTEXT, LONG]}
    for options in ({}, {"top_k": 5}, {"handle_impossible_answer": False}):
        assert loaded(**asked, **options) == model(**asked, **options)
    assert [part.name for part in loaded.predictors] == [part.name for part in model.predictors]
    assert (loaded.threshold, loaded.combine, loaded.task) == (model.threshold, model.combine, model.task)
    assert isinstance(load_model(tmp_path / "model"), QuestionAnswerer)


@pytest.mark.parametrize("kind", ["label", "value"])
@pytest.mark.parametrize("variant", ["head", "encoder", "mean", "fitted"])
def test_saved_classifier_gives_the_same_answers(
    kind: str, variant: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    encoder, heads, task = (request.getfixturevalue(f"{kind}_{what}") for what in ("encoder", "heads", "task"))
    models = {
        "head": lambda: TextClassifier(encoder, heads[0], task),
        "encoder": lambda: TextClassifier(encoder, "encoder", task),
        "mean": lambda: TextClassifier(encoder, ["encoder", *heads], task, "mean"),
        "fitted": lambda: TextClassifier(encoder, ["encoder", heads[1]], task, "fitted", weights=[0.25, 0.5]),
    }
    model = models[variant]()
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, TextClassifier)
    assert loaded(TEXTS) == model(TEXTS)


def test_saved_model_is_json_and_safetensors_only(qa: QuestionAnswerer, tmp_path: Path) -> None:
    qa.save_pretrained(tmp_path / "model")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".txt"}
    assert {path.suffix for path in files} >= {".json", ".safetensors"}
    for path in files:
        assert not path.read_bytes().startswith((b"\x80", b"PK"))  # pickle, or the zip that torch puts it in
    assert (tmp_path / "model" / "encoder" / "model.safetensors").exists()


def test_model_may_be_saved_over_an_old_one(
    qa: QuestionAnswerer, span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task, tmp_path: Path
) -> None:
    span_models(span_encoder, span_heads, span_task)["mean"].save_pretrained(tmp_path)
    qa.save_pretrained(tmp_path)
    assert QuestionAnswerer.from_pretrained(tmp_path)("Where?", CONTEXT) == qa("Where?", CONTEXT)


def test_one_head_may_be_used_as_two_members(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task, tmp_path: Path
) -> None:
    model = QuestionAnswerer(span_encoder, [span_heads[0]] * 2, span_task, "mean", threshold=0.0)
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path)("Where?", CONTEXT) == model("Where?", CONTEXT)


# A model gives the outputs that the leaderboard was made from.


def models_and_predictions(
    encoder: Encoder, heads: list[FittedHead], store: Store, task: Task
) -> list[tuple[Model, Predictions]]:
    own, of_heads = predict_own(store["dev"]), predict(heads, store["dev"])
    pairs: list[tuple[Model, Predictions]] = [
        (Model(encoder, head, task), predictions) for head, predictions in zip(heads, of_heads, strict=True)
    ]
    methods = ("mean", "fitted") if task.kind == "regress" else ("max", "mean", "fitted")
    for method in methods:
        combined = ensemble([own, of_heads[1], of_heads[2]], method)  # type: ignore[arg-type]
        row = evaluate(combined, task).rows[0]
        members = ["encoder", heads[1], heads[2]]
        pairs.append((Model(encoder, members, task, method, row.weights, row.threshold), combined))  # type: ignore[arg-type]
    return [*pairs, (Model(encoder, "encoder", task, threshold=0.0), own)]


@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
def test_model_gives_the_outputs_that_were_scored(kind: str, request: pytest.FixtureRequest) -> None:
    encoder, heads, store, task = (
        request.getfixturevalue(f"{kind}_{what}") for what in ("encoder", "heads", "store", "task")
    )
    for model, predictions in models_and_predictions(encoder, heads, store, task):
        asked = [replace(example, answers=(), label=None, labels=None) for example in task["dev"]]
        logits, table = model.outputs(asked)
        assert table.example.tolist() == predictions.table.example.tolist()
        for got, wanted in zip(logits, predictions.logits, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-3, rtol=1e-3)


def test_model_gives_the_answers_that_were_scored(
    span_encoder: Encoder, span_heads: list[FittedHead], span_store: Store, span_task: Task
) -> None:
    asked = [e.text for e in span_task["dev"]], [e.pair or "" for e in span_task["dev"]]
    for head, predictions in zip(span_heads, predict(span_heads, span_store["dev"]), strict=True):
        model = QuestionAnswerer(span_encoder, head, span_task)
        assert model.threshold == score_predictions(span_task, predictions).result.threshold
        for threshold in (head.threshold, 0.0, 1e6):
            expected = score_split(span_task, "dev", predictions.logits, predictions.table, threshold).answers
            model = QuestionAnswerer(span_encoder, head, span_task, threshold=threshold)
            assert [answer["answer"] for answer in model(*asked)] == list(expected.values())
        assert all(expected.values())  # at the last threshold every question is answered


def test_model_gives_a_head_the_layers_that_it_was_fitted_on(
    span_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    store = extract(span_encoder, span_task, tmp_path / "store", layers="1+2", dtype="f32")
    fitted = fit(["probe:layers=first1", "learned-pool"], store, **QUICK)
    for head, predictions in zip(fitted, predict(fitted, store["dev"]), strict=True):
        model = Model(span_encoder, head, span_task)
        model.save_pretrained(tmp_path / head.spec)
        for candidate in (model, Model.from_pretrained(tmp_path / head.spec)):
            for got, wanted in zip(candidate.outputs(span_task["dev"])[0], predictions.logits, strict=True):
                np.testing.assert_allclose(got, wanted, atol=1e-4)


# Errors.


def refusals(request: pytest.FixtureRequest) -> dict[str, tuple[Callable[[], Any], str]]:
    encoder, task = request.getfixturevalue("span_encoder"), request.getfixturevalue("span_task")
    heads, label_heads = request.getfixturevalue("span_heads"), request.getfixturevalue("label_heads")
    tiny, values = request.getfixturevalue("tiny_encoder"), request.getfixturevalue("value_task")
    value_encoder, value_heads = request.getfixturevalue("value_encoder"), request.getfixturevalue("value_heads")
    pair = heads[:2]
    return {
        "kind": (lambda: TextClassifier(encoder, heads[0], task), "TextClassifier is for classify, multilabel"),
        "none": (lambda: Model(encoder, [], task), r"combine is .* for 0 predictor\(s\)"),
        "none max": (lambda: Model(encoder, [], task, "max"), r"combine is .* for 0 predictor\(s\)"),
        "one max": (
            lambda: Model(encoder, heads[0], task, "max"),
            "it must be max, mean or fitted for 2 or more, and None for one",
        ),
        "two": (
            lambda: Model(encoder, pair, task, threshold=0.0),
            "it must be max, mean or fitted for 2 or more, and None for one",
        ),
        "how": (lambda: Model(encoder, pair, task, "maximum", threshold=0.0), "no way to combine named 'maximum'"),  # type: ignore[arg-type]
        "weights": (lambda: Model(encoder, pair, task, "fitted", threshold=0.0), "'fitted' needs weights="),
        "count": (lambda: Model(encoder, pair, task, "fitted", [1.0], 0.0), "got 1 weights for 2 predictors"),
        "values": (lambda: Model(value_encoder, value_heads[:2], values, "max"), "'max' is for labels and spans"),
        "threshold": (lambda: Model(encoder, pair, task, "mean"), "needs threshold=, fitted on inner"),
        "own threshold": (lambda: Model(encoder, "encoder", task), "needs threshold=, fitted on inner"),
        "name": (lambda: Model(encoder, "probe", task, threshold=0.0), "'probe' is not a predictor of encoder"),
        "untuned": (lambda: Model(tiny, "encoder", task, threshold=0.0), "'encoder' if it was tuned"),
        "head": (
            lambda: Model(encoder, label_heads[0], task, threshold=0.0),
            "3 outputs for classify; task tiny-spans",
        ),
    }


@pytest.mark.parametrize(
    "case",
    [
        *("kind", "none", "none max", "one max", "two", "how", "weights", "count", "values"),
        *("threshold", "own threshold", "name", "untuned", "head"),
    ],
)
def test_invalid_combination_of_predictors_is_refused(case: str, request: pytest.FixtureRequest) -> None:
    build, message = refusals(request)[case]
    with pytest.raises(BadInput, match=message):
        build()


def test_heads_of_another_encoder_are_refused(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task
) -> None:
    cut = replace(span_heads[0], states=(0, 1, 5))
    with pytest.raises(BadInput, match=r"was fitted on 3 states of width 16; encoder .* gives 3 of width 16"):
        Model(span_encoder, cut, span_task)
    with pytest.raises(BadInput, match="give the encoder that the states came from"):
        Model(span_encoder, replace(span_heads[0], states=(0, 1)), span_task)


def test_model_of_the_wrong_kind_is_not_loaded(
    qa: QuestionAnswerer, classifier: TextClassifier, tmp_path: Path
) -> None:
    qa.save_pretrained(tmp_path / "qa")
    classifier.save_pretrained(tmp_path / "labels")
    with pytest.raises(BadInput, match="is for classify, multilabel, regress tasks; this model's task is span"):
        TextClassifier.from_pretrained(tmp_path / "qa")
    with pytest.raises(BadInput, match="QuestionAnswerer is for span tasks; this model's task is classify"):
        QuestionAnswerer.from_pretrained(tmp_path / "labels")


def test_broken_model_folder_is_an_error(qa: QuestionAnswerer, tiny_encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no model at .*missing.*the model of a run is in RUN/model"):
        load_model(tmp_path / "missing")
    with pytest.raises(BadInput, match="is not a BERTVision model of format 1"):
        load_model(tiny_encoder_folder)
    qa.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "heads.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"heads\.safetensors cannot be read"):
        load_model(tmp_path / "model")
    (tmp_path / "model" / "heads.safetensors").unlink()
    with pytest.raises(BadInput, match=r"heads\.safetensors cannot be read"):
        load_model(tmp_path / "model")
    for content in ("[1, 2]", "{", '"text"', '{"format": 1}'):
        (tmp_path / "model" / "config.json").write_text(content)
        with pytest.raises(BadInput, match=r"config\.json"):
            load_model(tmp_path / "model")


def test_classifier_of_two_labels_uses_the_threshold_of_its_head(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    """Chosen by Matthews' correlation, a label is predicted as often as it occurs, also by the saved model."""
    splits = {
        split: tuple(replace(example, label=float(number % 9 == 2)) for number, example in enumerate(label_task[split]))
        for split in label_task.splits
    }
    task = replace(label_task, splits=splits, labels=("usual", "rare"), metric="matthews_correlation")
    store = extract(tiny_encoder, task, tmp_path / "store", dtype="f32")
    (head,) = fit(["ridge"], store)
    assert head.threshold
    scored = score_predictions(task, predict(head, store["dev"])[0], head.inner_scores)
    assert scored.inner is not None
    predicted = list(scored.inner.answers.values()).count("rare")
    assert predicted >= sum(example.label == 1 for example in (*task["train"], *task["inner"])), "or more, if tied"
    assert TextClassifier(tiny_encoder, head, task).threshold == head.threshold
    margins = [float(row[1] - row[0]) for row in predict(head, store["dev"])[0].logits]
    middle = sum(sorted(margins)[3:5]) / 2  # below the middle of the nine texts
    model = TextClassifier(tiny_encoder, replace(head, threshold=middle), task)
    model.save_pretrained(tmp_path / "model")
    texts, expected = (
        [example.text for example in task["dev"]],
        score_split(task, "dev", predict(head, store["dev"])[0].logits, store["dev"].table(), middle),
    )
    assert list(expected.answers.values()).count("rare") == 5
    for classifier in (model, load_model(tmp_path / "model")):
        answers = classifier(texts)
        assert [answer["label"] for answer in answers] == list(expected.answers.values())
        assert all(answer["score"] == answer["scores"][answer["label"]] for answer in answers)
    plain = TextClassifier(tiny_encoder, replace(head, threshold=None), task)
    assert [answer["label"] for answer in plain(texts)] == ["usual"] * len(texts), "the more probable label"
