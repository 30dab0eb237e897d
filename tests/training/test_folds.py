"""Heads validated by folds: out-of-fold outputs, the head of all rows, the kept epoch, and when folds are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertvision.core.config import ExtractConfig, FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.records import FOLDS, LayerBatch
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.scoring import score_inner, validation_losses
from bertvision.store.states import Subset
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training import fit as fit_module
from bertvision.training import selection
from bertvision.training.extract import extract
from bertvision.training.fit import MIN_STEPS, fit, make_trainer
from bertvision.training.fitted_head import FittedHead, scatter_outputs
from bertvision.training.head_trainer import FIT_CHECKPOINT, FoldedTrainer, HeadTrainer
from bertvision.training.inputs import resolve_tokens
from bertvision.training.live_states import LiveStates
from bertvision.training.predict import predict
from bertvision.training.selection import NUM_FOLDS, choose_validation, has_seen_labels, window_folds
from bertvision.training.tune import tune

AssertSame = Callable[[FittedHead, FittedHead], None]
Extracted = Callable[[Task], Store]

QUICK: dict[str, Any] = {"epochs": 2, "lr": 1e-2, "batch": 8}
SPECS = ["compress:size=4", "token-cnn:size=4,dropout=0.5", "linear:layers=last1", "mean-pool"]


def plain_trainer(spec: str, store: Store, config: FitConfig) -> HeadTrainer:
    steps = config.epochs * store[FOLDS].batch_count(config.batch)
    return HeadTrainer(spec, 3, store.shape, config, steps, torch.device("cpu"), None, config.lr)


def trained(trainer: HeadTrainer, store: Store, epochs: int, kept: Callable[[LayerBatch], torch.Tensor]) -> HeadTrainer:
    """Train on the rows of each batch that are kept, in the order of :func:`fit`."""
    for epoch in range(1, epochs + 1):
        for batch in store[FOLDS].batches(trainer.config.batch, seed=epoch):
            rows = kept(batch)
            if rows.any():
                trainer.step(batch.select(rows))
        trainer.solve(epoch)
    return trainer


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["label", "value", "set"])
def test_out_of_fold_outputs_equal_those_of_heads_trained_without_the_fold(
    kind: str, spec: str, request: pytest.FixtureRequest, untuned_store: Extracted
) -> None:
    task: Task = request.getfixturevalue(f"{kind}_task")
    store = untuned_store(task)
    (head,) = fit([spec], store, seeds=[3], **QUICK)
    config = FitConfig(**{**QUICK, "epochs": len(head.history)}, validation=FOLDS)
    folds = torch.tensor(window_folds(task, store[FOLDS].table()))
    expected: list[Any] = [None] * len(folds)
    for fold in range(NUM_FOLDS):
        alone = plain_trainer(spec, store, config)
        trained(alone, store, head.best_epoch, lambda batch, fold=fold: folds[batch.windows] != fold)  # type: ignore[misc]
        outputs: list[Any] = [None] * len(folds)
        with torch.inference_mode():
            for batch in store[FOLDS].batches(config.batch):
                scatter_outputs(alone.apply(batch), batch, task.kind, outputs)
        for window in torch.nonzero(folds == fold)[:, 0].tolist():
            expected[window] = outputs[window]
    np.testing.assert_allclose(np.stack(head.inner), np.stack(expected), rtol=1e-4, atol=1e-3)
    whole = trained(plain_trainer(spec, store, config), store, head.best_epoch, lambda batch: batch.windows >= 0)
    for key, value in head.head.state_dict().items():
        torch.testing.assert_close(value, whole.head.state_dict()[key], rtol=1e-4, atol=1e-5)


def test_every_row_of_train_and_inner_is_validated_without_itself(label_task: Task, untuned_store: Extracted) -> None:
    store = untuned_store(label_task)
    (head,) = fit(["mean-pool"], store, **QUICK)
    assert head.validation == FOLDS
    assert len(head.inner) == len(label_task["train"]) + len(label_task["inner"])
    assert all(np.isfinite(row).all() for row in head.inner)
    (predictions,) = predict(head, store["dev"])
    assert predictions.inner is not None
    assert predictions.inner.split == FOLDS
    assert head.inner_scores is not None
    scored = score_inner(label_task, head.inner, store[FOLDS].table(), FOLDS)
    assert head.inner_scores.scores == scored.scores
    assert head.history[head.best_epoch - 1]["inner"] == scored.scores["accuracy"]


def test_seeds_and_other_heads_do_not_change_a_head(
    label_task: Task, untuned_store: Extracted, assert_same: AssertSame
) -> None:
    store = untuned_store(label_task)
    together = {(head.spec, head.seed): head for head in fit([*SPECS, "ridge"], store, seeds=[0, 1], **QUICK)}
    for spec, seed in ((SPECS[0], 1), (SPECS[1], 0), ("mean-pool", 1), ("ridge", 0)):
        assert_same(fit([spec], store, seeds=[seed], **QUICK)[0], together[spec, seed])


def test_few_rows_are_trained_for_a_minimum_of_steps(label_task: Task, untuned_store: Extracted) -> None:
    store = untuned_store(label_task)
    batches = store[FOLDS].batch_count(8)
    assert len(fit(["mean-pool"], store, epochs=2, batch=8)[0].history) == math.ceil(MIN_STEPS / batches)
    assert len(fit(["mean-pool"], store, epochs=20, batch=8)[0].history) == 20
    assert len(fit(["mean-pool"], store, epochs=2, batch=8, validation="inner")[0].history) == 2


def test_the_last_epoch_is_kept_unless_an_earlier_one_had_a_clearly_smaller_loss(
    label_task: Task, untuned_store: Extracted
) -> None:
    store = untuned_store(label_task)
    config = FitConfig(**QUICK, validation=FOLDS)
    trainer = make_trainer("mean-pool", 0, store, config, label_task)
    assert isinstance(trainer, FoldedTrainer)
    table, gold = store[FOLDS].table(), [int(example.label or 0) for example in label_task[FOLDS]]

    def end(epoch: int, margins: np.ndarray) -> None:
        trainer.losses = [1.0]
        logits = [margin * np.eye(3, dtype=np.float32)[label] for margin, label in zip(margins, gold, strict=True)]
        trainer.end_epoch(epoch, logits, score_inner(label_task, logits, table, FOLDS), "accuracy")

    random = np.random.default_rng(0)
    noise = random.normal(size=len(gold))
    end(1, 3 + 0.1 * noise)
    assert trainer.best_epoch == 1
    end(2, 2.95 + 0.3 * random.normal(size=len(gold)))  # not clearly worse
    assert trainer.best_epoch == 2
    end(3, 1 + 0.1 * noise)  # clearly worse
    assert trainer.best_epoch == 2
    end(4, 4 + 0.1 * noise)
    assert trainer.best_epoch == 4
    end(5, 3.9 + 0.1 * noise)  # a little worse, but in every row
    assert trainer.best_epoch == 4
    assert [entry["epoch"] for entry in trainer.history] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["label", "set", "value"])
def test_validation_losses_are_log_losses_or_squared_errors(kind: str, request: pytest.FixtureRequest) -> None:
    task: Task = request.getfixturevalue(f"{kind}_task")
    store = request.getfixturevalue(f"{kind}_store")
    table = store["inner"].table()
    random = np.random.default_rng(0)
    logits = [random.normal(size=task.outputs).astype(np.float32) for _ in task["inner"]]
    got = validation_losses(score_inner(task, logits, table))
    outputs = torch.tensor(np.stack(logits)).double()
    if kind == "label":
        expected = torch.nn.functional.cross_entropy(
            outputs, torch.tensor(table.targets[:, 0]).long(), reduction="none"
        )
    elif kind == "set":
        expected = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, torch.tensor(table.targets), reduction="none"
        ).mean(1)
    else:
        gold = torch.tensor([float(example.label or 0) for example in task["inner"]]).double()
        expected = (outputs[:, 0] * task.spread + task.center - gold) ** 2
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6)


def test_interrupted_fit_by_folds_resumes_bit_exactly(
    label_task: Task,
    untuned_store: Extracted,
    tmp_path: Path,
    assert_same: AssertSame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, checkpoint = untuned_store(label_task), tmp_path / FIT_CHECKPOINT
    specs = [SPECS[0], SPECS[1], "select:strength=0.5"]
    whole = fit(specs, store, seeds=[0, 1], **QUICK)
    original, started = fit_module._train_epoch, list[int]()

    def train(trainers: Any, train: Any, config: Any, epoch: int, advance: Any) -> None:
        started.append(epoch)
        if epoch == 4 and started.count(4) == 1:
            raise KeyboardInterrupt
        original(trainers, train, config, epoch, advance)

    monkeypatch.setattr(fit_module, "SAVE_SECONDS", 0)
    monkeypatch.setattr(fit_module, "_train_epoch", train)
    with pytest.raises(KeyboardInterrupt):
        fit(specs, store, seeds=[0, 1], saved=checkpoint, **QUICK)
    for expected, resumed in zip(whole, fit(specs, store, seeds=[0, 1], saved=checkpoint, **QUICK), strict=True):
        assert_same(expected, resumed)
    assert started == [1, 2, 3, 4, *range(4, len(whole[0].history) + 1)]


def test_folds_are_used_while_the_encoder_has_not_seen_the_labels(
    label_task: Task, value_task: Task, set_task: Task, untuned_store: Extracted, request: pytest.FixtureRequest
) -> None:
    for task in (label_task, value_task, set_task):
        assert not has_seen_labels(untuned_store(task))
        assert choose_validation(task, untuned_store(task)) == FOLDS
    for kind in ("label", "value", "set"):
        store, task = request.getfixturevalue(f"{kind}_store"), request.getfixturevalue(f"{kind}_task")
        assert has_seen_labels(store)
        assert choose_validation(task, store) == "inner"
        assert fit(["ridge:layers=last1"], store)[0].validation == "inner"


def test_validation_can_be_chosen(label_task: Task, untuned_store: Extracted, label_store: Store) -> None:
    assert choose_validation(label_task, untuned_store(label_task), "inner") == "inner"
    assert choose_validation(label_task, label_store, FOLDS) == FOLDS
    assert fit(["ridge"], label_store, validation=FOLDS)[0].validation == FOLDS
    with pytest.raises(BadInput, match=r"fit\.validation is 'never'; expected auto, inner or folds"):
        fit(["ridge"], label_store, validation="never")


def test_spans_are_validated_on_inner(span_task: Task, untuned_store: Extracted, span_store: Store) -> None:
    store = untuned_store(span_task)
    assert choose_validation(span_task, store) == "inner"
    for states in (store, span_store):
        with pytest.raises(BadInput, match=r"fit\.validation is folds, which is for labels and values"):
            fit(["probe"], states, validation=FOLDS)


def test_many_rows_are_validated_on_inner(
    label_task: Task, untuned_store: Extracted, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rows = untuned_store(label_task), len(label_task["train"]) + len(label_task["inner"])
    monkeypatch.setattr(selection, "MAX_FOLD_ROWS", rows)
    assert choose_validation(label_task, store) == FOLDS
    monkeypatch.setattr(selection, "MAX_FOLD_ROWS", rows - 1)
    assert choose_validation(label_task, store) == "inner"


@pytest.mark.parametrize("validation", ["auto", FOLDS])
def test_a_part_of_train_is_validated_on_inner(label_task: Task, untuned_store: Extracted, validation: str) -> None:
    part = Subset(untuned_store(label_task), {0, 1, 2, 5, 8, 9, 13, 20})
    assert choose_validation(label_task, part, validation) == "inner"
    for head in fit(["ridge", "mean-pool"], part, task=label_task, validation=validation, **QUICK):
        assert (head.validation, len(head.inner)) == ("inner", len(label_task["inner"]))


def test_solved_head_on_a_part_of_train_equals_that_of_a_store_of_the_part(
    label_task: Task, tiny_encoder: Encoder, untuned_store: Extracted, tmp_path: Path
) -> None:
    chosen = (0, 1, 2, 5, 8, 9, 13, 20)
    splits = {**label_task.splits, "train": tuple(label_task["train"][index] for index in chosen)}
    alone = extract(tiny_encoder, replace(label_task, splits=splits), tmp_path / "store", dtype="f32")
    expected, got = (
        fit(["ridge"], states, task=label_task, validation="inner")[0]
        for states in (alone, Subset(untuned_store(label_task), set(chosen)))
    )
    assert got.penalty == expected.penalty
    np.testing.assert_allclose(np.stack(got.inner), np.stack(expected.inner), atol=0.02)


def test_an_encoder_tuned_before_has_seen_the_labels(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    tuned = tune(tiny_encoder, label_task, epochs=1.0, lr=1e-3, batch=8)
    without_head = replace(tuned, own=None)
    again = replace(without_head, record={"tune": {"steps": 0, "before": {"steps": 5}}})
    untouched = replace(without_head, record={"tune": {"steps": 0}})
    for number, (encoder, seen) in enumerate(((tuned, True), (without_head, True), (again, True), (untouched, False))):
        store = extract(encoder, label_task, tmp_path / str(number), dtype="f32")
        assert has_seen_labels(store) == seen
        live = LiveStates(encoder, label_task, ExtractConfig())
        assert has_seen_labels(live) == seen


@pytest.mark.parametrize(
    ("heads", "tokens"),
    [
        (["quick"], "cls+mean+max"),
        (["ridge"], "cls+mean+max"),
        (["mean-pool", "probe:read=first_last"], "cls+last+mean+max"),
        (["ridge", "attention"], "all"),
        (["probe:read=weighted"], "all"),
        (["all"], "all"),
        ([], "all"),
    ],
)
def test_tokens_are_what_the_heads_read(
    tiny_encoder: Encoder, label_task: Task, span_task: Task, heads: list[str], tokens: str
) -> None:
    config = ExtractConfig(tokens="auto", dtype="int8")
    assert resolve_tokens(config, heads, label_task, tiny_encoder) == replace(config, tokens=tokens)
    for chosen in ("all", "cls", "cls+last"):
        given = replace(config, tokens=chosen)
        assert resolve_tokens(given, heads, label_task, tiny_encoder) == given
    spans = ["probe"] if heads and heads != ["quick"] else heads
    assert resolve_tokens(config, spans, span_task, tiny_encoder).tokens == "all"
