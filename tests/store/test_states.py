"""Subsets of the training examples: batches contain exactly their windows."""

from __future__ import annotations

import pytest

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
