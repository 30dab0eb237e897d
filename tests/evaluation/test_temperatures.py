"""Probabilities of a model are the calibrated ones: saved with it, and no decision changes."""

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


def log_odds(chance: float) -> float:
    return float(np.log(chance / (1 - chance)))


def test_a_head_brings_the_temperatures_of_its_row(
    span_encoder: Encoder, span_heads: list[FittedHead], span_store: Store, span_task: Task, tmp_path: Path
) -> None:
    for head, one in zip(span_heads, predict(span_heads, span_store["dev"]), strict=True):
        row = evaluate(one, span_task).rows[0]
        wanted = {what: told["temperature"] for what, told in row.calibration.items()}
        assert set(wanted) == {"answer", "no_answer"}
        assert Model(span_encoder, head, span_task).temperatures == wanted
        save_fitted(head, tmp_path / head.spec, "x")
        assert load_fitted(tmp_path / head.spec)[0].temperatures == wanted


def test_an_ensemble_is_told_its_temperatures_or_has_none(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task
) -> None:
    assert Model(span_encoder, span_heads[:2], span_task, "mean", threshold=0.0).temperatures == {}
    told = Model(span_encoder, span_heads[:2], span_task, "mean", threshold=0.0, temperatures={"answer": 2.0})
    assert told.temperatures == {"answer": 2.0}


def test_temperatures_change_how_sure_an_answer_is_and_nothing_else(
    span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task, tmp_path: Path
) -> None:
    plain = QuestionAnswerer(span_encoder, span_heads[1], span_task, temperatures={})
    calm = QuestionAnswerer(span_encoder, span_heads[1], span_task, temperatures={"answer": 5.0, "no_answer": 4.0})
    calm.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, QuestionAnswerer)
    asked = [e.text for e in span_task["dev"]], [e.pair or "" for e in span_task["dev"]]
    for one, other in zip(plain(*asked), loaded(*asked), strict=True):
        assert [one[key] for key in ("answer", "start", "end")] == [other[key] for key in ("answer", "start", "end")]
        assert other["score"] < one["score"]
        ratio = log_odds(one["no_answer_probability"]) / log_odds(other["no_answer_probability"])
        assert ratio == pytest.approx(4.0, rel=1e-3)
    several = loaded(asked[0][0], asked[1][0], top_k=5)
    assert [entry["score"] for entry in several] == sorted([entry["score"] for entry in several], reverse=True)


def test_labels_are_picked_the_same_at_any_temperature(
    label_encoder: Encoder, label_heads: list[FittedHead], label_task: Task
) -> None:
    plain = TextClassifier(label_encoder, label_heads[1], label_task, temperatures={})
    calm = TextClassifier(label_encoder, label_heads[1], label_task, temperatures={"label": 3.0})
    for one, other in zip(plain(TEXTS), calm(TEXTS), strict=True):
        assert one["label"] == other["label"]
        flatter = np.array(list(one["scores"].values())) ** (1 / 3)
        assert list(other["scores"].values()) == pytest.approx((flatter / flatter.sum()).tolist(), rel=1e-4)


def test_a_model_of_before_there_were_temperatures_still_loads(qa: QuestionAnswerer, tmp_path: Path) -> None:
    qa.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if '"temperatures"' in line)
    lines[start - 1] = lines[start - 1].rstrip(",")
    path.write_text("\n".join([*lines[:start], "}"]), encoding="utf-8")
    assert load_model(tmp_path).temperatures == {}
