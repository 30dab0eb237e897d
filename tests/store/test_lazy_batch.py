"""A stored batch decodes what is asked for, and gives the same states padded, unpadded and of CLS alone."""

from __future__ import annotations

import numpy as np
import torch

from bertvision.core.records import LayerBatch, Window
from bertvision.store.shard_file import layer_batch, window_tensors

SIZES = (5, 2, 7)


def _batch() -> LayerBatch:
    draw = np.random.default_rng(0)
    ids = [draw.integers(1, 99, size).astype(np.int32) for size in SIZES]
    windows = [
        Window(number, one, np.zeros(len(one), np.uint8), np.zeros((len(one), 2), np.int32), 0, (1.0, 1.0))
        for number, one in enumerate(ids)
    ]
    hidden = torch.randn(sum(SIZES), 3, 4, generator=torch.Generator().manual_seed(0)).half()
    return layer_batch({"hidden": hidden, **window_tensors(windows, range(3))}, np.array([2, 0]), "span")


def test_unpadded_padded_and_first_are_the_same_states() -> None:
    batch = _batch()
    assert batch.hidden.shape == (2, 7, 3, 4)
    assert torch.equal(batch.hidden[batch.mask], batch.states)
    assert torch.equal(batch.hidden[:, 0], batch.first)
    assert (batch.hidden[~batch.mask] == 0).all()


def test_only_cls_is_decoded_for_whoever_reads_only_cls() -> None:
    batch = _batch()
    assert batch.first.shape == (2, 3, 4)
    assert {"states", "hidden"}.isdisjoint(vars(batch))


def test_a_batch_from_elsewhere_has_them_too() -> None:
    stored = _batch()
    made = LayerBatch(stored.hidden, stored.mask, stored.targets, stored.windows)
    assert torch.equal(made.states, stored.states)
    assert torch.equal(made.first, stored.first)


def test_another_device_gets_all_that_heads_look_at() -> None:
    moved = _batch().to(torch.device("meta"))
    assert {moved.states.device.type, moved.mask.device.type, moved.targets.device.type} == {"meta"}
