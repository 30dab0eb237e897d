"""Fitting: one read for all heads, the best epoch on inner, and diverging heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.records import LayerBatch, Shape, WindowTable
from bertvision.evaluation.scoring import SplitScores, score_inner
from bertvision.heads.base import HEADS, HeadModule
from bertvision.heads.group_lasso import Select
from bertvision.store.store import Store, StoredSplit
from bertvision.tasks.task import Task
from bertvision.training import fit as fit_module
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.predict import predict

AssertSame = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 8}
SPECS = ["probe:layers=last1", "learned-pool", "compress:size=4,skip=true"]


class CountingStore:
    """A store that counts how often each split is read."""

    def __init__(self, store: Store) -> None:
        self.store, self.shape, self.layers = store, store.shape, store.layers
        self.reads: Counter[str] = Counter()

    def __getitem__(self, split: str) -> CountingSplit:
        return CountingSplit(self, self.store[split])


class CountingSplit:
    def __init__(self, source: CountingStore, split: StoredSplit) -> None:
        self.source, self.split, self.shape = source, split, split.shape

    def __len__(self) -> int:
        return len(self.split)

    def batch_count(self, batch: int) -> int:
        return self.split.batch_count(batch)

    def table(self) -> WindowTable:
        return self.split.table()

    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]:
        self.source.reads[self.split.name] += 1
        return self.split.batches(batch, seed)


def test_all_heads_and_seeds_share_one_read_per_epoch(span_store: Store, span_task: Task) -> None:
    source = CountingStore(span_store)
    fitted = fit(SPECS, source, seeds=[0, 7], task=span_task, **QUICK)
    assert [(head.spec, head.seed) for head in fitted] == [(spec, seed) for spec in SPECS for seed in (0, 7)]
    assert source.reads == {"train": 3, "inner": 3}  # dev is not read


WITH_DROPOUT = "token-cnn:size=4,dropout=0.5"


def test_head_fitted_alone_equals_head_fitted_with_others(span_store: Store, assert_same: AssertSame) -> None:
    together = {(head.spec, head.seed): head for head in fit([*SPECS, WITH_DROPOUT], span_store, seeds=[0, 1], **QUICK)}
    for spec, seed in [("learned-pool", 1), ("compress:size=4,skip=true", 0), (WITH_DROPOUT, 1)]:
        assert_same(fit([spec], span_store, seeds=[seed], **QUICK)[0], together[spec, seed])


def test_dropout_is_applied_and_keeps_the_callers_random_state(label_store: Store, assert_same: AssertSame) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    dropped = fit([WITH_DROPOUT, "token-cnn:size=4"], label_store, **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    assert dropped[0].history[0]["loss"] != dropped[1].history[0]["loss"]
    assert_same(fit([WITH_DROPOUT], label_store, **QUICK)[0], dropped[0])


def test_group_lasso_drops_uninformative_features(label_store: Store) -> None:
    strict, lax = fit(["select:strength=3.0", "select:strength=0.0"], label_store, **QUICK)
    assert isinstance(strict.head.module, Select)
    assert isinstance(lax.head.module, Select)
    assert lax.head.module.weight.any(dim=0).all()
    selected = strict.head.module.weight.any(dim=0)  # (layers, width)
    assert int(selected.sum()) < 0.5 * selected.numel()


def expected_discriminant(store: Store, shrink: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of the linear discriminant on CLS of two concatenated layers, from the textbook formula."""
    batches = list(store["train"].batches(8))
    x = torch.cat([batch.hidden[:, 0, 1:].flatten(1) for batch in batches]).double().numpy()
    y = torch.cat([batch.targets for batch in batches]).numpy().astype(int)
    means = np.stack([x[y == label].mean(0) for label in range(3)])
    centred = x - means[y]
    within = centred.T @ centred / len(x)
    within = (1 - shrink) * within + shrink * np.diag(np.diag(within))
    weight = np.linalg.solve(within, (means - x.mean(0)).T).T
    return weight, np.log(np.bincount(y) / len(y)) - (weight * (means + x.mean(0))).sum(1) / 2


