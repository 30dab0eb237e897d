"""Subsets of the training examples, and train and inner as one split: batches contain exactly their windows."""

from __future__ import annotations

import pytest
from torch import Tensor

from bertvision.core.records import FOLDS
from bertvision.store.states import Subset
from bertvision.store.store import Store
from bertvision.training.fit import fit
from bertvision.training.live_states import task_of_states


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_subset_batches_contain_the_chosen_windows_once(span_store: Store, batch: int) -> None:
    table, chosen = span_store["train"].table(), {0, 3, 7}
    subset = Subset(span_store, chosen)["train"]
    windows_read = [
        number for window_batch in subset.batches(batch, seed=1) for number in window_batch.windows.tolist()
    ]
    assert sorted(windows_read) == [
        window for window, example in enumerate(table.example.tolist()) if example in chosen
    ]
    assert len(subset) == len(windows_read)
    assert subset.batch_count(batch) == len(list(subset.batches(batch)))


def test_subset_of_all_examples_equals_the_split(span_store: Store) -> None:
    examples = range(len(task_of_states(span_store)["train"]))
    both = [source["train"].batches(4, seed=3) for source in (span_store, Subset(span_store, examples))]
    for full, subset in zip(*both, strict=True):
        assert full.hidden.equal(subset.hidden)
        assert full.targets.equal(subset.targets)


def test_subset_limits_training_but_not_inner_and_dev(label_store: Store) -> None:
    subset = Subset(label_store, {0, 1, 2})
    fitted_on_subset, fitted_on_all = (fit(["probe"], states, epochs=1, batch=8)[0] for states in (subset, label_store))
    assert len(fitted_on_subset.inner) == len(fitted_on_all.inner)
    assert fitted_on_subset.history != fitted_on_all.history
    assert subset["dev"].table().example.tolist() == label_store["dev"].table().example.tolist()


@pytest.mark.parametrize("seed", [None, 1])
def test_folds_are_train_and_inner_as_one_split(label_store: Store, seed: int | None) -> None:
    task, joined = task_of_states(label_store), label_store[FOLDS]
    table, examples = joined.table(), task[FOLDS]
    assert len(joined) == len(task["train"]) + len(task["inner"])
    assert table.targets[:, 0].tolist() == [examples[number].label for number in table.example]
    seen = {}
    for batch in joined.batches(4, seed=seed):
        for window, target in zip(batch.windows.tolist(), batch.targets.tolist(), strict=True):
            seen[window] = target
    assert seen == dict(enumerate(table.targets[:, 0].tolist()))


def test_folds_keep_the_states_of_their_parts(label_store: Store) -> None:
    def by_window(split: str) -> dict[int, Tensor]:
        return {
            window: batch.first[row]
            for batch in label_store[split].batches(5)
            for row, window in enumerate(batch.windows.tolist())
        }

    joined, train, inner = by_window(FOLDS), by_window("train"), by_window("inner")
    assert all(joined[window].equal(states) for window, states in train.items())
    assert all(joined[len(train) + window].equal(states) for window, states in inner.items())
