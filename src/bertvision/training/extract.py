"""Run the encoder once over all splits and keep every layer's states.

Doing the same again does nothing; an interrupted extraction goes on after its last whole shard; a
store made from anything else is refused, never mixed. Several processes may each make a share of the
shards without a coordinator; ``finalize`` checks that all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertvision.core.config import ExtractConfig, with_settings
from bertvision.core.errors import BadInput
from bertvision.core.files import file_sha256, write_json
from bertvision.core.progress import log_line
from bertvision.core.records import SPLITS
from bertvision.encoders.loading import Encoder
from bertvision.store.fingerprint import differences
from bertvision.store.lock import LOCK, writing
from bertvision.store.store import MANIFEST, Damage, Store, check_format, find_damage, recorded
from bertvision.store.writer import ShardRecord, StoreWriter, record_name
from bertvision.tasks.task import Task, read_task, save_task
from bertvision.training.estimate import log_estimate
from bertvision.training.fingerprints import split_record, store_fingerprint, store_manifest, stored_config
from bertvision.training.inputs import TaskWindows
from bertvision.training.shard_builder import STATISTICS, ExtractionPlan, make_shards

STARTED = "started.json"
"""Fingerprint of a store that is being written."""

MakeShards = Callable[[ExtractionPlan, StoreWriter], Sequence[ShardRecord]]
"""Makes all shards of a plan and returns their records."""


def extract(
    encoder: Encoder,
    task: Task,
    to: str | Path,
    config: ExtractConfig | None = None,
    windows: TaskWindows | None = None,
    **settings: Any,
) -> Store:
    """States of every window of every split, under ``to``: a folder or a URL.

    ``windows`` are the task's, where they are made already.
    """
    return extract_with(_make_here, encoder, task, to, with_settings(config or ExtractConfig(), **settings), windows)


def extract_with(
    make: MakeShards,
    encoder: Encoder,
    task: Task,
    to: str | Path,
    config: ExtractConfig,
    windows: TaskWindows | None = None,
) -> Store:
    """The same with the shards made by ``make``; the rest is done here."""
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, config, windows)
    if plan is None:
        return Store(to)
    log_estimate(plan, writer, here=make is _make_here)
    with writing(writer.folder):
        _clear_parts(writer.folder)  # of whoever was killed here
        _start(writer, plan)
        _finish(writer, plan, make(plan, writer))
    return Store(to)


def _make_here(plan: ExtractionPlan, writer: StoreWriter) -> list[ShardRecord]:
    return make_shards(plan, range(len(plan.jobs)), writer)


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
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, with_settings(config or ExtractConfig(), **settings))
    if plan is None:
        return 0
    log_estimate(plan, writer)
    with writing(writer.folder, shared=True), writing(writer.folder, f"{LOCK}.{part}-of-{parts}"):
        _start(writer, plan)
        return len(make_shards(plan, range(part - 1, len(plan.jobs), parts), writer))


def finalize(
    encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig | None = None, **settings: Any
) -> Store:
    """Check that every planned shard is there, and write the manifest."""
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, with_settings(config or ExtractConfig(), **settings))
    if plan is None:
        return Store(to)
    with writing(writer.folder):
        records, missing = [], []
        for job in plan.jobs:
            record = writer.record(job.name)
            if record is None:
                missing.append(job.name)
            else:
                records.append(record)
        if missing:
            raise BadInput(
                f"store {to} lacks {len(missing)} of {len(plan.jobs)} shards, the first is {missing[0]}; "
                "run extract --shard i/n again where it failed, then --finalize"
            )
        _start(writer, plan)
        _finish(writer, plan, records)
    return Store(to)


def _open_plan(
    encoder: Encoder, task: Task, writer: StoreWriter, config: ExtractConfig, windows: TaskWindows | None = None
) -> ExtractionPlan | None:
    """The plan of a store that is still to be made, None where it is finished; another's place is refused."""
    fingerprint = store_fingerprint(encoder, task, config)
    if _is_finished(writer, fingerprint):
        return None
    plan = ExtractionPlan(encoder, task, config, fingerprint, windows)
    _check_claim(writer, fingerprint)
    return plan


def _is_finished(writer: StoreWriter, fingerprint: dict[str, Any]) -> bool:
    try:
        manifest = writer.document(MANIFEST)
    except (OSError, ValueError) as error:
        name = f"{writer.name}/{MANIFEST}"
        raise BadInput(f"{name} cannot be read: {error}; delete the store and extract again") from error
    if manifest is None:
        return False
    check_format(manifest, f"{writer.name}/{MANIFEST}")
    _refuse_other(writer, manifest["fingerprint"], fingerprint)
    if any((writer.folder / name).exists() for name in (STARTED, LOCK)):
        with suppress(BadInput), writing(writer.folder):  # its writer was killed at the very end, or is at it
            _tidy(writer)
    return True


