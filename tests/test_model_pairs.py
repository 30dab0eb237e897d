"""Models with heads that read each text of a pair by itself, alone and beside heads that read both as one input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertvision import model as model_module
from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.encoders.loading import Encoder
from bertvision.model import TextClassifier, load_model
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict

SPECS = ("ridge:read=difference+product", "probe:layers=0+2,read=first+second", "ridge", "probe:read=mean+product")
TOGETHER = {"ridge", "probe:read=mean+product"}


@pytest.fixture(scope="module")
def store(tiny_encoder: Encoder, pair_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """f32, so that what heads see here equals what they see in a model."""
    return extract(tiny_encoder, pair_task, tmp_path_factory.mktemp("pairs") / "store", pairs="both", dtype="f32")


@pytest.fixture(scope="module")
def heads(store: Store) -> list[FittedHead]:
    return fit(SPECS, store, epochs=3, lr=3e-2, batch=8)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often pairs are encoded as one input, and texts by themselves."""
    counts = {"together": 0, "texts": 0}
    together, alone = model_module.hidden_states, model_module.mean_states

    def count_together(*arguments: Any) -> Any:
        counts["together"] += 1
        return together(*arguments)

    def count_texts(model: Any, windows: Any, *arguments: Any) -> Any:
        counts["texts"] += len(windows)
        return alone(model, windows, *arguments)

    monkeypatch.setattr(model_module, "hidden_states", count_together)
    monkeypatch.setattr(model_module, "mean_states", count_texts)
    return counts


def assert_predicts_as_the_run(
    model: TextClassifier, examples: tuple[Example, ...], expected: Any, atol: float
) -> None:
    logits, _ = model.outputs(examples)
    np.testing.assert_allclose(np.stack(list(logits)), np.stack(list(expected)), atol=atol)


@pytest.mark.parametrize("index", range(len(SPECS)))
def test_model_predicts_dev_as_the_run_did(
    tiny_encoder: Encoder, store: Store, heads: list[FittedHead], pair_task: Task, index: int, calls: dict[str, int]
) -> None:
    expected = predict(heads[index], store["dev"])[0].logits
    model = TextClassifier(tiny_encoder, heads[index], pair_task)
    assert_predicts_as_the_run(model, pair_task["dev"], expected, 1e-4)
    assert (calls["together"] > 0) == (heads[index].spec in TOGETHER)
    distinct = {text for example in pair_task["dev"] for text in (example.text, example.pair)}
    assert calls["texts"] == (0 if heads[index].spec == "ridge" else len(distinct))


def test_model_of_a_run_with_rounded_states_differs_by_rounding_only(
    tiny_encoder: Encoder, pair_task: Task, tmp_path: Path
) -> None:
    store = extract(tiny_encoder, pair_task, tmp_path / "store", pairs="apart")
    fitted = fit([SPECS[1]], store, epochs=3, batch=8)
    model = TextClassifier(tiny_encoder, fitted, pair_task)
    assert_predicts_as_the_run(model, pair_task["dev"], predict(fitted, store["dev"])[0].logits, 1e-2)


@pytest.mark.parametrize("members", [(0,), (0, 2), (0, 1, 2, 3)])
def test_saved_model_gives_the_same_outputs(
    tiny_encoder: Encoder, heads: list[FittedHead], pair_task: Task, tmp_path: Path, members: tuple[int, ...]
) -> None:
    chosen = [heads[index] for index in members]
    model = TextClassifier(tiny_encoder, chosen, pair_task, combine="mean" if len(chosen) > 1 else None)
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    texts, pairs = (
        [e.text for e in pair_task["dev"]],
        [e.pair or "" for e in pair_task["dev"]],
    )
    assert isinstance(loaded, TextClassifier)
    assert loaded(texts, pairs) == model(texts, pairs)
    assert loaded(texts[0], pairs[0])["value"] == pytest.approx(model(texts, pairs)[0]["value"], abs=1e-4)


def test_ensemble_of_heads_together_and_apart_is_the_mean(
    tiny_encoder: Encoder, store: Store, heads: list[FittedHead], pair_task: Task, calls: dict[str, int]
) -> None:
    expected = [np.mean(rows, axis=0) for rows in zip(*(p.logits for p in predict(heads, store["dev"])), strict=True)]
    model = TextClassifier(tiny_encoder, heads, pair_task, combine="mean")
    assert_predicts_as_the_run(model, pair_task["dev"], expected, 1e-4)
    assert calls["together"] == 1
    assert calls["texts"] > 0


def test_single_text_is_refused(tiny_encoder: Encoder, heads: list[FittedHead], pair_task: Task) -> None:
    model = TextClassifier(tiny_encoder, heads[0], pair_task)
    with pytest.raises(BadInput, match="reads pairs of texts, but text 1 has no second text"):
        model("the old town")
