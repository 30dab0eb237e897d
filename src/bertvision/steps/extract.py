"""Run the encoder once over all splits and keep every layer's states.

Doing the same again does nothing; an interrupted extraction goes on after its last whole shard; a
store made from anything else is refused, never mixed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.config import ExtractConfig, updated
from bertvision.encoder.load import Encoder
from bertvision.errors import BadInput
from bertvision.records import SPLITS, Window
from bertvision.registry import choose_layers
from bertvision.runtime import Timer, file_sha256, progress_bar, write_json
from bertvision.steps.inputs import split_windows
from bertvision.steps.manifest import store_fingerprint, store_manifest
from bertvision.steps.shard_maker import ShardMaker
from bertvision.store.fingerprint import differences
from bertvision.store.shards import Shard, read_shard, write_shard
from bertvision.store.store import MANIFEST, Store, read_manifest
from bertvision.store.tokens import kept_lengths
from bertvision.tasks.base import Task, save_task

STARTED = "started.json"
"""Fingerprint of a store that is being written."""

STATISTICS = "codec.safetensors"
"""What int8 was scaled by; shards have it too, so that each can be read alone."""


def extract(
    encoder: Encoder, task: Task, to: str | Path, config: ExtractConfig | None = None, **settings: Any
) -> Store:
    """States of every window of every split, on disk under ``to``."""
    config = updated(config or ExtractConfig(), **settings)
    folder, timer = Path(to), Timer()
    fingerprint = store_fingerprint(encoder, task, config)
    if _finished(folder, fingerprint):
        return Store(folder)
    # All that can be wrong with the input shows before anything is written.
    windows = {split: split_windows(task, split, encoder) for split in SPLITS}
    layers = choose_layers(config.layers, encoder.layers)
    runner = ShardMaker(encoder, layers, config, task.kind)
    _start(folder, fingerprint, task)
    runner.use(_statistics(folder, runner, windows["train"]))
    splits = {split: _write_split(folder / split, windows[split], runner, config) for split in SPLITS}
    manifest = store_manifest(encoder, task, config, fingerprint) | {"splits": splits, "seconds": timer.seconds}
    write_json(folder / MANIFEST, manifest)
    (folder / STARTED).unlink()
    return Store(folder)


def _finished(folder: Path, fingerprint: dict[str, Any]) -> bool:
    if not (folder / MANIFEST).exists():
        return False
    _refuse_other(folder, read_manifest(folder)["fingerprint"], fingerprint)
    return True


def _start(folder: Path, fingerprint: dict[str, Any], task: Task) -> None:
    """Claim the folder: new, begun by the very same extraction, or by another that got no shard done."""
    started = folder / STARTED
    if started.exists():
        if any(folder.glob("*/shard-*.safetensors")):
            _refuse_other(folder, _read_started(started), fingerprint)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is not empty and is no store; choose an empty folder with --to")
    write_json(started, fingerprint)
    try:
        save_task(task, folder / "task")
    except OSError as error:
        raise BadInput(f"cannot write a store at {folder}: {error.strerror or error}; choose another --to") from error


def _statistics(folder: Path, maker: ShardMaker, train: Sequence[Window]) -> Shard:
    """What the codec needs, on disk before the first shard: a resumed extraction goes on with the same numbers."""
    path = folder / STATISTICS
    if not path.exists():
        found = maker.learn(train)
        if found:
            write_shard(found, path)
        return found
    return read_shard(path)


def _read_started(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{path} cannot be read: {error}; delete {path.parent} and extract again") from error


def _refuse_other(folder: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = differences(stored, wanted)
    if found:
        raise BadInput(f"store {folder} was made from something else: {'; '.join(found)}; choose another folder")


def _write_split(folder: Path, windows: Sequence[Window], runner: ShardMaker, config: ExtractConfig) -> dict[str, Any]:
    """All shards of a split; those that are there already are kept."""
    entries = []
    with progress_bar(f"extract {folder.name}", len(windows), "window") as advance:
        for number, planned in enumerate(runner.plan(windows, config)):
            path = folder / f"shard-{number:05d}.safetensors"
            if path.exists():
                advance(sum(len(batch) for batch in planned))
                digest = file_sha256(path)
            else:
                digest = write_shard(runner.shard(windows, planned, advance), path)
            entries.append(_entry(path, digest, sum(len(batch) for batch in planned)))
    totals = {key: sum(entry[key] for entry in entries) for key in ("windows", "bytes")}
    return {**totals, "tokens": sum(kept_lengths(windows, config.tokens)), "shards": entries}


def _entry(path: Path, digest: str, windows: int) -> dict[str, Any]:
    name = f"{path.parent.name}/{path.name}"
    return {"file": name, "sha256": digest, "windows": windows, "bytes": path.stat().st_size}
