"""Run the encoder once over all splits and keep every layer's states.

Doing the same again does nothing; an interrupted extraction goes on after its last whole shard; a
store made from anything else is refused, never mixed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertvision.config import ExtractConfig, updated
from bertvision.encoder.load import Encoder
from bertvision.errors import BadInput
from bertvision.records import SPLITS, Window
from bertvision.registry import choose_layers
from bertvision.runtime import Timer, file_sha256, progress_bar, write_json
from bertvision.steps.inputs import (
    data_hash,
    encoder_hash,
    split_windows,
    task_shape,
    tokenizer_hash,
    window_settings,
)
from bertvision.steps.shard_maker import ShardMaker
from bertvision.store.fingerprint import FORMAT, differences, hash_json
from bertvision.store.plan import plan_batches, plan_shards
from bertvision.store.shards import write_shard
from bertvision.store.store import MANIFEST, Store, read_manifest
from bertvision.tasks.base import Task, save_task

STARTED = "started.json"
"""Fingerprint of a store that is being written."""


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
    runner = ShardMaker(encoder, layers, config)
    _start(folder, fingerprint, task)
    splits = {split: _write_split(folder / split, windows[split], runner, config) for split in SPLITS}
    manifest = _manifest(encoder, task, config, fingerprint) | {"splits": splits, "seconds": timer.seconds}
    write_json(folder / MANIFEST, manifest)
    (folder / STARTED).unlink()
    return Store(folder)


def _manifest(encoder: Encoder, task: Task, config: ExtractConfig, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """What a store is, without what its shards hold."""
    layers = choose_layers(config.layers, encoder.layers)
    return {
        "format": FORMAT,
        "id": hash_json(fingerprint)[:16],
        "fingerprint": fingerprint,
        "shape": asdict(task_shape(task, len(layers), encoder.width)),
        "layers": list(layers),
        "dtype": config.dtype,
        "encoder": {
            "name": encoder.name,
            "layers": encoder.layers,
            "parameters": encoder.parameters,
            "record": dict(encoder.record),
        },
        "own": None if encoder.own is None else encoder.own.spec,
    }


def store_fingerprint(encoder: Encoder, task: Task, config: ExtractConfig) -> dict[str, Any]:
    """Everything the content of a store depends on."""
    plan = {"batch_tokens": config.batch_tokens, "shard_mb": config.shard_mb, "seed": config.seed}
    return {
        "encoder": encoder_hash(encoder),
        "tokenizer": tokenizer_hash(encoder),
        "data": data_hash(task),
        "windows": window_settings(task),
        "dtype": config.dtype,
        "layers": list(choose_layers(config.layers, encoder.layers)),
        "plan": plan,
        "format": FORMAT,
    }


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
    lengths = [len(window) for window in windows]
    batches = plan_batches(lengths, config.batch_tokens, config.seed)
    per_token = len(runner.layers) * runner.width * runner.dtype.itemsize
    shards = plan_shards(batches, lengths, per_token, config.shard_mb)
    entries = []
    with progress_bar(f"extract {folder.name}", len(windows), "window") as advance:
        for number, shard in enumerate(shards):
            planned = [batches[i] for i in shard]
            path = folder / f"shard-{number:05d}.safetensors"
            if path.exists():
                advance(sum(len(batch) for batch in planned))
                digest = file_sha256(path)
            else:
                digest = write_shard(runner.shard(windows, planned, advance), path)
            entries.append(_entry(path, digest, sum(len(batch) for batch in planned)))
    totals = {key: sum(entry[key] for entry in entries) for key in ("windows", "bytes")}
    return {**totals, "tokens": sum(lengths), "shards": entries}


def _entry(path: Path, digest: str, windows: int) -> dict[str, Any]:
    name = f"{path.parent.name}/{path.name}"
    return {"file": name, "sha256": digest, "windows": windows, "bytes": path.stat().st_size}
