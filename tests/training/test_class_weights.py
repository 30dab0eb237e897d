"""Class weights, from the task to the outputs of tuned encoders and fitted heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertvision.core.records import Example
from bertvision.encoders.loading import Encoder
from bertvision.store.store import Store
from bertvision.tasks.class_weights import with_class_weights
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.inputs import data_hash, label_weights
from bertvision.training.predict import predict
from bertvision.training.tune import tune


def toned_example(number: int, split: str) -> Example:
    """One in five texts contains "good", and one in three of those is rare: below one half, but above the base rate."""
    good, rare = number % 5 == 0, number % 15 == 0
    return Example(f"{split}-{number}", f"the {'good' if good else 'plain'} old town", label=float(rare))


def rare_task() -> Task:
    sizes = {"train": 90, "inner": 30, "dev": 45}
    splits = {split: tuple(toned_example(i, split) for i in range(size)) for split, size in sizes.items()}
    return Task("rare", "classify", splits, "accuracy", labels=("usual", "rare"), max_length=32)


def rare_recall(store: Store, task: Task, spec: str) -> float:
    (head,) = fit([spec], store, epochs=8, lr=3e-2, batch=8, validation="folds" if spec == "ridge" else "inner")
    predicted = np.stack(list(predict(head, store["dev"])[0].logits)).argmax(1)
    return float(np.mean([predicted[i] == 1 for i, example in enumerate(task["dev"]) if example.label == 1.0]))


@pytest.mark.parametrize("spec", ["probe:read=mean", "ridge"])
def test_class_weights_raise_the_recall_of_the_rare_label(tiny_encoder: Encoder, tmp_path: Path, spec: str) -> None:
    task = rare_task()
    recalls = [
        rare_recall(extract(tiny_encoder, weighted_task, tmp_path / str(index), dtype="f32"), task, spec)
        for index, weighted_task in enumerate((task, with_class_weights(task, "balanced")))
    ]
    assert recalls == [0.0, 1.0]


def test_tune_uses_class_weights(tiny_encoder: Encoder) -> None:
    task = rare_task()
    plain, even, uneven = (
        tune(tiny_encoder, variant, epochs=1, lr=1e-3, batch=8)
        for variant in (task, replace(task, class_weights=(1.0, 1.0)), with_class_weights(task, "balanced"))
    )
    native_weights = [tuned.own.state["body.dense.weight"] for tuned in (plain, even, uneven) if tuned.own is not None]
    torch.testing.assert_close(native_weights[0], native_weights[1])
    assert not torch.allclose(native_weights[0], native_weights[2])


def test_class_weights_change_the_data_hash() -> None:
    task = rare_task()
    device = torch.device("cpu")
    assert label_weights(task, device) is None
    weights = label_weights(with_class_weights(task, "balanced"), device)
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor([90 / (2 * 84), 90 / (2 * 6)]))
    assert data_hash(task) != data_hash(replace(task, class_weights=(1.0, 2.0)))