def _check_claim(writer: StoreWriter, fingerprint: dict[str, Any]) -> None:
    """The place must be new, begun by the very same extraction, or by another that got no shard done."""
    folder = writer.folder
    try:
        started = writer.document(STARTED)
    except (OSError, ValueError) as error:
        raise BadInput(f"{writer.name}/{STARTED} cannot be read: {error}; delete it and extract again") from error
    if started is not None:
        if writer.remote or any(folder.glob("*/shard-*.safetensors")):
            _refuse_other(writer, started, fingerprint)
    elif not writer.remote and folder.exists() and (not folder.is_dir() or _has_foreign_files(folder)):
        raise BadInput(f"{folder} is not empty and is no store; choose an empty folder with --to")


def _has_foreign_files(folder: Path) -> bool:
    """Whether there are files other than those of a process that begins just now."""
    names = [child.name for child in folder.iterdir()]
    return not all(name.startswith(LOCK) or name.endswith(".part") for name in names)


def _start(writer: StoreWriter, plan: ExtractionPlan) -> None:
    if writer.document(STARTED) not in (None, plan.fingerprint):
        writer.remove(STATISTICS)  # another's
    writer.record_url()
    write_json(writer.folder / STARTED, plan.fingerprint)
    writer.upload(STARTED)
    try:
        save_task(plan.task, writer.folder / "task")
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"cannot write a store at {writer.name}: {reason}; choose another --to") from error
    for name in ("task.json", *(f"{split}.jsonl" for split in SPLITS)):
        writer.upload(f"task/{name}")


def _refuse_other(writer: StoreWriter, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = differences(stored, wanted)
    if found:
        raise BadInput(f"store {writer.name} was made from something else: {'; '.join(found)}; choose another folder")


def _finish(writer: StoreWriter, plan: ExtractionPlan, records: Sequence[ShardRecord]) -> None:
    """The manifest, last of all that counts; then what was only there for the making goes."""
    by_name = {record["file"]: record for record in records}
    manifest = store_manifest(plan.encoder, plan.task, plan.config, plan.fingerprint) | {"splits": {}}
    for split in SPLITS:
        shards = [by_name[job.name] for job in plan.jobs if job.split == split]
        manifest["splits"][split] = split_record(shards, plan.tokens(split))
    statistics = writer.fetch(STATISTICS)
    if statistics is not None:
        manifest["statistics"] = {"file": STATISTICS, "sha256": file_sha256(statistics)}
    manifest["seconds"] = sum(float(record["seconds"]) for record in records)
    write_json(writer.folder / MANIFEST, manifest)
    writer.upload(MANIFEST)
    _tidy(writer)


def _tidy(writer: StoreWriter) -> None:
    """Remove what was only there for the making; ``started.json`` last, as the mark of a process killed at this."""
    for split in writer.document(MANIFEST)["splits"].values():
        for record in split["shards"]:
            writer.remove(record_name(record["file"]))
    _clear_parts(writer.folder)
    for lock in writer.folder.glob(f"{LOCK}.*"):
        lock.unlink(missing_ok=True)
    writer.remove(STARTED)


def _clear_parts(folder: Path) -> None:
    """Files that were never finished: ours, and those that safetensors begins under a name of its own."""
    for pattern in ("*.part", ".tmp*"):
        for part in folder.rglob(pattern):
            part.unlink(missing_ok=True)


def repair(folder: str | Path, encoder: Encoder) -> list[Damage]:
    """Make damaged files again; what was damaged.

    On the machine that made it a shard comes out the same to the last byte; elsewhere it may differ in
    the last bit of a state, and then its new checksum is recorded.
    """
    store = Store(folder)
    task, config = read_task(store.folder / "task"), stored_config(store.manifest["fingerprint"])
    found = differences(store.manifest["fingerprint"], store_fingerprint(encoder, task, config))
    if found:
        raise BadInput(
            f"store {folder} was made from something else: {'; '.join(found)}; give --encoder E, what it was made with"
        )
    writer = StoreWriter(store.remote.url if store.remote else store.folder)
    with writing(writer.folder):
        broken = find_damage(store)
        plan = ExtractionPlan(encoder, task, config)
        names = [damage.file for damage in broken]
        if STATISTICS in names:
            writer.remove(STATISTICS)
        made = make_shards(plan, [number for number, job in enumerate(plan.jobs) if job.name in names], writer)
        if STATISTICS in names:
            path = writer.folder / STATISTICS
            made.append({"file": STATISTICS, "sha256": file_sha256(path), "bytes": path.stat().st_size})
        _record_changes(writer, store.manifest, made)
    return broken


def _record_changes(writer: StoreWriter, manifest: dict[str, Any], made: Sequence[ShardRecord]) -> None:
    """Write the checksums of files that came out otherwise into the manifest."""
    by_name = {record["file"]: record for record in recorded(manifest)}
    changed = [record for record in made if record["sha256"] != by_name[record["file"]]["sha256"]]
    for record in changed:
        by_name[record["file"]].update(sha256=record["sha256"], bytes=record["bytes"])
        log_line(f"{record['file']}: made on another machine, or with other threads; it is equal up to rounding")
    if changed:
        write_json(writer.folder / MANIFEST, manifest)
        writer.upload(MANIFEST)
    for record in made:
        writer.remove(record_name(record["file"]))
