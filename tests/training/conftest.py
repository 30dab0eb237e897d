"""Fixtures for the tests of training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from bertvision.encoders.loading import Encoder
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fitted_head import FittedHead


def _facts(head: FittedHead) -> tuple[object, ...]:
    """Everything in a fitted head except weights, outputs and seconds."""
    fitted = head.best_epoch, head.threshold, head.temperatures
    return head.spec, head.seed, *fitted, head.history, head.states, head.head.shape


@pytest.fixture(scope="session")
def assert_same() -> Callable[[FittedHead, FittedHead], None]:
    """A function that asserts that two fitted heads are equal bit for bit."""

    def check(first: FittedHead, second: FittedHead) -> None:
        assert _facts(first) == _facts(second)
        states, second_states = first.head.state_dict(), second.head.state_dict()
        assert list(states) == list(second_states)
        assert all(torch.equal(states[key], second_states[key]) for key in states)
        assert len(first.inner) == len(second.inner)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(first.inner, second.inner, strict=True))

    return check


Extracted = Callable[[Task], Store]


@pytest.fixture(scope="session")
def untuned_store(tiny_encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Extracted:
    """A function that extracts a task with the encoder as it came, which has not seen the labels; once per task."""
    stores: dict[str, Store] = {}

    def extracted(task: Task) -> Store:
        if task.name not in stores:
            folder = tmp_path_factory.mktemp("untuned") / "store"
            stores[task.name] = extract(tiny_encoder, task, folder, dtype="f32")
        return stores[task.name]

    return extracted
