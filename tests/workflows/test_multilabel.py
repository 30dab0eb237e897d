"""Multilabel tasks from end to end: targets, loss, threshold, ensembles, saved models and predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from metric_oracles import f1_micro

from bertvision.cli.main import main
from bertvision.core.errors import BadInput
from bertvision.core.records import Example, Predictions, WindowTable
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.ensemble import ensemble, sigmoid
from bertvision.evaluation.example_scores import label_indicators, score_answers
from bertvision.evaluation.leaderboard import baseline, evaluate
from bertvision.evaluation.scoring import score_inner, score_predictions, score_split
from bertvision.model import QuestionAnswerer, TextClassifier, load_model
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.inputs import data_hash, split_windows
from bertvision.training.predict import predict, predict_own
from bertvision.training.tune import tune


def indicators(task: Task, split: str) -> Any:
    return label_indicators(task[split], 3)


def test_window_target_has_an_indicator_per_label(set_task: Task, tiny_encoder: Encoder) -> None:
    windows = split_windows(set_task, "train", tiny_encoder)
    assert [window.target for window in windows[:4]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    unlabelled = replace(set_task, splits={"dev": (Example("x", "the old town"),)})
    (window,) = split_windows(unlabelled, "dev", tiny_encoder)
    assert len(window.target) == 3
    assert np.isnan(window.target).all()


def test_store_keeps_label_indicators(set_store: Store, set_task: Task) -> None:
    assert set_store["dev"].table().targets.tolist() == indicators(set_task, "dev").astype(float).tolist()
    for batch in set_store["train"].batches(8, seed=1):
        expected = indicators(set_task, "train")[batch.windows.numpy()]
        assert torch.equal(batch.targets, torch.from_numpy(expected).float())


def test_data_hash_depends_on_labels_and_class_weights(set_task: Task) -> None:
    first, *rest = set_task["train"]
    relabelled = replace(set_task, splits={**set_task.splits, "train": (replace(first, labels=(2,)), *rest)})
    weighted = replace(set_task, class_weights=(1.0, 2.0, 3.0))
    assert len({data_hash(task) for task in (set_task, relabelled, weighted)}) == 3


def test_heads_learn_the_labels(set_heads: list[FittedHead], set_store: Store, set_task: Task) -> None:
    board = evaluate([*predict(set_heads, set_store["dev"]), predict_own(set_store["dev"])], set_task)
    name, floor = baseline(set_task, "dev")
    assert name == "always bad + plain + good"
    every = np.ones((len(set_task["dev"]), 3), bool)
    assert floor["f1_micro"] == pytest.approx(100 * f1_micro(indicators(set_task, "dev"), every))
    for row in board.rows:
        assert set(row.scores) == {"f1_micro", "f1_macro", "exact"}
        assert row.scores["f1_micro"] > 60
        assert row.threshold is not None
        assert row.interval is not None
    assert board.rows[0].scores["f1_micro"] > 85


@pytest.mark.parametrize(
    ("sets", "metric", "name", "labels"),
    [
        ([(0, 2), (0, 2), (0, 2), (1,)], "f1_micro", "always bad + good", [True, False, True]),
        ([(0, 2), (0, 2), (0, 2), (1,), (1,)], "f1_micro", "always bad + plain + good", [True, True, True]),
        ([(0,), (0,), (0, 1), ()], "f1_micro", "always bad", [True, False, False]),
        ([(0, 2), (0, 2), (1,), (1,), (1,)], "exact", "always plain", [False, True, False]),
        ([(), (), (0,), (1,), (2,)], "exact", "always no label", [False, False, False]),
        ([(), (), (), (1, 2)], "f1_micro", "always plain", [False, True, False]),
    ],
)
def test_baseline_is_the_constant_set_of_labels_with_the_best_score_on_train(
    set_task: Task, sets: list[tuple[int, ...]], metric: str, name: str, labels: list[bool]
) -> None:
    train = tuple(Example(str(i), "x", labels=chosen) for i, chosen in enumerate(sets))
    task = replace(set_task, splits={**set_task.splits, "train": train}, metric=metric)
    got, scores = baseline(task, "dev")
    assert got == name
    gold = indicators(set_task, "dev")
    assert scores["f1_micro"] == pytest.approx(100 * f1_micro(gold, np.tile(labels, (len(gold), 1))))


def test_threshold_is_fitted_on_inner_and_saved(
    set_heads: list[FittedHead], set_store: Store, set_task: Task, tmp_path: Path
) -> None:
    (head, *_), inner = set_heads, set_store["inner"].table()
    scored_inner = score_inner(set_task, head.inner, inner)
    assert head.threshold == scored_inner.threshold
    (predictions,) = predict(head, set_store["dev"])
    scored = score_predictions(set_task, predictions)
    assert scored.result.threshold == head.threshold
    predicted = np.stack(list(predictions.logits)) >= (head.threshold or 0)
    assert list(scored.result.answers.values()) == [
        [set_task.labels[i] for i in np.flatnonzero(row)] for row in predicted
    ]
    save_fitted(head, tmp_path / "head", "x")
    assert load_fitted(tmp_path / "head")[0].threshold == head.threshold


def test_threshold_without_inner_is_even_odds(set_task: Task) -> None:
    logits = [np.array(row, np.float32) for row in [[0.0, -0.1, 3.0], [-1.0, -2.0, -0.5]]]
    task = replace(set_task, splits={"dev": set_task["dev"][:2]})
    table = WindowTable(np.arange(2), np.zeros(2, np.int64), [np.zeros((1, 2), np.int32)] * 2, np.zeros((2, 3)))
    split_scores = score_split(task, "dev", logits, table)
    assert list(split_scores.answers.values()) == [["bad", "good"], []]
    assert split_scores.threshold == 0.0
    scored_answers = score_answers(task, "dev", split_scores.answers)
    assert split_scores.example_scores is not None
    assert (
        scored_answers.predicted.tolist()
        == split_scores.example_scores.predicted.tolist()
        == [[True, False, True], [False] * 3]
    )
    assert scored_answers.gold.tolist() == split_scores.example_scores.gold.tolist()


def predictions_with(name: str, probabilities: Any, gold: Any, inner: Predictions | None = None) -> Predictions:
    probabilities, gold = np.asarray(probabilities, np.float64), np.asarray(gold, np.float64)
    count = len(gold)
    table = WindowTable(np.arange(count), np.zeros(count, np.int64), [np.zeros((1, 2), np.int32)] * count, gold)
    logits = list(np.log(probabilities / (1 - probabilities)).astype(np.float32))
    return Predictions(name, name, "head", "inner" if inner is None else "dev", logits, table, inner=inner)


GOLD = [[1, 0, 1], [0, 0, 1]]
GOOD = [[0.9, 0.2, 0.8], [0.1, 0.3, 0.7]]
POOR = [[0.5, 0.6, 0.4], [0.5, 0.5, 0.6]]


def test_ensemble_combines_probabilities_per_label() -> None:
    good, poor = (
        predictions_with(str(i), c, GOLD, predictions_with(str(i), c, GOLD)) for i, c in enumerate((GOOD, POOR))
    )
    for how, expected in (("max", np.maximum(GOOD, POOR)), ("mean", np.mean([GOOD, POOR], 0))):
        combined = ensemble([good, poor], how)  # type: ignore[arg-type]
        np.testing.assert_allclose(sigmoid(np.stack(list(combined.logits))), expected, atol=1e-6)
        assert combined.inner is not None
        np.testing.assert_allclose(sigmoid(np.stack(list(combined.inner.logits))), expected, atol=1e-6)
    fitted = ensemble([poor, good], "fitted")
    assert fitted.weights[1] > 0.999


def test_ensemble_of_confident_members_is_finite() -> None:
    members = [predictions_with(str(i), GOOD, GOLD, predictions_with(str(i), GOOD, GOLD)) for i in range(2)]
    members = [replace(member, logits=[1e4 * row for row in member.logits]) for member in members]
    for how in ("max", "mean"):
        assert all(np.isfinite(row).all() for row in ensemble(members, how).logits)  # type: ignore[arg-type]


@pytest.mark.parametrize("members", ["head", "encoder", "max", "fitted"])
def test_saved_multilabel_classifier_gives_the_same_answers(
    members: str, set_encoder: Encoder, set_heads: list[FittedHead], set_task: Task, tmp_path: Path
) -> None:
    pair = ["encoder", set_heads[1]]
    model = {
        "head": lambda: TextClassifier(set_encoder, set_heads[1], set_task),
        "encoder": lambda: TextClassifier(set_encoder, "encoder", set_task, threshold=0.3),
        "max": lambda: TextClassifier(set_encoder, pair, set_task, "max", threshold=-0.2),
        "fitted": lambda: TextClassifier(set_encoder, pair, set_task, "fitted", weights=[0.3, 0.7], threshold=0.1),
    }[members]()
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    texts = [e.text for e in set_task["dev"]]
    assert isinstance(loaded, TextClassifier)
    assert loaded(texts) == model(texts)
    assert loaded.threshold == model.threshold
    assert loaded.task.labels == set_task.labels


def test_classifier_output_of_a_text(
    set_encoder: Encoder, set_heads: list[FittedHead], set_store: Store, set_task: Task
) -> None:
    model = TextClassifier(set_encoder, set_heads[1], set_task)
    (predictions,) = predict(set_heads[1], set_store["dev"])
    split_scores = score_predictions(set_task, predictions).result
    for example, answer in zip(set_task["dev"], model([e.text for e in set_task["dev"]]), strict=True):
        json.dumps(answer)
        assert list(answer) == ["labels", "scores"]
        assert list(answer["scores"]) == list(set_task.labels)
        assert all(0 <= score <= 1 for score in answer["scores"].values())
        assert {label["label"] for label in answer["labels"]} == set(split_scores.answers[example.id])  # type: ignore[call-overload]
        scores = [label["score"] for label in answer["labels"]]
        assert scores == sorted(scores, reverse=True)
        assert all(answer["scores"][label["label"]] == label["score"] for label in answer["labels"])


def test_multilabel_model_needs_a_threshold(set_encoder: Encoder, set_heads: list[FittedHead], set_task: Task) -> None:
    with pytest.raises(BadInput, match="gives any number of labels and so needs threshold="):
        TextClassifier(set_encoder, "encoder", set_task)
    with pytest.raises(BadInput, match="QuestionAnswerer is for span tasks; this model's task is multilabel"):
        QuestionAnswerer(set_encoder, set_heads[0], set_task)


def test_tune_uses_class_weights_of_multilabel_tasks(tiny_encoder: Encoder, set_task: Task) -> None:
    weighted = replace(set_task, class_weights=(5.0, 0.2, 1.0))
    plain, with_weights = (tune(tiny_encoder, task, epochs=1, lr=1e-3, batch=8) for task in (set_task, weighted))
    assert plain.own is not None
    assert with_weights.own is not None
    assert any(not torch.equal(plain.own.state[key], with_weights.own.state[key]) for key in plain.own.state)


def write_rows(path: Path, rows: int = 60) -> Path:
    """Texts like those of the fixtures, as JSON lines with lists of labels."""
    words = ("bad", "plain", "good")
    lines = []
    for number in range(rows):
        chosen = [word for bit, word in enumerate(words) if number >> bit & 1]
        lines.append({"text": f"the {' and '.join(chosen)} town {number}", "label": chosen})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_multilabel_run_and_predict_on_the_command_line(
    tiny_encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write_rows(tmp_path / "my.jsonl"), tmp_path / "run"
    arguments: list[object] = ["run", "text", "--kind", "multilabel", "--train", data, "--encoder", tiny_encoder_folder]
    options = ["--max-length", 48, "--epochs", 5, "--lr", 1e-2, "--heads", "mean-pool", "--seeds", 0, "--out", run]
    assert main([str(word) for word in [*arguments, *options, "--json"]]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metric"] == "f1_micro"
    assert {row["kind"] for row in document["rows"]} == {"encoder", "head", "ensemble"}
    assert document["rows"][0]["scores"]["f1_micro"] > document["baseline"]["scores"]["f1_micro"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "any number of 3 labels" in page
    assert "labels in train" in page
    assert main(["predict", str(run / "model"), "--text", "the bad and good town", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"labels", "scores"}
    assert set(answer["scores"]) == {"bad", "good", "plain"}
    assert main(["evaluate", str(run), "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert [row["scores"] for row in evaluated["rows"]] == [row["scores"] for row in document["rows"]]
