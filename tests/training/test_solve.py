"""Solved heads: validated by folds or on inner, with the penalty of the smallest loss on rows left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertvision.core.records import FOLDS, LayerBatch
from bertvision.evaluation.scoring import score_inner
from bertvision.heads.base import head_loss
from bertvision.heads.solvers import STRENGTHS, Design, best_ridge, logistic_path, ridge_path
from bertvision.model import TextClassifier
from bertvision.runs.prepare import fit_into
from bertvision.store.states import ShardedSplit
from bertvision.store.store import Store
from bertvision.tasks.splits import assign_folds
from bertvision.tasks.task import Task
from bertvision.training import solve
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.predict import predict
from bertvision.training.selection import NUM_FOLDS, window_folds
from bertvision.training.solve import FeatureBuffer

AssertSame = Callable[[FittedHead, FittedHead], None]
Extracted = Callable[[Task], Store]

SPECS = ["ridge", "ridge:layers=last1,read=cls", "ridge:read=mean+max"]
TASKS = ["label_task", "value_task", "set_task"]


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    found: Task = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(task: Task, untuned_store: Extracted) -> Store:
    return untuned_store(task)


def inputs_of(head: FittedHead, split: ShardedSplit) -> FeatureBuffer:
    """The features that a head reads, in window order."""
    found: list[Any] = [None] * len(split)
    for batch in split.batches(3):
        for window, row in zip(batch.windows.tolist(), head.head.select_inputs(batch).flatten(1), strict=True):
            found[window] = row
    buffer = FeatureBuffer(len(found), len(found[0]), on_disk=False)
    buffer.write(torch.arange(len(found)), torch.stack(found))
    return buffer


def targets_of(split: ShardedSplit) -> torch.Tensor:
    return torch.tensor(np.squeeze(split.table().targets)).float()


def path_of(task: Task, features: FeatureBuffer, targets: torch.Tensor, folds: torch.Tensor | None) -> Any:
    if task.kind == "regress":
        design, values = Design(features), targets[:, None]
        return ridge_path(design, values, None) if folds is None else best_ridge(design, values, folds)
    if task.kind == "multilabel":
        return logistic_path(Design(features), targets, folds, exclusive=False)
    return logistic_path(Design(features), torch.eye(task.outputs)[targets.long()], folds)


def loss_of(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(head_loss(task.kind, outputs, targets, torch.ones(len(outputs))))


def test_out_of_fold_outputs_and_the_fit_to_all_rows_are_kept(task: Task, store: Store) -> None:
    folds = torch.tensor(window_folds(task, store[FOLDS].table()))
    assert folds.unique().tolist() == list(range(NUM_FOLDS))
    targets = targets_of(store[FOLDS])
    for head in fit(SPECS, store):
        assert head.validation == FOLDS
        assert len(head.inner) == len(task["train"]) + len(task["inner"])
        path = list(path_of(task, inputs_of(head, store[FOLDS]), targets, folds))
        chosen = path[head.best_epoch - 1]
        assert head.penalty == chosen.strength
        assert len(path) == 1 or chosen.strength == STRENGTHS[head.best_epoch - 1]
        torch.testing.assert_close(torch.tensor(np.stack(head.inner)), chosen.held_out, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(head.head.module.dense.weight.T, chosen.weight, atol=1e-3, rtol=1e-3)
        losses = [loss_of(task, solution.held_out, targets) for solution in path[: len(head.history)]]
        assert [epoch["loss"] for epoch in head.history] == pytest.approx(losses, rel=1e-3)
        assert head.best_epoch == int(np.argmin(losses)) + 1


def test_on_inner_the_penalty_with_the_smallest_loss_there_is_kept(task: Task, store: Store) -> None:
    for head in fit(SPECS, store, validation="inner"):
        assert head.validation == "inner"
        assert len(head.inner) == len(task["inner"])
        path = list(path_of(task, inputs_of(head, store["train"]), targets_of(store["train"]), None))
        chosen = path[head.best_epoch - 1]
        assert head.penalty == chosen.strength
        torch.testing.assert_close(head.head.module.dense.weight.T, chosen.weight, atol=5e-3, rtol=1e-2)
        on_inner = inputs_of(head, store["inner"]).read(0, len(store["inner"]))
        expected = on_inner @ chosen.weight + chosen.bias
        torch.testing.assert_close(torch.tensor(np.stack(head.inner)), expected, atol=0.02, rtol=0)
        outputs = head.head.module.dense(on_inner).detach()
        torch.testing.assert_close(torch.tensor(np.stack(head.inner)), outputs, atol=1e-4, rtol=1e-4)
        losses = [
            loss_of(task, on_inner @ solution.weight + solution.bias, targets_of(store["inner"]))
            for solution in path[: len(head.history)]
        ]
        assert head.best_epoch == int(np.argmin(losses)) + 1


def test_the_path_ends_after_two_weaker_penalties_without_a_gain(task: Task, store: Store) -> None:
    for head in fit(SPECS, store):
        path = 1 if task.kind == "regress" else len(STRENGTHS)  # penalties of values are chosen beforehand
        assert len(head.history) == min(head.best_epoch + solve.PATIENCE, path)
        assert [epoch["epoch"] for epoch in head.history] == list(range(1, len(head.history) + 1))
        table = store[FOLDS].table()
        scores = score_inner(task, list(head.inner), table, FOLDS)
        assert head.history[head.best_epoch - 1]["inner"] == scores.scores[task.metric]
        assert head.inner_scores is not None
        assert head.inner_scores.scores == scores.scores
        assert head.threshold == scores.threshold


def test_solved_heads_have_one_row_whatever_the_seeds(label_task: Task, untuned_store: Extracted) -> None:
    store = untuned_store(label_task)
    fitted = fit(["ridge", "mean-pool", "ridge:read=cls"], store, seeds=(3, 4), epochs=1)
    rows = [(head.spec, head.seed) for head in fitted]
    assert rows == [("ridge", 0), ("mean-pool", 3), ("mean-pool", 4), ("ridge:read=cls", 0)]


def test_a_solved_head_does_not_depend_on_batches_and_other_heads(
    task: Task, store: Store, assert_same: AssertSame, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = fit(["mean-pool", *SPECS], store, seeds=(1,), epochs=1)[1:]
    monkeypatch.setattr(solve, "BATCH", 5)
    for head in together:
        assert_same(head, fit([head.spec], store, seeds=(2,), epochs=3, order_seed=9)[0])


def test_features_on_disk_give_the_same_heads(
    task: Task, store: Store, assert_same: AssertSame, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = {validation: fit(SPECS, store, validation=validation) for validation in (FOLDS, "inner")}
    opened: list[bool] = []
    original = FeatureBuffer.__init__

    def record(self: FeatureBuffer, rows: int, columns: int, on_disk: bool) -> None:
        opened.append(on_disk)
        original(self, rows, columns, on_disk)

    monkeypatch.setattr(FeatureBuffer, "__init__", record)
    monkeypatch.setattr(solve, "MAX_MEMORY", 0)
    for validation, heads in in_memory.items():
        for first, second in zip(heads, fit(SPECS, store, validation=validation), strict=True):
            assert_same(first, second)
    assert all(opened)
    assert len(opened) == 3 * len(SPECS), "train and inner, or both at once"


def test_buffer_on_disk_returns_copies_of_what_was_written() -> None:
    buffers = [FeatureBuffer(5, 2, on_disk) for on_disk in (False, True)]
    values = torch.arange(10.0).reshape(5, 2)
    for buffer in buffers:
        buffer.write(torch.tensor([4, 1, 0]), values[[4, 1, 0]])
        buffer.write(torch.tensor([2, 3]), values[[2, 3]])
        assert torch.equal(buffer.read(1, 4), values[1:4])
        buffer.read(0, 5).zero_()
        assert torch.equal(buffer.read(0, 5), values)


def test_all_solved_heads_share_one_read_of_the_states(
    label_task: Task, untuned_store: Extracted, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reads = untuned_store(label_task), Counter[str]()
    original: Callable[..., Iterator[LayerBatch]] = ShardedSplit.batches

    def batches(self: ShardedSplit, batch: int, seed: int | None = None) -> Iterator[LayerBatch]:
        reads[self.name] += 1
        return original(self, batch, seed)

    monkeypatch.setattr(ShardedSplit, "batches", batches)
    fit(SPECS, store)
    assert reads == {FOLDS: 1}
    reads.clear()
    fit(SPECS, store, validation="inner")
    assert reads == {"train": 1, "inner": 1}


def test_saved_and_loaded_solved_head_is_the_same(
    task: Task, store: Store, tmp_path: Path, assert_same: AssertSame
) -> None:
    for number, head in enumerate(fit(SPECS, store)):
        save_fitted(head, tmp_path / str(number), "these inputs")
        loaded, made_from = load_fitted(tmp_path / str(number))
        assert made_from == "these inputs"
        assert_same(head, loaded)
        assert (loaded.penalty, loaded.validation) == (head.penalty, FOLDS)
        for got, wanted in zip(*(predict(each, store["dev"])[0].logits for each in (loaded, head)), strict=True):
            assert np.array_equal(got, wanted)
        inner = predict(loaded, store["dev"])[0].inner
        assert inner is not None
        assert (inner.split, len(inner.logits)) == (FOLDS, len(task[FOLDS]))
        assert inner.table.example.tolist() == list(range(len(task[FOLDS])))


def test_solved_heads_of_a_run_are_not_solved_again(
    label_task: Task, untuned_store: Extracted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = untuned_store(label_task)
    config = fit_config()
    first = fit_into(tmp_path, store, SPECS, (0, 1), config, label_task)
    assert "fit: 3 heads" in capsys.readouterr().err
    second = fit_into(tmp_path, store, SPECS, (0, 1), config, label_task)
    assert [(head.spec, head.seed) for head in first] == [(head.spec, head.seed) for head in second]
    assert "fit: already done, skipping" in capsys.readouterr().err


def fit_config() -> Any:
    from bertvision.core.config import FitConfig

    return FitConfig(epochs=1)


def with_class_weights(task: Task, weights: Sequence[float]) -> Task:
    return replace(task, class_weights=tuple(weights))


def test_class_weights_move_predictions_to_the_heavier_label(label_task: Task, untuned_store: Extracted) -> None:
    store = untuned_store(label_task)
    counts = []
    for weights in ((1.0, 1.0, 1.0), (1.0, 1.0, 50.0)):
        (head,) = fit(["ridge:layers=0"], store, task=with_class_weights(label_task, weights))
        counts.append(sum(int(row.argmax()) == 2 for row in head.inner))
    assert counts[1] > counts[0]


def test_states_that_are_not_finite_are_an_error(
    label_task: Task, untuned_store: Extracted, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FeatureBuffer.write
    monkeypatch.setattr(FeatureBuffer, "write", lambda self, rows, values: original(self, rows, values * torch.nan))
    with pytest.raises((ArithmeticError, RuntimeError)):
        fit(["ridge"], untuned_store(label_task))


def test_a_model_with_a_solved_head_predicts_like_the_store(task: Task, store: Store, tiny_encoder: Any) -> None:
    (head,) = fit(["ridge"], store)
    outputs, _ = TextClassifier(tiny_encoder, head, task).outputs(task["dev"])
    for got, wanted in zip(outputs, predict(head, store["dev"])[0].logits, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_folds_are_those_of_the_examples(task: Task, store: Store) -> None:
    examples = assign_folds(task[FOLDS], task.kind != "regress", NUM_FOLDS)
    assert window_folds(task, store[FOLDS].table()).tolist() == examples
