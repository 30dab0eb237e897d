"""Run the encoder once over all splits and store the hidden states of every layer.

A finished store is reused; an interrupted extraction resumes after its last complete shard; a store that differs in its
data only is replaced by one that takes over the states of all windows that are still there (``store.previous``); any
other store is an error. Several processes can make shards of one store without a coordinator; ``finalize``
checks that all shards exist and writes the manifest.
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
from bertvision.core.summaries import APART
from bertvision.encoders.loading import Encoder
from bertvision.store.fingerprint import differences
from bertvision.store.lock import LOCK, writing
from bertvision.store.previous import delete_outdated, delete_replaced, find_replaced, replacing
from bertvision.store.shard_file import read_shard, write_shard
from bertvision.store.store import MANIFEST, Damage, Store, check_format, find_damage, recorded
from bertvision.store.stored_windows import StoredWindows
from bertvision.store.writer import ShardRecord, StoreWriter, record_name
from bertvision.tasks.task import Task, read_task, save_task
from bertvision.training.estimate import log_estimate
from bertvision.training.fingerprints import split_record, store_fingerprint, store_manifest, stored_config
from bertvision.training.inputs import TaskWindows
from bertvision.training.pair_texts import refuse_parts
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
    replace: bool = False,
    **settings: Any,
) -> Store:
    """Store the hidden states of every window of every split.

    Args:
        encoder: The encoder, tuned or not.
        task: All splits of the task are stored.
        to: The store's folder, or a URL that fsspec can write (``s3://...``).
        config: Settings. Default: ``ExtractConfig()``.
        windows: Tokenised splits of the task, to avoid tokenising them again.
        replace: Whether a store of other inputs in ``to`` may be deleted, as in a run's own folder.
        **settings: Fields of :class:`ExtractConfig` that override ``config``, e.g. ``dtype="int8"``.

    Returns:
        The finished store. A store that already holds the same states is opened without any computation. From a store
        that differs in its data only, the states of equal windows are copied, and the new store replaces it.

    Raises:
        BadInput: ``to`` holds a store of another encoder or setting, or of data that have little in common with the
            task's; or the disk is too small.

    Example:
        >>> store = extract(tuned, task, "states", layers="last4")  # doctest: +SKIP
    """
    config = with_settings(config or ExtractConfig(), **settings)
    writer = StoreWriter(to)
    local = writer.remote is None
    plan = _open_plan(encoder, task, writer, config, windows, reuse=local, replace=replace and local)
    return Store(to) if plan is None else _extract(plan, writer, _make_locally)


def extract_with(make: MakeShards, encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig) -> Store:
    """Extract with shards made by ``make``, in other processes."""
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, config)
    return Store(to) if plan is None else _extract(plan, writer, make)


def _extract(plan: ExtractionPlan, writer: StoreWriter, make: MakeShards) -> Store:
    log_estimate(plan, _disk(plan, writer), local=make is _make_locally and plan.earlier is None)
    if plan.earlier is not None:
        _log_reuse(plan)
    with replacing(writer.folder, plan.earlier), writing(writer.folder):
        _clear_parts(writer.folder)  # left by a killed process
        _start(writer, plan)
        _finish(writer, plan, make(plan, writer))
    return Store(writer.name)


def _disk(plan: ExtractionPlan, writer: StoreWriter) -> StoreWriter:
    """Where space is needed: a store that will be moved aside is no part of the new one."""
    in_place = plan.earlier is not None and plan.earlier.folder == writer.folder
    return StoreWriter(writer.folder.resolve().parent) if in_place else writer


def _log_reuse(plan: ExtractionPlan) -> None:
    texts = "" if plan.texts is None else f"{len(plan.texts.texts):,} texts of pairs, each by itself"
    if plan.config.pairs == APART:
        log_line(f"extract: the encoder runs on {texts}")
        return
    total, stored = sum(map(len, plan.windows.values())), plan.count_stored()
    what = "windows" if plan.task.kind == "span" else "texts"
    apart = texts and f", and on {texts}"
    log_line(
        f"extract: {stored:,} of {total:,} {what} are already stored; the encoder runs on {total - stored:,}{apart}"
    )


def _make_locally(plan: ExtractionPlan, writer: StoreWriter) -> list[ShardRecord]:
    return make_shards(plan, range(len(plan.jobs)), writer)


def extract_share(
    encoder: Encoder,
    task: Task,
    to: str | Path,
    share: tuple[int, int],
    config: ExtractConfig | None = None,
    **settings: Any,
) -> int:
    """Write part i of n of the shards, every n-th from the i-th on, and return how many; 0 if the store is complete.

    ``share`` is (i, n). Call :func:`finalize` when all parts are done.
    """
    part, parts = share
    if not 1 <= part <= parts:
        raise BadInput(f"--shard {part}/{parts}: expected i/n with i from 1 to n, e.g. 2/8 for part 2 of 8")
    config = with_settings(config or ExtractConfig(), **settings)
    refuse_parts(config, f"--shard {part}/{parts}")
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, config)
    if plan is None:
        return 0
    log_estimate(plan, writer)
    with writing(writer.folder, shared=True), writing(writer.folder, f"{LOCK}.{part}-of-{parts}"):
        _start(writer, plan)
        return len(make_shards(plan, range(part - 1, len(plan.jobs), parts), writer))


def finalize(
    encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig | None = None, **settings: Any
) -> Store:
    """Check that every planned shard exists, and write the manifest."""
    config = with_settings(config or ExtractConfig(), **settings)
    refuse_parts(config, "--finalize")
    writer = StoreWriter(to)
    plan = _open_plan(encoder, task, writer, config)
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
                f"store {to} has {len(missing)} of {len(plan.jobs)} shards missing, the first is {missing[0]}; "
                "rerun extract --shard i/n for the part that failed, then --finalize"
            )
        _start(writer, plan)
        _finish(writer, plan, records)
    return Store(to)


def _open_plan(
    encoder: Encoder,
    task: Task,
    writer: StoreWriter,
    config: ExtractConfig,
    windows: TaskWindows | None = None,
    reuse: bool = False,
    replace: bool = False,
) -> ExtractionPlan | None:
    """The plan of an extraction, or None if the store is finished; an error if the folder is in use otherwise.

    With ``reuse``, a store that differs in its data only is not an error, but the source of states.
    """
    fingerprint = store_fingerprint(encoder, task, config)
    if replace and delete_outdated(writer.folder, fingerprint):
        log_line(f"extract: the store in {writer.name} was made from other inputs and is made again")
    earlier = find_replaced(writer.folder, fingerprint) if reuse else None
    if earlier is None and _is_finished(writer, fingerprint):
        return None
    plan = ExtractionPlan(encoder, task, config, fingerprint, windows)
    if earlier != writer.folder:
        _check_target(writer, fingerprint, restart=earlier is not None)
    if earlier is not None:
        plan.earlier = StoredWindows(earlier)
        if earlier == writer.folder and not replace:
            _check_overlap(writer, plan, plan.earlier)
    return plan


def _check_overlap(writer: StoreWriter, plan: ExtractionPlan, earlier: StoredWindows) -> None:
    """Data with little in common are not an edited table but another one, whose store must not be deleted."""
    least = min(len(earlier), sum(map(len, plan.windows.values())))
    if not least or 2 * plan.count_stored() < least:
        _refuse_other(writer, earlier.manifest["fingerprint"], plan.fingerprint)


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
        with suppress(BadInput), writing(writer.folder):  # its writer was killed while tidying, or is still at it
            _tidy(writer)
    if not writer.remote:
        delete_replaced(writer.folder, fingerprint)
    return True


def _check_target(writer: StoreWriter, fingerprint: dict[str, Any], restart: bool = False) -> None:
    """The target must be empty, begun by the same extraction, or by another one that completed no shard.

    ``restart`` allows an extraction of other data, whose shards can be made again from a store that was moved aside.
    """
    folder = writer.folder
    try:
        started = writer.document(STARTED)
    except (OSError, ValueError) as error:
        raise BadInput(f"{writer.name}/{STARTED} cannot be read: {error}; delete it and extract again") from error
    if started is not None:
        if not restart and (writer.remote or any(folder.glob("*/shard-*.safetensors"))):
            _refuse_other(writer, started, fingerprint)
    elif not writer.remote and folder.exists():
        # Locks and .part files may belong to a process that is starting the same extraction.
        names = [child.name for child in folder.iterdir()] if folder.is_dir() else [folder.name]
        if not all(name.startswith(LOCK) or name.endswith(".part") for name in names):
            raise BadInput(f"{folder} is not empty and not a store; choose an empty folder with --to")


def _start(writer: StoreWriter, plan: ExtractionPlan) -> None:
    """Write fingerprint and task before the first shard."""
    if writer.document(STARTED) not in (None, plan.fingerprint):
        writer.remove(STATISTICS)  # left by another extraction
        if plan.earlier is not None:
            for shard in writer.folder.glob("*/shard-*"):  # of data that have changed again
                shard.unlink()
    writer.record_url()
    write_json(writer.folder / STARTED, plan.fingerprint)
    writer.upload(STARTED)
    try:
        save_task(plan.task, writer.folder / "task")
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"cannot write a store at {writer.name}: {reason}; choose another folder with --to") from error
    for name in ("task.json", *(f"{split}.jsonl" for split in SPLITS)):
        writer.upload(f"task/{name}")


def _refuse_other(writer: StoreWriter, stored: dict[str, Any], expected: dict[str, Any]) -> None:
    changes = differences(stored, expected)
    if changes:
        raise BadInput(f"store {writer.name} was made from other inputs: {'; '.join(changes)}; choose another folder")


def _finish(writer: StoreWriter, plan: ExtractionPlan, records: Sequence[ShardRecord]) -> None:
    """Write the manifest, then remove temporary files."""
    by_name = {record["file"]: record for record in records}
    manifest = store_manifest(plan.encoder, plan.task, plan.config, plan.fingerprint) | {"splits": {}}
    for split in SPLITS:
        shards = [by_name[job.name] for job in plan.jobs if job.split == split]
        manifest["splits"][split] = split_record(shards, plan.tokens(split))
    statistics = writer.fetch(STATISTICS)
    if statistics is not None:
        manifest["statistics"] = {"file": STATISTICS, "sha256": file_sha256(statistics), **_statistics_origin(plan)}
    manifest["seconds"] = sum(float(record["seconds"]) for record in records)
    write_json(writer.folder / MANIFEST, manifest)
    writer.upload(MANIFEST)
    _tidy(writer)


def _statistics_origin(plan: ExtractionPlan) -> dict[str, str]:
    """The data from which the statistics of a store that takes over states were computed, if not from its own."""
    if plan.earlier is None or not plan.earlier.statistics():
        return {}
    earlier = plan.earlier.manifest
    return {"data": earlier["statistics"].get("data", earlier["fingerprint"]["data"])}


def _tidy(writer: StoreWriter) -> None:
    """Remove temporary files; ``started.json`` last, so that an interrupted tidy-up is repeated."""
    for split in writer.document(MANIFEST)["splits"].values():
        for record in split["shards"]:
            writer.remove(record_name(record["file"]))
    _clear_parts(writer.folder)
    for lock in writer.folder.glob(f"{LOCK}.*"):
        lock.unlink(missing_ok=True)
    writer.remove(STARTED)


def _clear_parts(folder: Path) -> None:
    """Remove incomplete files, including the temporary ones of safetensors."""
    for pattern in ("*.part", ".tmp*"):
        for part in folder.rglob(pattern):
            part.unlink(missing_ok=True)


def repair(folder: str | Path, encoder: Encoder) -> list[Damage]:
    """Recompute the damaged files of a store; return the damage that was found.

    On the machine that made the store the files come out identical. Elsewhere states may differ by rounding; then
    the new checksums are recorded.
    """
    store = Store(folder)
    task, config = read_task(store.folder / "task"), stored_config(store.manifest["fingerprint"])
    changes = differences(store.manifest["fingerprint"], store_fingerprint(encoder, task, config))
    if changes:
        raise BadInput(
            f"store {folder} was made from other inputs: {'; '.join(changes)}; give the encoder that made it "
            "with --encoder E"
        )
    writer = StoreWriter(store.remote.url if store.remote else store.folder)
    with writing(writer.folder):
        damaged = find_damage(store)
        plan = ExtractionPlan(encoder, task, config)
        names = [damage.file for damage in damaged]
        if STATISTICS in names:
            _restore_statistics(store, writer, names)
        made = make_shards(plan, [number for number, job in enumerate(plan.jobs) if job.name in names], writer)
        if STATISTICS in names:
            path = writer.folder / STATISTICS
            made.append({"file": STATISTICS, "sha256": file_sha256(path), "bytes": path.stat().st_size})
        _record_changes(writer, store.manifest, made)
    return damaged


def _restore_statistics(store: Store, writer: StoreWriter, damaged: Sequence[str]) -> None:
    """Take the statistics from an intact shard; if there is none, they are computed again with all shards."""
    writer.remove(STATISTICS)
    intact = [record for split in store.manifest["splits"].values() for record in split["shards"]]
    intact = [record for record in intact if record["file"] not in damaged]
    if intact:
        shard = read_shard(store.shard_path(intact[0]))
        write_shard({name: shard[name].clone() for name in ("mean", "spread")}, writer.folder / STATISTICS)
        writer.upload(STATISTICS)


def _record_changes(writer: StoreWriter, manifest: dict[str, Any], made: Sequence[ShardRecord]) -> None:
    """Update the checksums of files that differ from the manifest."""
    by_name = {record["file"]: record for record in recorded(manifest)}
    changed = [record for record in made if record["sha256"] != by_name[record["file"]]["sha256"]]
    for record in changed:
        by_name[record["file"]].update(sha256=record["sha256"], bytes=record["bytes"])
        by_name[record["file"]].pop("data", None)  # statistics that were taken over are those of these data now
        log_line(f"{record['file']}: recomputed on another machine or in other batches; equal up to rounding")
    if changed:
        write_json(writer.folder / MANIFEST, manifest)
        writer.upload(MANIFEST)
    for record in made:
        writer.remove(record_name(record["file"]))
