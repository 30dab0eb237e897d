"""States that are computed when asked for are those of a store, and so are the heads fitted on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import LiveStates, task_of_states
from bertvision.training.predict import predict, predict_own

SMALL: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}
KINDS = ("span", "label", "set", "value")
SPECS = ("learned-pool", "compress:size=4,skip=true")

pytestmark = pytest.mark.usefixtures("small_shards")

Both = tuple[Store, LiveStates, Task]


@pytest.fixture(scope="module")
def both(
    small_shards: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Both]:
    """A store of several shards, and the same states live, for each kind of task."""
    made = {}
    for kind in KINDS:
        encoder, task = request.getfixturevalue(f"{kind}_encoder"), request.getfixturevalue(f"{kind}_task")
        store = extract(encoder, task, tmp_path_factory.mktemp(kind) / "store", **SMALL)
        made[kind] = (store, LiveStates(encoder, task, **SMALL), task)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_a_store_s_to_the_last_bit(both: dict[str, Both], kind: str) -> None:
    store, live, _ = both[kind]
    assert live.id == store.id
    for split in ("train", "inner", "dev"):
        assert split != "train" or len(store[split].sizes) > 1
        assert live[split].batch_count(5) == store[split].batch_count(5)
        pairs = zip(store[split].batches(5, seed=3), live[split].batches(5, seed=3), strict=True)
        for stored, lived in pairs:
            for name in ("hidden", "mask", "targets", "windows", "pooled", "logits"):
                assert torch.equal(getattr(stored, name), getattr(lived, name)), name


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_own_predictions_are_a_store_s(both: dict[str, Both], kind: str) -> None:
    store, live, _ = both[kind]
    one, other = store["dev"].table(), live["dev"].table()
    for name in ("example", "cls", "targets"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("offsets", "input_ids"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(one, name), getattr(other, name), strict=True))
    stored, lived = predict_own(store["dev"]), predict_own(live["dev"])
    assert all(np.array_equal(a, b) for a, b in zip(stored.logits, lived.logits, strict=True))
    assert (stored.parameters, stored.spec) == (lived.parameters, lived.spec)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_those_fitted_on_a_store(
    both: dict[str, Both], kind: str, same: Callable[[FittedHead, FittedHead], None]
) -> None:
    store, live, task = both[kind]
    stored, lived = (fit(SPECS, states, seeds=(0, 1), epochs=2, batch=8) for states in (store, live))
    for one, other in zip(stored, lived, strict=True):
        same(one, other)
    assert task_of_states(live) == task
    for one, other in zip(predict(stored, store["dev"]), predict(lived, live["dev"]), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.logits, other.logits, strict=True))


def test_own_predictions_cost_no_pass_of_their_own(
    span_encoder: Encoder, span_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveStates(span_encoder, span_task, **SMALL)
    passed = live["dev"].native_logits()
    monkeypatch.setattr(live.builder, "shard", lambda *_: pytest.fail("the encoder ran again"))
    again = live["dev"].native_logits()
    assert passed is not None
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(passed, again, strict=True))


def test_what_is_not_there_is_named(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    live = LiveStates(tiny_encoder, label_task, layers="last1")
    assert live.shape.layers == 1
    assert live["dev"].native_logits() is None
    with pytest.raises(BadInput, match="no split 'test'; expected one of train, inner, dev"):
        live["test"]
    with pytest.raises(BadInput, match="not tuned with a head"):
        predict_own(live["dev"])
