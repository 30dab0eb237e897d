"""Models give calibrated probabilities: temperatures are saved with them and change no decision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertvision.encoders.loading import Encoder
from bertvision.evaluation.leaderboard import evaluate
from bertvision.model import Model, QuestionAnswerer, TextClassifier, load_model
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.predict import predict

TEXTS = ["the good old town", "the bad town of Rome and Lima", "plain"]


def log_odds(probability: float) -> float:
    return float(np.log(probability / (1 - probability)))


def test_head_has_the_temperatures_of_its_leaderboard_row(
    span_encoder: Encoder, span_heads: list[FittedHead], span_store: Store, span_task: Task, tmp_path: Path
) -> None:
    for head, predictions in zip(span_heads, predict(span_heads, span_store["dev"]), strict=True):
        row = evaluate(predictions, span_task).rows[0]
        wanted = {what: values["temperature"] for what, values in row.calibration.items()}
        assert set(wanted) == {"answer", "no_answer"}
        assert Model(span_encoder, head, span_task).temperatures == wanted
        save_fitted(head, tmp_path / head.spec, "x")
        assert load_fitted(tmp_path / head.spec)[0].temperatures == wanted


def test_ensemble_has_the_temperatures_given_or_none(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task
) -> None:
    assert Model(span_encoder, span_heads[:2], span_task, "mean", threshold=0.0).temperatures == {}
    model = Model(span_encoder, span_heads[:2], span_task, "mean", threshold=0.0, temperatures={"answer": 2.0})
    assert model.temperatures == {"answer": 2.0}


def test_temperatures_change_probabilities_but_not_answers(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task, tmp_path: Path
) -> None:
    plain = QuestionAnswerer(span_encoder, span_heads[1], span_task, temperatures={})
    scaled = QuestionAnswerer(span_encoder, span_heads[1], span_task, temperatures={"answer": 5.0, "no_answer": 4.0})
    scaled.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, QuestionAnswerer)
    asked = [e.text for e in span_task["dev"]], [e.pair or "" for e in span_task["dev"]]
    for before, after in zip(plain(*asked), loaded(*asked), strict=True):
        assert [before[key] for key in ("answer", "start", "end")] == [after[key] for key in ("answer", "start", "end")]
        assert after["score"] < before["score"]
        ratio = log_odds(before["no_answer_probability"]) / log_odds(after["no_answer_probability"])
        assert ratio == pytest.approx(4.0, rel=1e-3)
    several = loaded(asked[0][0], asked[1][0], top_k=5)
    assert [entry["score"] for entry in several] == sorted([entry["score"] for entry in several], reverse=True)


def test_labels_are_the_same_at_any_temperature(
    label_encoder: Encoder, label_heads: list[FittedHead], label_task: Task
) -> None:
    plain = TextClassifier(label_encoder, label_heads[1], label_task, temperatures={})
    scaled = TextClassifier(label_encoder, label_heads[1], label_task, temperatures={"label": 3.0})
    for before, after in zip(plain(TEXTS), scaled(TEXTS), strict=True):
        assert before["label"] == after["label"]
        flatter = np.array(list(before["scores"].values())) ** (1 / 3)
        assert list(after["scores"].values()) == pytest.approx((flatter / flatter.sum()).tolist(), rel=1e-4)


def test_model_saved_without_temperatures_still_loads(qa: QuestionAnswerer, tmp_path: Path) -> None:
    qa.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if '"temperatures"' in line)
    lines[start - 1] = lines[start - 1].rstrip(",")
    path.write_text("\n".join([*lines[:start], "}"]), encoding="utf-8")
    assert load_model(tmp_path).temperatures == {}
