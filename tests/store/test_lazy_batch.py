"""A stored batch decodes only the requested view: padded, unpadded or CLS states."""

from __future__ import annotations

import numpy as np
import torch

from bertvision.core.records import LayerBatch, Window
from bertvision.store.shard_file import layer_batch, window_tensors

SIZES = (5, 2, 7)


def _make_batch() -> LayerBatch:
    random = np.random.default_rng(0)
    ids = [random.integers(1, 99, size).astype(np.int32) for size in SIZES]
    windows = [
        Window(number, tokens, np.zeros(len(tokens), np.uint8), np.zeros((len(tokens), 2), np.int32), 0, (1.0, 1.0))
        for number, tokens in enumerate(ids)
    ]
    hidden = torch.randn(sum(SIZES), 3, 4, generator=torch.Generator().manual_seed(0)).half()
    return layer_batch({"hidden": hidden, **window_tensors(windows, range(3))}, np.array([2, 0]), "span")


def test_padded_unpadded_and_cls_states_agree() -> None:
    batch = _make_batch()
    assert batch.hidden.shape == (2, 7, 3, 4)
    assert torch.equal(batch.hidden[batch.mask], batch.states)
    assert torch.equal(batch.hidden[:, 0], batch.first)
    assert (batch.hidden[~batch.mask] == 0).all()


def test_reading_cls_decodes_nothing_else() -> None:
    batch = _make_batch()
    assert batch.first.shape == (2, 3, 4)
    assert {"states", "hidden"}.isdisjoint(vars(batch))


def test_eager_batch_derives_unpadded_and_cls_states() -> None:
    stored = _make_batch()
    eager = LayerBatch(stored.hidden, stored.mask, stored.targets, stored.windows)
    assert torch.equal(eager.states, stored.states)
    assert torch.equal(eager.first, stored.first)


def test_batch_moves_all_tensors_to_the_device() -> None:
    moved = _make_batch().to(torch.device("meta"))
    assert {moved.states.device.type, moved.mask.device.type, moved.targets.device.type} == {"meta"}
