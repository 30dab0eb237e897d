"""Tuning: a copy is tuned, for exactly the steps asked, reproducibly, with any head, and it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bertvision.core.config import TuneConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training.schedule import lr_factor
from bertvision.training.tune import choose_lr, default_lr, tune


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in encoder.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


def test_the_given_encoder_is_left_as_it_is_and_the_copy_is_changed(tiny_encoder: Encoder, span_task: Task) -> None:
    before = weights(tiny_encoder)
    tuned = tune(tiny_encoder, span_task, epochs=1, lr=1e-3)
    assert same(before, weights(tiny_encoder))
    assert tiny_encoder.own is None
    assert not same(before, weights(tuned))
    assert tuned.own is not None
    assert tuned.own.spec == "probe:layers=last1"


@pytest.mark.parametrize(("epochs", "steps"), [(0, 0), (0.5, 0.5), (1, 1), (2.5, 2.5)])
def test_a_fraction_is_a_whole_run_of_that_length(
    tiny_encoder: Encoder, label_task: Task, epochs: float, steps: float
) -> None:
    per_epoch = -(-len(label_task["train"]) // 4)
    tuned = tune(tiny_encoder, label_task, epochs=epochs, batch=4)
    assert tuned.record["tune"]["steps"] == round(steps * per_epoch)


def test_the_seed_decides_everything(tiny_encoder: Encoder, label_task: Task) -> None:
    runs = [weights(tune(tiny_encoder, label_task, epochs=1, lr=1e-3, seed=seed)) for seed in (3, 3, 4)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


SPAN_HEADS = (
    "learned-pool",
    "compress:size=4,skip=true",
    "probe:layers=last1",
    "context-conv:size=4,maps=2",
    "context-conv:size=4,maps=2,context=false,layers=last1",
    "ladder:size=8",
    "token-cnn:size=4,dropout=0.5",
)
LABEL_HEADS = ("context-conv:size=4,maps=2", "xception:scale=0.05", "flatten:size=2", "linear:layers=last1")


@pytest.mark.parametrize("head", SPAN_HEADS)
def test_any_head_can_be_tuned_with(tiny_encoder: Encoder, span_task: Task, head: str) -> None:
    tuned = tune(tiny_encoder, span_task, epochs=1, head=head)
    assert tuned.own is not None
    assert tuned.own.spec == head


@pytest.mark.parametrize("head", LABEL_HEADS)
def test_any_head_for_labels_can_be_tuned_with(tiny_encoder: Encoder, label_task: Task, head: str) -> None:
    tuned = tune(tiny_encoder, label_task, epochs=1, head=head)
    assert tuned.own is not None
    assert tuned.own.spec == head
    assert all(value.isfinite().all() for value in tuned.own.state.values())


def test_a_head_that_selects_does_so_while_it_is_tuned_with(tiny_encoder: Encoder, label_task: Task) -> None:
    tuned = tune(tiny_encoder, label_task, epochs=1, lr=1e-2, head="select:strength=3.0")
    assert tuned.own is not None
    dropped = tuned.own.state["body.weight"].abs().amax(0) == 0  # (layers, width)
    assert 0.3 < float(dropped.float().mean()) <= 1.0


def test_it_learns(tiny_encoder: Encoder, label_task: Task) -> None:
    short = tune(tiny_encoder, label_task, epochs=1, lr=3e-3, batch=4)
    long = tune(tiny_encoder, label_task, epochs=30, lr=3e-3, batch=4)
    assert long.record["cost"]["loss"] < 0.6 * short.record["cost"]["loss"]


def test_a_tuned_encoder_goes_on_with_its_head(tiny_encoder: Encoder, span_task: Task, label_task: Task) -> None:
    for task in (span_task, label_task):
        once = tune(tiny_encoder, task, epochs=1)
        again = tune(once, task, epochs=0, seed=5)
        assert once.own is not None
        assert again.own is not None
        assert all(torch.equal(again.own.state[key], value) for key, value in once.own.state.items())


def test_a_head_for_other_labels_is_not_gone_on_with(tiny_encoder: Encoder, label_task: Task) -> None:
    once = tune(tiny_encoder, label_task, epochs=1)
    renamed = replace(label_task, labels=tuple(reversed(label_task.labels)))
    other = tune(once, renamed, epochs=0, seed=5)
    assert once.own is not None
    assert other.own is not None
    assert any(not torch.equal(other.own.state[key], value) for key, value in once.own.state.items())


def test_divergence_is_said(tiny_encoder: Encoder, label_task: Task) -> None:
    with pytest.raises(ArithmeticError, match="diverged"):
        tune(tiny_encoder, label_task, epochs=20, lr=1e30, clip=1e30)


@pytest.mark.parametrize(("width", "rate"), [(384, default_lr(384)), (768, 2e-5), (1024, 2e-5)])
def test_a_task_s_own_rate_is_for_encoders_as_wide_as_bert(width: int, rate: float) -> None:
    assert choose_lr(TuneConfig(bert_lr=2e-5), width) == rate
    assert choose_lr(TuneConfig(bert_lr=2e-5, lr=4e-5), width) == 4e-5
    assert choose_lr(TuneConfig(), width) == default_lr(width)


def test_unknown_methods_are_refused(tiny_encoder: Encoder, label_task: Task) -> None:
    with pytest.raises(BadInput, match="Did you mean 'full'"):
        tune(tiny_encoder, label_task, method="ful")


def test_warm_up_and_decay_fill_the_run() -> None:
    rates = [lr_factor(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert {lr_factor(step, 100, 0.1, "constant") for step in range(10, 100)} == {1.0}


def test_wider_encoders_get_smaller_rates() -> None:
    assert [default_lr(width) for width in (16, 384, 768, 1024)] == [1.5e-4, 1.5e-4, 4.9e-5, 3.1e-5]
