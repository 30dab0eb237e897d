"""Fitting: one read for all heads, the best epoch by inner, and heads that diverge."""

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

Same = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 8}
SPECS = ["probe:layers=last1", "learned-pool", "compress:size=4,skip=true"]


class Counted:
    """A store that notes which split is read how often."""

    def __init__(self, store: Store) -> None:
        self.store, self.shape, self.layers = store, store.shape, store.layers
        self.reads: Counter[str] = Counter()

    def __getitem__(self, split: str) -> CountedSplit:
        return CountedSplit(self, self.store[split])


class CountedSplit:
    def __init__(self, source: Counted, split: StoredSplit) -> None:
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


def test_all_heads_and_seeds_share_one_read_an_epoch(span_store: Store, span_task: Task) -> None:
    source = Counted(span_store)
    fitted = fit(SPECS, source, seeds=[0, 7], task=span_task, **QUICK)
    assert [(one.spec, one.seed) for one in fitted] == [(spec, seed) for spec in SPECS for seed in (0, 7)]
    assert source.reads == {"train": 3, "inner": 3}  # and dev never


DROPPING = "token-cnn:size=4,dropout=0.5"


def test_a_head_fitted_alone_is_the_same_as_in_company(span_store: Store, same: Same) -> None:
    together = {(one.spec, one.seed): one for one in fit([*SPECS, DROPPING], span_store, seeds=[0, 1], **QUICK)}
    for spec, seed in [("learned-pool", 1), ("compress:size=4,skip=true", 0), (DROPPING, 1)]:
        same(fit([spec], span_store, seeds=[seed], **QUICK)[0], together[spec, seed])


