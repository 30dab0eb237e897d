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

import torch
from torch import Tensor

from bertvision.config import ExtractConfig, updated
from bertvision.encoder.hidden import States, collate, hidden_states
from bertvision.encoder.load import Encoder
from bertvision.errors import BadInput
from bertvision.heads.base import Head
from bertvision.records import SPLITS, Window
from bertvision.registry import choose_layers
from bertvision.runtime import Timer, choose_device, file_sha256, progress, write_json
from bertvision.steps.inputs import (
    data_hash,
    encoder_hash,
    own_head,
    split_windows,
    task_shape,
    tokenizer_hash,
    window_settings,
)
from bertvision.store.codec import check_finite, codec_dtype
from bertvision.store.fingerprint import FORMAT, differences, hash_json
from bertvision.store.plan import Batch, plan_batches, plan_shards
from bertvision.store.shards import Shard, window_tensors, write_shard
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
    _start(folder, fingerprint, task)
    layers = choose_layers(config.layers, encoder.layers)
    runner = _Runner(encoder, layers, config)
    splits = {split: _write_split(split, task, encoder, runner, folder, config) for split in SPLITS}
    shape = task_shape(task, len(layers), encoder.width)
    manifest = {
        "format": FORMAT,
        "id": hash_json(fingerprint)[:16],
        "fingerprint": fingerprint,
        "shape": asdict(shape),
        "layers": list(layers),
        "dtype": config.dtype,
        "encoder": {"name": encoder.name, "parameters": encoder.parameters, "record": dict(encoder.record)},
        "own": None if encoder.own is None else encoder.own.spec,
        "splits": splits,
        "seconds": timer.seconds,
    }
    write_json(folder / MANIFEST, manifest)
    (folder / STARTED).unlink()
    return Store(folder)


def store_fingerprint(encoder: Encoder, task: Task, config: ExtractConfig) -> dict[str, Any]:
    """Everything the content of a store depends on."""
    plan = {"batch_tokens": config.batch_tokens, "shard_mb": config.shard_mb, "seed": config.seed}
    return {
        "encoder": encoder_hash(encoder),
        "tokenizer": tokenizer_hash(encoder),
        "data": data_hash(task),
        "windows": window_settings(task),
        "dtype": config.dtype,
        "layers": config.layers,
        "plan": plan,
        "format": FORMAT,
    }


def _finished(folder: Path, fingerprint: dict[str, Any]) -> bool:
    if not (folder / MANIFEST).exists():
        return False
    _refuse_other(folder, read_manifest(folder)["fingerprint"], fingerprint)
    return True


def _start(folder: Path, fingerprint: dict[str, Any], task: Task) -> None:
    """Claim the folder: new, or begun by the very same extraction."""
    started = folder / STARTED
    if started.exists():
        _refuse_other(folder, json.loads(started.read_text(encoding="utf-8")), fingerprint)
    elif folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty and is no store; choose an empty folder with --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_task(task, folder / "task")
    except OSError as error:
        raise BadInput(f"cannot write a store at {folder}: {error.strerror or error}; choose another --to") from error
    write_json(started, fingerprint)


def _refuse_other(folder: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = differences(stored, wanted)
    if found:
        raise BadInput(f"store {folder} was made from something else: {'; '.join(found)}; choose another folder")


def _write_split(
    split: str, task: Task, encoder: Encoder, runner: _Runner, folder: Path, config: ExtractConfig
) -> dict[str, Any]:
    """All shards of a split; those that are there already are kept."""
    windows = split_windows(task, split, encoder)
    lengths = [len(window) for window in windows]
    batches = plan_batches(lengths, config.batch_tokens, config.seed)
    per_token = len(runner.layers) * encoder.width * codec_dtype(config.dtype).itemsize
    shards = plan_shards(batches, lengths, per_token, config.shard_mb)
    entries = []
    done = 0
    bar = progress(range(len(shards)), f"extract {split}", unit="shard")
    for number in bar:
        planned = [batches[i] for i in shards[number]]
        path = folder / split / f"shard-{number:05d}.safetensors"
        digest = file_sha256(path) if path.exists() else write_shard(runner.shard(windows, planned), path)
        count = sum(len(batch) for batch in planned)
        done += count
        entry = {"file": f"{split}/{path.name}", "sha256": digest, "windows": count, "bytes": path.stat().st_size}
        entries.append(entry)
    return {"windows": done, "tokens": sum(lengths), "bytes": sum(e["bytes"] for e in entries), "shards": entries}


class _Runner:
    """An encoder with its own head, ready to turn planned batches into a shard."""

    def __init__(self, encoder: Encoder, layers: Sequence[int], config: ExtractConfig) -> None:
        self.layers = tuple(layers)
        self.dtype_name, self.dtype = config.dtype, codec_dtype(config.dtype)
        self.device = choose_device(config.device)
        self.model = encoder.model.eval().to(self.device)
        self.width, self.last = encoder.width, encoder.layers - 1
        self.pad_id = encoder.tokenizer.pad_token_id
        head = own_head(encoder)
        self.own: Head | None = None if head is None else head.to(self.device)
        # The own head may need layers that are not stored.
        self.asked = self.layers if self.own is None else tuple(sorted({*self.layers, *self.own.layer_ids}))

    def shard(self, windows: Sequence[Window], batches: Sequence[Batch]) -> Shard:
        """Run the batches; states go layer by layer into one flat buffer of the store's type."""
        numbers = [int(number) for batch in batches for number in batch]
        members = [windows[number] for number in numbers]
        tokens = sum(len(window) for window in members)
        hidden = torch.empty((tokens, len(self.layers), self.width), dtype=self.dtype)
        extras: dict[str, list[Tensor]] = {"pooled": [], "logits": []}
        at = 0
        for batch in batches:
            at = self._run_batch([windows[int(number)] for number in batch], hidden, at, extras)
        check_finite(hidden, self.dtype_name)
        more = {key: torch.cat(parts) for key, parts in extras.items() if parts}
        return {"hidden": hidden, **window_tensors(members, numbers), **more}

    @torch.inference_mode()
    def _run_batch(self, members: Sequence[Window], hidden: Tensor, at: int, extras: dict[str, list[Tensor]]) -> int:
        tokens = collate(members, self.pad_id, self.device)
        states = hidden_states(self.model, tokens, self.asked)
        end = at + sum(len(window) for window in members)
        for place, layer in enumerate(self.layers):
            flat = states.layers[self.asked.index(layer)][tokens.mask]  # (real tokens, width)
            hidden[at:end, place].copy_(flat)
        if states.pooled is not None:
            extras["pooled"].append(states.pooled.to("cpu", self.dtype))
        if self.own is not None:
            extras["logits"].append(self._own_logits(states, tokens.mask))
        return end

    def _own_logits(self, states: States, mask: Tensor) -> Tensor:
        assert self.own is not None
        chosen = torch.stack([states.layers[self.asked.index(i)] for i in self.own.layer_ids], dim=2)
        logits = self.own.on_chosen(chosen, mask, states.pooled)
        return (logits[mask] if self.own.shape.kind == "span" else logits).float().cpu()