@pytest.mark.parametrize("epochs", [1, 2])
def test_linear_head_equals_the_closed_form_discriminant(label_store: Store, label_task: Task, epochs: int) -> None:
    source = CountingStore(label_store)
    settings: dict[str, Any] = {"epochs": epochs, "batch": 8}
    first, second = fit(["linear:layers=last2"], source, seeds=[0, 1], task=label_task, lr=1e38, **settings)
    assert source.reads == {"train": epochs, "inner": epochs}
    weight, bias = expected_discriminant(label_store, 10 ** (-first.best_epoch / 2))
    np.testing.assert_allclose(first.head.module.dense.weight.detach(), weight, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(first.head.module.dense.bias.detach(), bias, rtol=2e-3, atol=2e-2)
    assert torch.equal(first.head.module.dense.weight, second.head.module.dense.weight), "independent of the seed"
    fitted_with_others = fit(["probe", "linear:layers=last2"], label_store, **settings)[1]
    assert torch.equal(first.head.module.dense.weight, fitted_with_others.head.module.dense.weight)
    assert all(np.isfinite(entry["loss"]) for entry in first.history)
    (with_other_rates,) = fit(["linear:layers=last2"], label_store, rates=(1e-2, 1e-1), **settings)
    assert torch.equal(first.head.module.dense.weight, with_other_rates.head.module.dense.weight)


def test_linear_head_for_regression_equals_least_squares(value_store: Store) -> None:
    (head,) = fit(["linear:layers=last1"], value_store, epochs=1)
    batches = list(value_store["train"].batches(8))
    x = torch.cat([batch.hidden[:, 0, -1] for batch in batches]).double().numpy()
    y = torch.cat([batch.targets for batch in batches]).double().numpy()
    spread, shrink = np.cov(x.T, bias=True), 10**-0.5
    spread = (1 - shrink) * spread + shrink * np.diag(np.diag(spread))
    weight = np.linalg.solve(spread, (x - x.mean(0)).T @ (y - y.mean()) / len(y))
    np.testing.assert_allclose(head.head.module.dense.weight.detach()[0], weight, rtol=2e-3, atol=2e-3)
    assert float(head.head.module.dense.bias.detach()) == pytest.approx(y.mean() - x.mean(0) @ weight, abs=2e-2)


def test_label_head_on_spans_is_an_error(span_store: Store) -> None:
    with pytest.raises(BadInput, match="head linear is for labels and values"):
        fit(["linear"], span_store)


def test_fit_is_determined_by_its_seeds(label_store: Store, assert_same: AssertSame) -> None:
    first, second = fit(["learned-pool"], label_store, seeds=[0, 1], **QUICK)
    assert not torch.equal(first.head.module.dense.weight, second.head.module.dense.weight)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert_same(fit(["learned-pool"], label_store, seeds=[1], **QUICK)[0], second)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random state is unchanged
    other_order = fit(["learned-pool"], label_store, seeds=[1], order_seed=5, **QUICK)[0]
    assert not torch.equal(other_order.head.module.dense.weight, second.head.module.dense.weight)


def test_duplicate_specs_and_seeds_are_fitted_once(label_store: Store) -> None:
    fitted = fit(["compress", "compress:size=64", "mean-pool"], label_store, seeds=[0, 0], **QUICK)
    assert [(head.spec, head.seed) for head in fitted] == [("compress:size=64", 0), ("mean-pool", 0)]


def test_history_has_every_epoch_and_the_loss_falls(label_store: Store) -> None:
    (head,) = fit(["probe"], label_store, epochs=6, lr=1e-2, batch=8)
    assert [entry["epoch"] for entry in head.history] == [1, 2, 3, 4, 5, 6]
    assert all(set(entry) == {"epoch", "loss", "inner"} for entry in head.history)
    assert head.history[-1]["loss"] < 0.7 * head.history[0]["loss"]
    assert head.seconds > 0
    assert head.parameters == head.head.num_parameters


@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
def test_best_epoch_is_the_first_maximum_on_inner(kind: str, request: pytest.FixtureRequest) -> None:
    store, task = request.getfixturevalue(f"{kind}_store"), request.getfixturevalue(f"{kind}_task")
    for head in fit(SPECS, store, seeds=[0, 1], epochs=4, lr=3e-2, batch=8):
        scores = [entry["inner"] for entry in head.history]
        assert head.best_epoch == 1 + scores.index(max(scores))
        scored = score_inner(task, head.inner, store["inner"].table())
        assert (scored.scores[task.metric], scored.threshold) == (max(scores), head.threshold)


def test_weights_of_the_best_epoch_are_kept(label_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    logits_by_epoch: list[Any] = []

    def scripted(task: Task, logits: Any, table: WindowTable, split: str) -> SplitScores:
        assert split == "inner"
        logits_by_epoch.append(logits)
        return SplitScores(
            {task.metric: [10.0, 50.0, 50.0, 20.0][len(logits_by_epoch) - 1]}, 0.5 * len(logits_by_epoch), {}
        )

    monkeypatch.setattr(fit_module, "score_inner", scripted)
    (head,) = fit(["probe"], label_store, epochs=4, lr=1e-2, batch=8)
    assert (head.best_epoch, head.threshold) == (2, 1.0)
    assert all(np.array_equal(a, b) for a, b in zip(head.inner, logits_by_epoch[1], strict=True))
    again = predict(head, label_store["inner"])[0].logits
    np.testing.assert_allclose(np.stack(again), np.stack(logits_by_epoch[1]), atol=1e-5)
    assert not np.allclose(np.stack(again), np.stack(logits_by_epoch[3]), atol=1e-3)


class Diverging(HeadModule):
    """A linear head whose outputs become infinite: after some training batches, or in evaluation."""

    def __init__(self, shape: Shape, after: int = 0, in_evaluation: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.width * shape.layers, shape.outputs)
        self.after, self.in_evaluation, self.batches = after, in_evaluation, 0

    def forward(self, states: Tensor) -> Tensor:
        self.batches += self.training
        diverged = not self.training if self.in_evaluation else self.batches > self.after
        return self.dense(states.flatten(-2)) * (float("inf") if diverged else 1.0)  # type: ignore[no-any-return]


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    list(HEADS)  # the registry is filled before it is changed
    monkeypatch.setitem(HEADS._entries, "diverging", Diverging)


@pytest.mark.usefixtures("diverging")
@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
@pytest.mark.parametrize("spec", ["diverging", "diverging:in_evaluation=true"])
def test_diverging_head_is_dropped_and_others_are_unaffected(
    kind: str, spec: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], assert_same: AssertSame
) -> None:
    store = request.getfixturevalue(f"{kind}_store")
    fitted = fit(["learned-pool", spec, "probe"], store, **QUICK)
    assert [head.spec for head in fitted] == ["learned-pool", "probe"]
    for head, expected in zip(fitted, fit(["learned-pool", "probe"], store, **QUICK), strict=True):
        assert_same(head, expected)
    log = capsys.readouterr().err
    assert f"head {spec} seed 0 diverged" in log
    assert "left out" in log
    assert log.count("\n") == 1


@pytest.mark.usefixtures("diverging")
def test_head_that_diverges_late_keeps_its_best_epoch(label_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    batches = label_store["train"].batch_count(8)
    (head,) = fit([f"diverging:after={2 * batches}"], label_store, epochs=4, lr=1e-2, batch=8)
    assert [entry["epoch"] for entry in head.history] == [1, 2]
    assert np.isfinite(np.stack(head.inner)).all()
    assert f"keeping epoch {head.best_epoch}" in capsys.readouterr().err


@pytest.mark.usefixtures("diverging")
def test_fit_stops_if_every_head_diverges(label_store: Store, label_task: Task) -> None:
    source = CountingStore(label_store)
    with pytest.raises(ArithmeticError, match="every head diverged: lower the learning rate"):
        fit(["diverging"], source, seeds=[0, 1], task=label_task, **QUICK)
    assert source.reads["train"] == 1


def test_huge_learning_rate_diverges(span_store: Store) -> None:
    with pytest.raises(ArithmeticError, match="diverged"):
        fit(["compress:size=4"], span_store, epochs=2, lr=1e38, batch=8)


def test_invalid_fit_arguments_are_errors(label_store: Store, value_store: Store) -> None:
    with pytest.raises(BadInput, match="at least one head and one seed"):
        fit([], label_store)
    with pytest.raises(BadInput, match="at least one head and one seed"):
        fit(["probe"], label_store, seeds=[])
    with pytest.raises(BadInput, match="Did you mean 'probe'"):
        fit(["prob"], label_store)
    with pytest.raises(BadInput, match=r"fit.epochs is 0; expected at least 1"):
        fit(["probe"], label_store, config=FitConfig(epochs=0))
    with pytest.raises(BadInput, match="there are 3 states"):
        fit(["probe:layers=last9"], label_store)


def test_each_head_keeps_its_best_learning_rate_on_inner(
    label_store: Store, label_task: Task, assert_same: Callable[[FittedHead, FittedHead], None]
) -> None:
    rates = (1e-4, 3e-2, 1e-1)
    alone = {lr: fit(["learned-pool", "probe"], label_store, epochs=3, batch=8, lr=lr) for lr in rates}
    together = fit(["learned-pool", "probe"], label_store, epochs=3, batch=8, lr=rates[0], rates=rates[1:])
    assert [head.spec for head in together] == ["learned-pool", "probe"]
    for index, head in enumerate(together):
        best = max(rates, key=lambda lr: (max(point["inner"] for point in alone[lr][index].history), -lr))
        assert head.lr == best
        assert_same(head, alone[best][index])


def test_batched_pool_heads_equal_heads_fitted_alone(
    span_store: Store, label_store: Store, assert_same: AssertSame
) -> None:
    specs = ["learned-pool", "probe:layers=last1", "mean-pool", "learned-pool:layers=last2"]
    for store in (span_store, label_store):
        together = fit(specs, store, seeds=range(6), epochs=2, batch=8, lr=3e-2)
        assert len(together) == 24
        for head in together[::5]:
            (alone,) = fit([head.spec], store, seeds=[head.seed], epochs=2, batch=8, lr=3e-2)
            assert_same(head, alone)


def test_diverging_pool_head_does_not_affect_its_batch(label_store: Store, assert_same: AssertSame) -> None:
    rates = {"lr": 1e-2, "rates": (1e30,)}
    (fitted_with_diverging,) = fit(["learned-pool"], label_store, epochs=3, batch=8, **rates)
    (alone,) = fit(["learned-pool"], label_store, epochs=3, batch=8, lr=1e-2)
    assert_same(fitted_with_diverging, alone)


def test_progress_counts_the_batches_of_all_epochs(
    label_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    monkeypatch.setattr("bertvision.core.progress.LINE_SECONDS", 0.0)
    fit(["learned-pool"], label_store, **QUICK)
    batches = QUICK["epochs"] * label_store["train"].batch_count(QUICK["batch"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fit 1 heads, 3 epochs: ")]
    assert len(lines) == batches
    assert lines[-1] == f"fit 1 heads, 3 epochs: {batches} of {batches} batches, about 0 min left"
