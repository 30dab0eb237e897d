"""Any number of labels from end to end: targets, loss, threshold, ensembles, saved models, what is said of a text."""

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


def marks(task: Task, split: str) -> Any:
    return label_indicators(task[split], 3)


def test_a_window_is_marked_for_each_label(set_task: Task, tiny_encoder: Encoder) -> None:
    windows = split_windows(set_task, "train", tiny_encoder)
    assert [window.target for window in windows[:4]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    asked = replace(set_task, splits={"dev": (Example("x", "the old town"),)})
    (window,) = split_windows(asked, "dev", tiny_encoder)
    assert len(window.target) == 3
    assert np.isnan(window.target).all()


def test_marks_go_through_the_store(set_store: Store, set_task: Task) -> None:
    assert set_store["dev"].table().targets.tolist() == marks(set_task, "dev").astype(float).tolist()
    for batch in set_store["train"].batches(8, seed=1):
        wanted = marks(set_task, "train")[batch.windows.numpy()]
        assert torch.equal(batch.targets, torch.from_numpy(wanted).float())


def test_the_hash_of_the_data_knows_the_labels(set_task: Task) -> None:
    first, *rest = set_task["train"]
    other = replace(set_task, splits={**set_task.splits, "train": (replace(first, labels=(2,)), *rest)})
    weighed = replace(set_task, class_weights=(1.0, 2.0, 3.0))
    assert len({data_hash(task) for task in (set_task, other, weighed)}) == 3


def test_heads_learn_which_words_there_are(set_heads: list[FittedHead], set_store: Store, set_task: Task) -> None:
    board = evaluate([*predict(set_heads, set_store["dev"]), predict_own(set_store["dev"])], set_task)
    name, floor = baseline(set_task, "dev")
    assert name == "always no label"
    assert floor["f1_micro"] == 0.0
    for row in board.rows:
        assert set(row.scores) == {"f1_micro", "f1_macro", "exact"}
        assert row.scores["f1_micro"] > 60
        assert row.threshold is not None
        assert row.interval is not None
    assert board.rows[0].scores["f1_micro"] > 85


def test_the_commonest_set_of_train_is_the_baseline(set_task: Task) -> None:
    train = tuple(Example(str(i), "x", labels=(0, 2) if i < 3 else (1,)) for i in range(5))
    name, scores = baseline(replace(set_task, splits={**set_task.splits, "train": train}), "dev")
    assert name == "always bad + good"
    gold = marks(set_task, "dev")
    assert scores["f1_micro"] == pytest.approx(100 * f1_micro(gold, np.tile([True, False, True], (len(gold), 1))))


def test_the_threshold_is_inners_and_is_kept(
    set_heads: list[FittedHead], set_store: Store, set_task: Task, tmp_path: Path
) -> None:
    (one, *_), inner = set_heads, set_store["inner"].table()
    verdict = score_inner(set_task, one.inner, inner)
    assert one.threshold == verdict.threshold
    (found,) = predict(one, set_store["dev"])
    judged = score_predictions(set_task, found)
    assert judged.result.threshold == one.threshold
    said = np.stack(list(found.logits)) >= (one.threshold or 0)
    assert list(judged.result.answers.values()) == [[set_task.labels[i] for i in np.flatnonzero(row)] for row in said]
    save_fitted(one, tmp_path / "head", "x")
    assert load_fitted(tmp_path / "head")[0].threshold == one.threshold


def test_without_inner_a_label_is_said_from_even_odds_on(set_task: Task) -> None:
    logits = [np.array(row, np.float32) for row in [[0.0, -0.1, 3.0], [-1.0, -2.0, -0.5]]]
    task = replace(set_task, splits={"dev": set_task["dev"][:2]})
    table = WindowTable(np.arange(2), np.zeros(2, np.int64), [np.zeros((1, 2), np.int32)] * 2, np.zeros((2, 3)))
    verdict = score_split(task, "dev", logits, table)
    assert list(verdict.answers.values()) == [["bad", "good"], []]
    assert verdict.threshold == 0.0
    written = score_answers(task, "dev", verdict.answers)
    assert verdict.example_scores is not None
    assert written.predicted.tolist() == verdict.example_scores.predicted.tolist() == [[True, False, True], [False] * 3]
    assert written.gold.tolist() == verdict.example_scores.gold.tolist()


def member(name: str, chances: Any, gold: Any, inner: Predictions | None = None) -> Predictions:
    chances, gold = np.asarray(chances, np.float64), np.asarray(gold, np.float64)
    count = len(gold)
    table = WindowTable(np.arange(count), np.zeros(count, np.int64), [np.zeros((1, 2), np.int32)] * count, gold)
    logits = list(np.log(chances / (1 - chances)).astype(np.float32))
    return Predictions(name, name, "head", "inner" if inner is None else "dev", logits, table, inner=inner)


GOLD = [[1, 0, 1], [0, 0, 1]]
GOOD = [[0.9, 0.2, 0.8], [0.1, 0.3, 0.7]]
POOR = [[0.5, 0.6, 0.4], [0.5, 0.5, 0.6]]


def test_an_ensemble_combines_the_probability_of_every_label() -> None:
    good, poor = (member(str(i), c, GOLD, member(str(i), c, GOLD)) for i, c in enumerate((GOOD, POOR)))
    for how, wanted in (("max", np.maximum(GOOD, POOR)), ("mean", np.mean([GOOD, POOR], 0))):
        combined = ensemble([good, poor], how)  # type: ignore[arg-type]
        np.testing.assert_allclose(sigmoid(np.stack(list(combined.logits))), wanted, atol=1e-6)
        assert combined.inner is not None
        np.testing.assert_allclose(sigmoid(np.stack(list(combined.inner.logits))), wanted, atol=1e-6)
    fitted = ensemble([poor, good], "fitted")
    assert fitted.weights[1] > 0.999


def test_members_that_are_sure_make_no_infinity() -> None:
    sure = [member(str(i), GOOD, GOLD, member(str(i), GOOD, GOLD)) for i in range(2)]
    sure = [replace(one, logits=[1e4 * row for row in one.logits]) for one in sure]
    for how in ("max", "mean"):
        assert all(np.isfinite(row).all() for row in ensemble(sure, how).logits)  # type: ignore[arg-type]


@pytest.mark.parametrize("sort", ["head", "encoder", "max", "fitted"])
def test_a_saved_classifier_says_the_same(
    sort: str, set_encoder: Encoder, set_heads: list[FittedHead], set_task: Task, tmp_path: Path
) -> None:
    pair = ["encoder", set_heads[1]]
    model = {
        "head": lambda: TextClassifier(set_encoder, set_heads[1], set_task),
        "encoder": lambda: TextClassifier(set_encoder, "encoder", set_task, threshold=0.3),
        "max": lambda: TextClassifier(set_encoder, pair, set_task, "max", threshold=-0.2),
        "fitted": lambda: TextClassifier(set_encoder, pair, set_task, "fitted", weights=[0.3, 0.7], threshold=0.1),
    }[sort]()
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    texts = [e.text for e in set_task["dev"]]
    assert isinstance(loaded, TextClassifier)
    assert loaded(texts) == model(texts)
    assert loaded.threshold == model.threshold
    assert loaded.task.labels == set_task.labels


def test_what_is_said_of_a_text(
    set_encoder: Encoder, set_heads: list[FittedHead], set_store: Store, set_task: Task
) -> None:
    model = TextClassifier(set_encoder, set_heads[1], set_task)
    (found,) = predict(set_heads[1], set_store["dev"])
    verdict = score_predictions(set_task, found).result
    for example, said in zip(set_task["dev"], model([e.text for e in set_task["dev"]]), strict=True):
        json.dumps(said)
        assert list(said) == ["labels", "scores"]
        assert list(said["scores"]) == list(set_task.labels)
        assert all(0 <= score <= 1 for score in said["scores"].values())
        assert {one["label"] for one in said["labels"]} == set(verdict.answers[example.id])  # type: ignore[call-overload]
        scores = [one["score"] for one in said["labels"]]
        assert scores == sorted(scores, reverse=True)
        assert all(said["scores"][one["label"]] == one["score"] for one in said["labels"])


def test_a_model_of_sets_must_know_its_threshold(
    set_encoder: Encoder, set_heads: list[FittedHead], set_task: Task
) -> None:
    with pytest.raises(BadInput, match="gives any number of labels and so needs threshold="):
        TextClassifier(set_encoder, "encoder", set_task)
    with pytest.raises(BadInput, match="QuestionAnswerer is for span tasks; this model's task is multilabel"):
        QuestionAnswerer(set_encoder, set_heads[0], set_task)


def test_weights_reach_the_tuning_too(tiny_encoder: Encoder, set_task: Task) -> None:
    weighed = replace(set_task, class_weights=(5.0, 0.2, 1.0))
    plain, other = (tune(tiny_encoder, task, epochs=1, lr=1e-3, batch=8) for task in (set_task, weighed))
    assert plain.own is not None
    assert other.own is not None
    assert any(not torch.equal(plain.own.state[key], other.own.state[key]) for key in plain.own.state)


def write_rows(path: Path, rows: int = 60) -> Path:
    """Like the fixtures' texts, as JSON lines with lists."""
    words = ("bad", "plain", "good")
    lines = []
    for number in range(rows):
        chosen = [word for place, word in enumerate(words) if number >> place & 1]
        lines.append({"text": f"the {' and '.join(chosen)} town {number}", "label": chosen})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_from_a_file_to_labels_on_the_command_line(
    tiny_encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write_rows(tmp_path / "my.jsonl"), tmp_path / "run"
    words: list[object] = ["run", "text", "--kind", "multilabel", "--train", data, "--encoder", tiny_encoder_folder]
    quick = ["--max-length", 48, "--epochs", 5, "--lr", 1e-2, "--heads", "mean-pool", "--seeds", 0, "--out", run]
    assert main([str(word) for word in [*words, *quick, "--json"]]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metric"] == "f1_micro"
    assert {row["kind"] for row in document["rows"]} == {"encoder", "head", "ensemble"}
    assert document["rows"][0]["scores"]["f1_micro"] > document["baseline"]["scores"]["f1_micro"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "any number of 3 labels" in page
    assert "labels in train" in page
    assert main(["predict", str(run / "model"), "--text", "the bad and good town", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"labels", "scores"}
    assert set(said["scores"]) == {"bad", "good", "plain"}
    assert main(["evaluate", str(run), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [row["scores"] for row in again["rows"]] == [row["scores"] for row in document["rows"]]
