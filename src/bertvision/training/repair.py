"""Make the damaged shards of a store again, and only those."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.runtime import file_sha256, say, write_json
from bertvision.encoders.loading import Encoder
from bertvision.store.fingerprint import differences
from bertvision.store.lock import writing
from bertvision.store.store import MANIFEST, Store
from bertvision.store.verify import Damage, damages, recorded
from bertvision.store.writer import Entry, Site, entry_name
from bertvision.tasks.task import read_task
from bertvision.training.fingerprints import store_fingerprint, stored_config
from bertvision.training.shard_builder import STATISTICS, Work, make_shards


def repair(place: str | Path, encoder: Encoder) -> list[Damage]:
    """What was damaged and has been made again.

    On the machine that made it a shard comes out the same to the last byte; elsewhere it may differ in
    the last bit of a state, and then its new checksum is recorded.
    """
    store = Store(place)
    task, config = read_task(store.folder / "task"), stored_config(store.manifest["fingerprint"])
    found = differences(store.manifest["fingerprint"], store_fingerprint(encoder, task, config))
    if found:
        raise BadInput(
            f"store {place} was made from something else: {'; '.join(found)}; give --encoder E, what it was made with"
        )
    site = Site(store.remote.url if store.remote else store.folder)
    with writing(site.folder):
        broken = damages(store)
        work = Work(encoder, task, config)
        names = [damage.file for damage in broken]
        if STATISTICS in names:
            site.remove(STATISTICS)
        numbers = [number for number, job in enumerate(work.jobs) if job.name in names]
        made = make_shards(work, numbers, site)
        if STATISTICS in names:
            path = site.folder / STATISTICS
            made.append({"file": STATISTICS, "sha256": file_sha256(path), "bytes": path.stat().st_size})
        _note_other_bytes(site, store.manifest, made)
    return broken


def _note_other_bytes(site: Site, manifest: dict[str, Any], made: Sequence[Entry]) -> None:
    known = {entry["file"]: entry for entry in recorded(manifest)}
    others = [entry for entry in made if entry["sha256"] != known[entry["file"]]["sha256"]]
    for entry in others:
        known[entry["file"]].update(sha256=entry["sha256"], bytes=entry["bytes"])
        say(f"{entry['file']}: made on another machine, or with other threads; it is equal up to rounding")
    if others:
        write_json(site.folder / MANIFEST, manifest)
        site.send(MANIFEST)
    for entry in made:
        site.remove(entry_name(entry["file"]))
