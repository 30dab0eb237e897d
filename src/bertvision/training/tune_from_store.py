"""Tune the upper layers of an encoder on stored states of the frozen lower ones, for as many epochs as wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertvision.core.config import ExtractConfig, TuneConfig
from bertvision.core.errors import BadInput
from bertvision.core.runtime import choose_device, say, seeded
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import still_below
from bertvision.encoders.tail import started_at
from bertvision.store.fingerprint import differences
from bertvision.store.store import MANIFEST, Store
from bertvision.store.writer import Site
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.fingerprints import store_fingerprint
from bertvision.training.inputs import split_windows
from bertvision.training.prefix import PrefixTuning, begun_batches
from bertvision.training.tune_loop import resume, run_batches
from bertvision.training.tune_setup import finished, new_head, settled, tune_hash

ASIDE = ("dtype", "layers", "plan")
"""What a store may differ in: it need not have been made for this."""


def tune_from_store(
    encoder: Encoder,
    task: Task,
    place: str | Path,
    config: TuneConfig | None = None,
    saved: Path | None = None,
    **settings: Any,
) -> Encoder:
    """As :func:`bertvision.tune` with ``method="freeze:k=K"``, reading state K from the store at ``place``.

    ``place`` is a folder or a URL. A store that is not there yet is made, of state K alone. The outcome is
    an ordinary encoder.
    """
    config = settled(config, encoder, task, **settings)
    k = still_below(config.method) - 1
    if k < 0:
        raise BadInput(f"--from-store: method {config.method} trains below its states; give freeze:k=K")
    store = _store_of(encoder, task, k, place)
    windows, split = split_windows(task, "train", encoder), store["train"]
    made_from = f"{tune_hash(encoder, task, config)}:{store.id}"
    steps = round(config.epochs * split.batch_count(config.batch))
    with seeded(config.seed):
        head, copy = new_head(encoder, task, config), encoder.copy()
        with started_at(copy.model, k) as feed:
            tuning = PrefixTuning(copy, head, config, steps, choose_device(config.device), below=k, feed=feed)
            resume(tuning, saved, made_from)
            batches = begun_batches(split, windows, store.layers.index(k), config, tuning.step, steps)
            run_batches(tuning, batches, steps, saved, made_from)
    if saved is not None:
        saved.unlink(missing_ok=True)
    return finished(tuning, task, "whole run")


def _store_of(encoder: Encoder, task: Task, k: int, place: str | Path) -> Store:
    """The store at a place, if it holds what is needed; else a new one of state ``k`` alone."""
    config = ExtractConfig(layers=str(k))
    if not Site(place).has(MANIFEST):
        say(f"tune: writing state {k} of every token once ({place})")
        return extract(encoder, task, place, config)
    store = Store(place)
    wanted = store_fingerprint(encoder, task, config)
    found = differences(
        *(
            {key: value for key, value in one.items() if key not in ASIDE}
            for one in (store.manifest["fingerprint"], wanted)
        )
    )
    if found:
        raise BadInput(f"store {place} was made from something else: {'; '.join(found)}; choose another --from-store")
    if k not in store.layers:
        raise BadInput(f"store {place} holds the states {list(store.layers)}, expected {k} among them; choose another")
    return store
