"""Tuning: a copy is tuned for the exact number of steps, reproducibly, with any head, and learns."""

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


def equal_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


def test_tune_changes_a_copy_of_the_encoder(tiny_encoder: Encoder, span_task: Task) -> None:
    before = weights(tiny_encoder)
    tuned = tune(tiny_encoder, span_task, epochs=1, lr=1e-3)
    assert equal_weights(before, weights(tiny_encoder))
    assert tiny_encoder.own is None
    assert not equal_weights(before, weights(tuned))
    assert tuned.own is not None
    assert tuned.own.spec == "probe:layers=last1"


@pytest.mark.parametrize(("epochs", "expected_epochs"), [(0, 0), (0.5, 0.5), (1, 1), (2.5, 2.5)])
def test_number_of_steps_follows_fractional_epochs(
    tiny_encoder: Encoder, label_task: Task, epochs: float, expected_epochs: float
) -> None:
    per_epoch = -(-len(label_task["train"]) // 4)
    tuned = tune(tiny_encoder, label_task, epochs=epochs, batch=4)
    assert tuned.record["tune"]["steps"] == round(expected_epochs * per_epoch)


def test_tune_is_determined_by_its_seed(tiny_encoder: Encoder, label_task: Task) -> None:
    runs = [weights(tune(tiny_encoder, label_task, epochs=1, lr=1e-3, seed=seed)) for seed in (3, 3, 4)]
    assert equal_weights(runs[0], runs[1])
    assert not equal_weights(runs[0], runs[2])


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
def test_tune_with_any_span_head(tiny_encoder: Encoder, span_task: Task, head: str) -> None:
    tuned = tune(tiny_encoder, span_task, epochs=1, head=head)
    assert tuned.own is not None
    assert tuned.own.spec == head


@pytest.mark.parametrize("head", LABEL_HEADS)
def test_tune_with_any_label_head(tiny_encoder: Encoder, label_task: Task, head: str) -> None:
    tuned = tune(tiny_encoder, label_task, epochs=1, head=head)
    assert tuned.own is not None
    assert tuned.own.spec == head
    assert all(value.isfinite().all() for value in tuned.own.state.values())


def test_tune_with_group_lasso_drops_features(tiny_encoder: Encoder, label_task: Task) -> None:
    tuned = tune(tiny_encoder, label_task, epochs=1, lr=1e-2, head="select:strength=3.0")
    assert tuned.own is not None
    dropped = tuned.own.state["body.weight"].abs().amax(0) == 0  # (layers, width)
    assert 0.3 < float(dropped.float().mean()) <= 1.0


def test_longer_tuning_lowers_the_loss(tiny_encoder: Encoder, label_task: Task) -> None:
    short = tune(tiny_encoder, label_task, epochs=1, lr=3e-3, batch=4)
    long = tune(tiny_encoder, label_task, epochs=30, lr=3e-3, batch=4)
    assert long.record["cost"]["loss"] < 0.6 * short.record["cost"]["loss"]


def test_tuning_again_continues_with_the_native_head(tiny_encoder: Encoder, span_task: Task, label_task: Task) -> None:
    for task in (span_task, label_task):
        once = tune(tiny_encoder, task, epochs=1)
        again = tune(once, task, epochs=0, seed=5)
        assert once.own is not None
        assert again.own is not None
        assert all(torch.equal(again.own.state[key], value) for key, value in once.own.state.items())


def test_native_head_for_other_labels_is_replaced(tiny_encoder: Encoder, label_task: Task) -> None:
    once = tune(tiny_encoder, label_task, epochs=1)
    renamed = replace(label_task, labels=tuple(reversed(label_task.labels)))
    other = tune(once, renamed, epochs=0, seed=5)
    assert once.own is not None
    assert other.own is not None
    assert any(not torch.equal(other.own.state[key], value) for key, value in once.own.state.items())


def test_divergence_is_an_error(tiny_encoder: Encoder, label_task: Task) -> None:
    with pytest.raises(ArithmeticError, match="diverged"):
        tune(tiny_encoder, label_task, epochs=20, lr=1e30, clip=1e30)


@pytest.mark.parametrize(("width", "rate"), [(384, default_lr(384)), (768, 2e-5), (1024, 2e-5)])
def test_bert_learning_rate_applies_from_the_width_of_bert(width: int, rate: float) -> None:
    assert choose_lr(TuneConfig(bert_lr=2e-5), width) == rate
    assert choose_lr(TuneConfig(bert_lr=2e-5, lr=4e-5), width) == 4e-5
    assert choose_lr(TuneConfig(), width) == default_lr(width)


def test_unknown_method_is_an_error(tiny_encoder: Encoder, label_task: Task) -> None:
    with pytest.raises(BadInput, match="Did you mean 'full'"):
        tune(tiny_encoder, label_task, method="ful")


def test_learning_rate_warms_up_and_decays() -> None:
    rates = [lr_factor(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert {lr_factor(step, 100, 0.1, "constant") for step in range(10, 100)} == {1.0}


def test_default_learning_rate_falls_with_width() -> None:
    assert [default_lr(width) for width in (16, 384, 768, 1024)] == [1.5e-4, 1.5e-4, 4.9e-5, 3.1e-5]
