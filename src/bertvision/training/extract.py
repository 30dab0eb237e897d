"""Run the encoder once over all splits and keep every layer's states.

Doing the same again does nothing; an interrupted extraction goes on after its last whole shard; a
store made from anything else is refused, never mixed. Several processes may each make a share of the
shards, with nobody to direct them; whoever finalises checks that all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertvision.core.config import ExtractConfig, updated
from bertvision.core.errors import BadInput
from bertvision.core.files import file_sha256, write_json
from bertvision.core.progress import log_line
from bertvision.core.records import SPLITS
from bertvision.encoders.loading import Encoder
from bertvision.store.fingerprint import differences
from bertvision.store.lock import LOCK, writing
from bertvision.store.store import MANIFEST, Damage, Store, check_format, damages, recorded
from bertvision.store.writer import Entry, Site, entry_name
from bertvision.tasks.task import Task, read_task, save_task
from bertvision.training.estimate import announce
from bertvision.training.fingerprints import split_facts, store_fingerprint, store_manifest, stored_config
from bertvision.training.shard_builder import STATISTICS, Work, make_shards

STARTED = "started.json"
"""Fingerprint of a store that is being written."""

Making = Callable[[Work, Site], Sequence[Entry]]
"""Makes all shards of a work at a site, and tells what they are."""


def extract(
    encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig | None = None, **settings: Any
) -> Store:
    """States of every window of every split, under ``to``: a folder or a URL."""
    return extract_by(_make_here, encoder, task, to, updated(config or ExtractConfig(), **settings))


def extract_by(make: Making, encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig) -> Store:
    """The same with the shards made by whatever ``make`` sets to work; the rest is done here."""
    site = Site(to)
    fingerprint = store_fingerprint(encoder, task, config)
    if _finished(site, fingerprint):
        return Store(to)
    work = Work(encoder, task, config, fingerprint)
    _check_claim(site, fingerprint)
    announce(work, site, here=make is _make_here)
    with writing(site.folder):
        _clear_parts(site.folder)  # of whoever was killed here
        _start(site, work)
        _finish(site, work, make(work, site))
    return Store(to)


def _make_here(work: Work, site: Site) -> list[Entry]:
    return make_shards(work, range(len(work.jobs)), site)


def extract_share(
    encoder: Encoder,
    task: Task,
    to: str | Path,
    share: tuple[int, int],
    config: ExtractConfig | None = None,
    **settings: Any,
) -> int:
    """Every n-th shard, from the i-th on (``share`` is i, n with i from 1); how many that are. Finalise at the end."""
    part, parts = share
    if not 1 <= part <= parts:
        raise BadInput(f"--shard {part}/{parts}: expected i/n with i from 1 to n, e.g. 2/8")
    config, site = updated(config or ExtractConfig(), **settings), Site(to)
    fingerprint = store_fingerprint(encoder, task, config)
    if _finished(site, fingerprint):
        return 0
    work = Work(encoder, task, config, fingerprint)
    _check_claim(site, fingerprint)
    announce(work, site)
    with writing(site.folder, shared=True), writing(site.folder, f"{LOCK}.{part}-of-{parts}"):
        _start(site, work)
        return len(make_shards(work, range(part - 1, len(work.jobs), parts), site))


def finalize(
    encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig | None = None, **settings: Any
) -> Store:
    """Check that every planned shard is there, and write the manifest."""
    config, site = updated(config or ExtractConfig(), **settings), Site(to)
    fingerprint = store_fingerprint(encoder, task, config)
    if _finished(site, fingerprint):
        return Store(to)
    work = Work(encoder, task, config, fingerprint)
    _check_claim(site, fingerprint)
    with writing(site.folder):
        found = {job.name: site.entry(job.name) for job in work.jobs}
        missing = [name for name, entry in found.items() if entry is None]
        if missing:
            raise BadInput(
                f"store {to} lacks {len(missing)} of {len(found)} shards, the first is {missing[0]}; "
                "run extract --shard i/n again where it failed, then --finalize"
            )
        _start(site, work)
        _finish(site, work, [entry for entry in found.values() if entry is not None])
    return Store(to)


def _finished(site: Site, fingerprint: dict[str, Any]) -> bool:
    try:
        manifest = site.document(MANIFEST)
    except (OSError, ValueError) as error:
        raise BadInput(f"{site.name}/{MANIFEST} cannot be read: {error}; delete the store and extract again") from error
    if manifest is None:
        return False
    check_format(manifest, f"{site.name}/{MANIFEST}")
    _refuse_other(site, manifest["fingerprint"], fingerprint)
    if any((site.folder / left).exists() for left in (STARTED, LOCK)):
        with suppress(BadInput), writing(site.folder):  # its writer was killed at the very end, or is at it
            _tidy(site)
    return True


def _check_claim(site: Site, fingerprint: dict[str, Any]) -> None:
    """The place must be new, begun by the very same extraction, or by another that got no shard done."""
    folder = site.folder
    try:
        started = site.document(STARTED)
    except (OSError, ValueError) as error:
        raise BadInput(f"{site.name}/{STARTED} cannot be read: {error}; delete it and extract again") from error
    if started is not None:
        if site.remote or any(folder.glob("*/shard-*.safetensors")):
            _refuse_other(site, started, fingerprint)
    elif not site.remote and folder.exists() and (not folder.is_dir() or _strangers(folder)):
        raise BadInput(f"{folder} is not empty and is no store; choose an empty folder with --to")


def _strangers(folder: Path) -> list[str]:
    """Files that are no sign of another process that begins just now."""
    names = [child.name for child in folder.iterdir()]
    return [name for name in names if not (name.startswith(LOCK) or name.endswith(".part"))]


def _start(site: Site, work: Work) -> None:
    if site.document(STARTED) not in (None, work.fingerprint):
        site.remove(STATISTICS)  # another's
    site.sign()
    write_json(site.folder / STARTED, work.fingerprint)
    site.send(STARTED)
    try:
        save_task(work.task, site.folder / "task")
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"cannot write a store at {site.name}: {reason}; choose another --to") from error
    for name in ("task.json", *(f"{split}.jsonl" for split in SPLITS)):
        site.send(f"task/{name}")


def _refuse_other(site: Site, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = differences(stored, wanted)
    if found:
        raise BadInput(f"store {site.name} was made from something else: {'; '.join(found)}; choose another folder")


def _finish(site: Site, work: Work, entries: Sequence[Entry]) -> None:
    """The manifest, last of all that counts; then what was only there for the making goes."""
    by_name = {entry["file"]: entry for entry in entries}
    splits = {
        split: split_facts([by_name[job.name] for job in work.jobs if job.split == split], work.tokens(split))
        for split in SPLITS
    }
    manifest = store_manifest(work.encoder, work.task, work.config, work.fingerprint) | {"splits": splits}
    statistics = site.fetch(STATISTICS)
    if statistics is not None:
        manifest["statistics"] = {"file": STATISTICS, "sha256": file_sha256(statistics)}
    manifest["seconds"] = sum(float(entry["seconds"]) for entry in entries)
    write_json(site.folder / MANIFEST, manifest)
    site.send(MANIFEST)
    _tidy(site)


def _tidy(site: Site) -> None:
    """Remove what was only there for the making; ``started.json`` last: it shows where somebody was killed at this."""
    for split in site.document(MANIFEST)["splits"].values():
        for entry in split["shards"]:
            site.remove(entry_name(entry["file"]))
    _clear_parts(site.folder)
    for left in site.folder.glob(f"{LOCK}.*"):
        left.unlink(missing_ok=True)
    site.remove(STARTED)


def _clear_parts(folder: Path) -> None:
    """Files that were never finished: ours, and those that safetensors begins under a name of its own."""
    for pattern in ("*.part", ".tmp*"):
        for part in folder.rglob(pattern):
            part.unlink(missing_ok=True)


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
        log_line(f"{entry['file']}: made on another machine, or with other threads; it is equal up to rounding")
    if others:
        write_json(site.folder / MANIFEST, manifest)
        site.send(MANIFEST)
    for entry in made:
        site.remove(entry_name(entry["file"]))
