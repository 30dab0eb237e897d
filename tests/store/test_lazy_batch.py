"""A stored batch decodes only the requested view: padded, unpadded or CLS states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
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


def _summary_batch() -> LayerBatch:
    """A batch of summaries, with everything that a batch may have."""
    windows = [
        Window(number, np.ones(3, np.int32), np.zeros(3, np.uint8), np.zeros((3, 2), np.int32), 0, (float(number),))
        for number in range(3)
    ]
    hidden = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(1)).half()
    shard = {"hidden": hidden, "pooled": hidden[:3, 0], "logits": hidden[:3, 0], **window_tensors(windows, range(3))}
    shard["lengths"] = torch.full((3,), 2)
    return layer_batch(shard, np.array([2, 0, 1]), "classify", "cls+mean")


@pytest.mark.parametrize("make", [_make_batch, _summary_batch])
@pytest.mark.parametrize("rows", [[True, False, True], [False, True, False], [True, True, True]])
@pytest.mark.parametrize("decoded_before", [False, True])
def test_selected_windows_of_stored_and_eager_batches_agree(
    make: Callable[[], LayerBatch], rows: list[bool], decoded_before: bool
) -> None:
    stored = make()
    kept = torch.tensor(rows[: len(stored.windows)])
    eager = LayerBatch(
        stored.hidden, stored.mask, stored.targets, stored.windows, stored.pooled, stored.logits, stored.summaries
    ).select(kept)
    selected = (stored if decoded_before else make()).select(kept)
    for name in ("hidden", "mask", "states", "first", "targets", "windows", "pooled", "logits"):
        got, wanted = getattr(selected, name), getattr(eager, name)
        assert (got is None) == (wanted is None), name
        assert got is None or torch.equal(got, wanted), name
    assert selected.summaries == eager.summaries
    for name in eager.summaries:
        assert torch.equal(selected.summary(name), eager.summary(name))
    assert torch.equal(selected.windows, stored.windows[kept])


def test_selecting_windows_decodes_nothing() -> None:
    selected = _make_batch().select(torch.tensor([False, True]))
    assert {"states", "hidden", "first"}.isdisjoint(vars(selected))
    assert selected.first.shape == (1, 3, 4)


def test_batch_moves_all_tensors_to_the_device() -> None:
    moved = _make_batch().to(torch.device("meta"))
    assert {moved.states.device.type, moved.mask.device.type, moved.targets.device.type} == {"meta"}
