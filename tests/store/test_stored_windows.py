"""Keys of windows, and finding windows by key."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertvision.core.records import Window
from bertvision.encoders.loading import Encoder
from bertvision.store.store import Store
from bertvision.store.stored_windows import StoredWindows, window_keys
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.inputs import split_windows


@pytest.fixture
def window(tiny_encoder: Encoder, span_task: Task) -> Window:
    return split_windows(span_task, "dev", tiny_encoder)[0]


def test_key_depends_on_the_input_of_the_encoder_only(window: Window) -> None:
    ids, types = window.input_ids.copy(), window.token_types.copy()
    ids[-2] += 1
    types[3] = 1 - types[3]
    others = [replace(window, example=7, target=(0.0, 0.0)), replace(window, input_ids=ids)]
    others.append(replace(window, token_types=types))
    keys = window_keys([window, *others], "all")
    assert (keys.shape, keys.dtype) == ((4, 2), np.int64)
    assert [bool((key == keys[0]).all()) for key in keys] == [True, True, False, False]


def test_key_is_fixed() -> None:
    """Stores keep it: a changed key would make them useless as sources."""
    ids, types = np.arange(5, dtype=np.int32), np.zeros(5, np.uint8)
    window = Window(0, ids, types, np.full((5, 2), -1, np.int32), 0, (0.0,))
    assert window_keys([window], "mean").tolist() == [[-3558471247260287320, -3992589983945190193]]
    assert window_keys([], "mean").shape == (0, 2)


def test_key_contains_where_the_context_begins(window: Window) -> None:
    """Without token types, the same tokens may be a longer question with a shorter context."""
    offsets = window.offsets.copy()
    offsets[(offsets[:, 0] >= 0).argmax()] = -1
    other = replace(window, offsets=offsets)
    assert (window_keys([window], "all") == window_keys([other], "all")).all()
    assert (window_keys([window], "context") != window_keys([other], "context")).all()


def test_every_window_is_located(span_store: Store, tmp_path: Path) -> None:
    stored = StoredWindows(shutil.copytree(span_store.folder, tmp_path / "store"))
    assert len(stored) == sum(len(span_store[split]) for split in ("train", "inner", "dev"))
    for split in ("train", "inner", "dev"):
        for shard in span_store[split].shards():
            keys = shard["keys"].numpy()
            for source, rows, positions in stored.parts(stored.locate(keys)):
                assert (source["keys"].numpy()[rows] == keys[positions]).all()
            assert (stored.locate(keys) >= 0).all()
            assert (stored.locate(keys + 1) == -1).all()
            assert (stored.locate(keys + np.array([0, 1])) == -1).all(), "both halves count"
            assert not list(stored.parts(stored.locate(keys + 1)))


def test_keys_are_those_of_the_windows(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    """Also where only summaries of them are stored."""
    expected = window_keys(split_windows(label_task, "dev", tiny_encoder), "all")
    for tokens in ("all", "mean"):
        store = extract(tiny_encoder, label_task, tmp_path / tokens, tokens=tokens)
        for shard in store["dev"].shards():
            assert (shard["keys"].numpy() == expected[shard["windows"].numpy()]).all()