def test_dropout_drops_and_leaves_the_callers_random_numbers_alone(label_store: Store, same: Same) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    dropped = fit([DROPPING, "token-cnn:size=4"], label_store, **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    assert dropped[0].history[0]["loss"] != dropped[1].history[0]["loss"]
    same(fit([DROPPING], label_store, **QUICK)[0], dropped[0])


def test_a_head_that_selects_drops_what_tells_nothing(label_store: Store) -> None:
    strict, lax = fit(["select:strength=3.0", "select:strength=0.0"], label_store, **QUICK)
    assert isinstance(strict.head.module, Select)
    assert isinstance(lax.head.module, Select)
    assert lax.head.module.weight.any(dim=0).all()
    selected = strict.head.module.weight.any(dim=0)  # (layers, width)
    assert int(selected.sum()) < 0.5 * selected.numel()


def label_moments(store: Store, shrink: float) -> tuple[np.ndarray, np.ndarray]:
    """The linear discriminant of CLS, two layers side by side, from its textbook formula."""
    batches = list(store["train"].batches(8))
    x = torch.cat([batch.hidden[:, 0, 1:].flatten(1) for batch in batches]).double().numpy()
    y = torch.cat([batch.targets for batch in batches]).numpy().astype(int)
    means = np.stack([x[y == label].mean(0) for label in range(3)])
    apart = x - means[y]
    within = apart.T @ apart / len(x)
    within = (1 - shrink) * within + shrink * np.diag(np.diag(within))
    weight = np.linalg.solve(within, (means - x.mean(0)).T).T
    return weight, np.log(np.bincount(y) / len(y)) - (weight * (means + x.mean(0))).sum(1) / 2


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_linear_head_is_computed(label_store: Store, label_task: Task, epochs: int) -> None:
    source = Counted(label_store)
    settings: dict[str, Any] = {"epochs": epochs, "batch": 8}
    first, second = fit(["linear:layers=last2"], source, seeds=[0, 1], task=label_task, lr=1e38, **settings)
    assert source.reads == {"train": epochs, "inner": epochs}
    weight, bias = label_moments(label_store, 10 ** (-first.best_epoch / 2))
    np.testing.assert_allclose(first.head.module.dense.weight.detach(), weight, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(first.head.module.dense.bias.detach(), bias, rtol=2e-3, atol=2e-2)
    assert torch.equal(first.head.module.dense.weight, second.head.module.dense.weight)  # no seed, no rate
    in_company = fit(["probe", "linear:layers=last2"], label_store, **settings)[1]
    assert torch.equal(first.head.module.dense.weight, in_company.head.module.dense.weight)
    assert all(np.isfinite(entry["loss"]) for entry in first.history)
    (at_any_rate,) = fit(["linear:layers=last2"], label_store, rates=(1e-2, 1e-1), **settings)
    assert torch.equal(first.head.module.dense.weight, at_any_rate.head.module.dense.weight)


def test_a_linear_head_for_values_is_least_squares(value_store: Store) -> None:
    (one,) = fit(["linear:layers=last1"], value_store, epochs=1)
    batches = list(value_store["train"].batches(8))
    x = torch.cat([batch.hidden[:, 0, -1] for batch in batches]).double().numpy()
    y = torch.cat([batch.targets for batch in batches]).double().numpy()
    spread, shrink = np.cov(x.T, bias=True), 10**-0.5
    spread = (1 - shrink) * spread + shrink * np.diag(np.diag(spread))
    weight = np.linalg.solve(spread, (x - x.mean(0)).T @ (y - y.mean()) / len(y))
    np.testing.assert_allclose(one.head.module.dense.weight.detach()[0], weight, rtol=2e-3, atol=2e-3)
    assert float(one.head.module.dense.bias.detach()) == pytest.approx(y.mean() - x.mean(0) @ weight, abs=2e-2)


def test_heads_for_labels_are_not_fitted_on_spans(span_store: Store) -> None:
    with pytest.raises(BadInput, match="head linear is for labels and values"):
        fit(["linear"], span_store)


def test_seeds_change_the_start_and_nothing_is_random_besides(label_store: Store, same: Same) -> None:
    first, second = fit(["learned-pool"], label_store, seeds=[0, 1], **QUICK)
    assert not torch.equal(first.head.module.dense.weight, second.head.module.dense.weight)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    same(fit(["learned-pool"], label_store, seeds=[1], **QUICK)[0], second)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random numbers are left alone
    other_order = fit(["learned-pool"], label_store, seeds=[1], order_seed=5, **QUICK)[0]
    assert not torch.equal(other_order.head.module.dense.weight, second.head.module.dense.weight)


def test_one_head_asked_for_twice_is_fitted_once(label_store: Store) -> None:
    fitted = fit(["compress", "compress:size=64", "mean-pool"], label_store, seeds=[0, 0], **QUICK)
    assert [(one.spec, one.seed) for one in fitted] == [("compress:size=64", 0), ("mean-pool", 0)]


def test_the_history_is_complete_and_the_loss_falls(label_store: Store) -> None:
    (one,) = fit(["probe"], label_store, epochs=6, lr=1e-2, batch=8)
    assert [entry["epoch"] for entry in one.history] == [1, 2, 3, 4, 5, 6]
    assert all(set(entry) == {"epoch", "loss", "inner"} for entry in one.history)
    assert one.history[-1]["loss"] < 0.7 * one.history[0]["loss"]
    assert one.seconds > 0
    assert one.parameters == one.head.num_parameters


@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
def test_the_best_epoch_is_the_first_best_on_inner(kind: str, request: pytest.FixtureRequest) -> None:
    store, task = request.getfixturevalue(f"{kind}_store"), request.getfixturevalue(f"{kind}_task")
    for one in fit(SPECS, store, seeds=[0, 1], epochs=4, lr=3e-2, batch=8):
        scores = [entry["inner"] for entry in one.history]
        assert one.best_epoch == 1 + scores.index(max(scores))
        verdict = score_inner(task, one.inner, store["inner"].table())
        assert (verdict.scores[task.metric], verdict.threshold) == (max(scores), one.threshold)


def test_the_head_kept_is_that_of_the_best_epoch(label_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def scripted(task: Task, logits: Any, table: WindowTable) -> SplitScores:
        seen.append(logits)
        return SplitScores({task.metric: [10.0, 50.0, 50.0, 20.0][len(seen) - 1]}, 0.5 * len(seen), {})

    monkeypatch.setattr(fit_module, "score_inner", scripted)
    (one,) = fit(["probe"], label_store, epochs=4, lr=1e-2, batch=8)
    assert (one.best_epoch, one.threshold) == (2, 1.0)
    assert all(np.array_equal(a, b) for a, b in zip(one.inner, seen[1], strict=True))
    again = predict(one, label_store["inner"])[0].logits
    np.testing.assert_allclose(np.stack(again), np.stack(seen[1]), atol=1e-5)
    assert not np.allclose(np.stack(again), np.stack(seen[3]), atol=1e-3)


class Exploding(HeadModule):
    """A linear head whose outputs stop being numbers: after some training batches, or when it is judged."""

    def __init__(self, shape: Shape, after: int = 0, judged: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.width * shape.layers, shape.outputs)
        self.after, self.judged, self.batches = after, judged, 0

    def forward(self, states: Tensor) -> Tensor:
        self.batches += self.training
        bad = not self.training if self.judged else self.batches > self.after
        return self.dense(states.flatten(-2)) * (float("inf") if bad else 1.0)  # type: ignore[no-any-return]


@pytest.fixture
def exploding(monkeypatch: pytest.MonkeyPatch) -> None:
    list(HEADS)  # the registry is filled before it is changed
    monkeypatch.setitem(HEADS._entries, "exploding", Exploding)


@pytest.mark.usefixtures("exploding")
@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
@pytest.mark.parametrize("spec", ["exploding", "exploding:judged=true"])
def test_a_head_that_diverges_is_dropped_and_the_others_go_on(
    kind: str, spec: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], same: Same
) -> None:
    store = request.getfixturevalue(f"{kind}_store")
    fitted = fit(["learned-pool", spec, "probe"], store, **QUICK)
    assert [one.spec for one in fitted] == ["learned-pool", "probe"]
    for one, alone in zip(fitted, fit(["learned-pool", "probe"], store, **QUICK), strict=True):
        same(one, alone)
    said = capsys.readouterr().err
    assert f"head {spec} seed 0 diverged" in said
    assert "left out" in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("exploding")
def test_a_head_that_diverges_late_keeps_its_best_epoch(label_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    batches = label_store["train"].batch_count(8)
    (one,) = fit([f"exploding:after={2 * batches}"], label_store, epochs=4, lr=1e-2, batch=8)
    assert [entry["epoch"] for entry in one.history] == [1, 2]
    assert np.isfinite(np.stack(one.inner)).all()
    assert f"keeping epoch {one.best_epoch}" in capsys.readouterr().err


@pytest.mark.usefixtures("exploding")
def test_when_every_head_diverges_the_rest_is_not_read(label_store: Store, label_task: Task) -> None:
    source = Counted(label_store)
    with pytest.raises(ArithmeticError, match="every head diverged: lower the learning rate"):
        fit(["exploding"], source, seeds=[0, 1], task=label_task, **QUICK)
    assert source.reads["train"] == 1


def test_an_absurd_learning_rate_diverges(span_store: Store) -> None:
    with pytest.raises(ArithmeticError, match="diverged"):
        fit(["compress:size=4"], span_store, epochs=2, lr=1e38, batch=8)


def test_what_cannot_be_fitted_is_said(label_store: Store, value_store: Store) -> None:
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


def test_of_several_rates_each_head_keeps_the_one_best_on_inner(
    label_store: Store, label_task: Task, same: Callable[[FittedHead, FittedHead], None]
) -> None:
    rates = (1e-4, 3e-2, 1e-1)
    alone = {lr: fit(["learned-pool", "probe"], label_store, epochs=3, batch=8, lr=lr) for lr in rates}
    together = fit(["learned-pool", "probe"], label_store, epochs=3, batch=8, lr=rates[0], rates=rates[1:])
    assert [head.spec for head in together] == ["learned-pool", "probe"]
    for place, head in enumerate(together):
        best = max(rates, key=lambda lr: (max(point["inner"] for point in alone[lr][place].history), -lr))
        assert head.lr == best
        same(head, alone[best][place])


def test_pools_share_a_product_and_come_out_the_same(span_store: Store, label_store: Store, same: Same) -> None:
    specs = ["learned-pool", "probe:layers=last1", "mean-pool", "learned-pool:layers=last2"]
    for store in (span_store, label_store):
        together = fit(specs, store, seeds=range(6), epochs=2, batch=8, lr=3e-2)
        assert len(together) == 24
        for one in together[::5]:
            (alone,) = fit([one.spec], store, seeds=[one.seed], epochs=2, batch=8, lr=3e-2)
            same(one, alone)


def test_a_pool_that_diverges_leaves_its_block_alone(label_store: Store, same: Same) -> None:
    rates = {"lr": 1e-2, "rates": (1e30,)}
    (beside,) = fit(["learned-pool"], label_store, epochs=3, batch=8, **rates)
    (alone,) = fit(["learned-pool"], label_store, epochs=3, batch=8, lr=1e-2)
    same(beside, alone)


def test_progress_is_that_of_all_epochs(
    label_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTVISION_PROGRESS")
    monkeypatch.setattr("bertvision.core.progress.LINE_SECONDS", 0.0)
    fit(["learned-pool"], label_store, **QUICK)
    batches = QUICK["epochs"] * label_store["train"].batch_count(QUICK["batch"])
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fit 1 heads, 3 epochs: ")]
    assert len(told) == batches
    assert told[-1] == f"fit 1 heads, 3 epochs: {batches} of {batches} batches, about 0 min left"
