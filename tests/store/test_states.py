"""A share of the training examples: their windows, all of them and no others, in batches like any others."""

from __future__ import annotations

import pytest

from bertvision.store.states import Subset
from bertvision.store.store import Store
from bertvision.training.fit import fit
from bertvision.training.live_states import task_of_states


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_the_windows_of_the_chosen_examples_come_once(span_store: Store, batch: int) -> None:
    table, chosen = span_store["train"].table(), {0, 3, 7}
    portion = Subset(span_store, chosen)["train"]
    seen = [number for found in portion.batches(batch, seed=1) for number in found.windows.tolist()]
    assert sorted(seen) == [at for at, example in enumerate(table.example.tolist()) if example in chosen]
    assert len(portion) == len(seen)
    assert portion.batch_count(batch) == len(list(portion.batches(batch)))


def test_all_examples_are_the_whole_split(span_store: Store) -> None:
    examples = range(len(task_of_states(span_store)["train"]))
    both = [source["train"].batches(4, seed=3) for source in (span_store, Subset(span_store, examples))]
    for one, other in zip(*both, strict=True):
        assert one.hidden.equal(other.hidden)
        assert one.targets.equal(other.targets)


def test_heads_are_fitted_on_the_portion_and_judged_on_all_of_inner(label_store: Store) -> None:
    portion = Subset(label_store, {0, 1, 2})
    few, all_of_it = (fit(["probe"], states, epochs=1, batch=8)[0] for states in (portion, label_store))
    assert len(few.inner) == len(all_of_it.inner)
    assert few.history != all_of_it.history
    assert portion["dev"].table().example.tolist() == label_store["dev"].table().example.tolist()
