"""Live states equal stored ones, and so do heads fitted on them."""

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

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}
KINDS = ("span", "label", "set", "value")
SPECS = ("learned-pool", "compress:size=4,skip=true")

pytestmark = pytest.mark.usefixtures("small_shards")

StoredAndLive = tuple[Store, LiveStates, Task]


@pytest.fixture(scope="module")
def stored_and_live(
    small_shards: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, StoredAndLive]:
    """A store of several shards and the same states computed live, for each kind of task."""
    stored_and_live = {}
    for kind in KINDS:
        encoder, task = request.getfixturevalue(f"{kind}_encoder"), request.getfixturevalue(f"{kind}_task")
        store = extract(encoder, task, tmp_path_factory.mktemp(kind) / "store", **SMALL_SHARDS)
        stored_and_live[kind] = (store, LiveStates(encoder, task, **SMALL_SHARDS), task)
    return stored_and_live


@pytest.mark.parametrize("kind", KINDS)
def test_live_batches_equal_stored_ones(stored_and_live: dict[str, StoredAndLive], kind: str) -> None:
    store, live, _ = stored_and_live[kind]
    assert live.id == store.id
    for split in ("train", "inner", "dev"):
        assert split != "train" or len(store[split].sizes) > 1
        assert live[split].batch_count(5) == store[split].batch_count(5)
        pairs = zip(store[split].batches(5, seed=3), live[split].batches(5, seed=3), strict=True)
        for stored_batch, live_batch in pairs:
            for name in ("hidden", "mask", "targets", "windows", "pooled", "logits"):
                assert torch.equal(getattr(stored_batch, name), getattr(live_batch, name)), name


@pytest.mark.parametrize("kind", KINDS)
def test_live_tables_and_native_predictions_equal_stored_ones(
    stored_and_live: dict[str, StoredAndLive], kind: str
) -> None:
    store, live, _ = stored_and_live[kind]
    stored_table, live_table = store["dev"].table(), live["dev"].table()
    for name in ("example", "cls", "targets"):
        assert np.array_equal(getattr(stored_table, name), getattr(live_table, name)), name
    for name in ("offsets", "input_ids"):
        assert all(
            np.array_equal(a, b) for a, b in zip(getattr(stored_table, name), getattr(live_table, name), strict=True)
        )
    stored_predictions, live_predictions = predict_own(store["dev"]), predict_own(live["dev"])
    assert all(np.array_equal(a, b) for a, b in zip(stored_predictions.logits, live_predictions.logits, strict=True))
    assert (stored_predictions.parameters, stored_predictions.spec) == (
        live_predictions.parameters,
        live_predictions.spec,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_heads_fitted_on_live_states_equal_those_of_a_store(
    stored_and_live: dict[str, StoredAndLive], kind: str, assert_same: Callable[[FittedHead, FittedHead], None]
) -> None:
    store, live, task = stored_and_live[kind]
    stored_heads, live_heads = (fit(SPECS, states, seeds=(0, 1), epochs=2, batch=8) for states in (store, live))
    for stored_output, live_output in zip(stored_heads, live_heads, strict=True):
        assert_same(stored_output, live_output)
    assert task_of_states(live) == task
    for stored_output, live_output in zip(
        predict(stored_heads, store["dev"]), predict(live_heads, live["dev"]), strict=True
    ):
        assert all(np.array_equal(a, b) for a, b in zip(stored_output.logits, live_output.logits, strict=True))


def test_live_native_logits_are_computed_once(
    span_encoder: Encoder, span_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveStates(span_encoder, span_task, **SMALL_SHARDS)
    first = live["dev"].native_logits()
    monkeypatch.setattr(live.builder, "shard", lambda *_: pytest.fail("the encoder ran again"))
    again = live["dev"].native_logits()
    assert first is not None
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_missing_split_and_native_head_are_errors(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    live = LiveStates(tiny_encoder, label_task, layers="last1")
    assert live.shape.layers == 1
    assert live["dev"].native_logits() is None
    with pytest.raises(BadInput, match="no split 'test'; expected one of train, inner, dev"):
        live["test"]
    with pytest.raises(BadInput, match="not tuned with a head"):
        predict_own(live["dev"])
