"""Fingerprints and manifests of stores: what hidden states were computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bertvision.core.config import ExtractConfig
from bertvision.core.files import hash_json
from bertvision.core.registry import choose_layers
from bertvision.core.summaries import APART, TOGETHER
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder
from bertvision.store.codec import storage_dtype
from bertvision.store.fingerprint import FORMAT, LEFT_OUT
from bertvision.store.token_subset import check_tokens
from bertvision.tasks.task import Task
from bertvision.training.inputs import data_hash, encoder_hash, task_shape, window_settings
from bertvision.training.pair_texts import check_pairs


def store_manifest(encoder: Encoder, task: Task, config: ExtractConfig, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a store, without its splits."""
    layers = choose_layers(config.layers, encoder.layers)
    return {
        "format": FORMAT,
        "id": hash_json(fingerprint)[:16],
        "fingerprint": fingerprint,
        "shape": asdict(task_shape(task, len(layers), encoder.width)),
        "layers": list(layers),
        "dtype": config.dtype,
        "tokens": config.stored_tokens,
        "encoder": {
            "name": encoder.name,
            "layers": encoder.layers,
            "parameters": encoder.parameters,
            "record": dict(encoder.record),
        },
        # The encoder's own head reads whole inputs.
        "own": None if encoder.own is None or config.pairs == APART else encoder.own.spec,
        **({} if config.pairs == TOGETHER else {"pairs": config.pairs}),
    }


def stored_config(fingerprint: Mapping[str, Any]) -> ExtractConfig:
    """The settings that reproduce a store with this fingerprint."""
    layers = "+".join(str(layer) for layer in fingerprint["layers"])
    left_out = {name: fingerprint.get(name, default) for name, default in LEFT_OUT.items()}
    return ExtractConfig(dtype=fingerprint["dtype"], layers=layers, **left_out, **fingerprint["plan"])


def split_record(records: Sequence[Mapping[str, Any]], tokens: int) -> dict[str, Any]:
    """The entry of a split in the manifest, from its shard records (timings are left out)."""
    shards = [{key: record[key] for key in ("file", "sha256", "windows", "bytes")} for record in records]
    totals = {key: sum(shard[key] for shard in shards) for key in ("windows", "bytes")}
    return {**totals, "tokens": tokens, "shards": shards}


def store_fingerprint(encoder: Encoder, task: Task, config: ExtractConfig) -> dict[str, Any]:
    """Everything that the content of a store depends on."""
    check_tokens(config.tokens, task.kind)
    check_pairs(config, task)
    storage_dtype(config.dtype)
    settings = {"tokens": config.tokens, "pairs": config.pairs}
    plan = {"batch_tokens": config.batch_tokens, "shard_mb": config.shard_mb, "seed": config.seed}
    return {
        "encoder": encoder_hash(encoder),
        "tokenizer": tokenizer_hash(encoder.tokenizer),
        "data": data_hash(task),
        "windows": window_settings(task),
        "dtype": config.dtype,
        "layers": list(choose_layers(config.layers, encoder.layers)),
        "plan": plan,
        "format": FORMAT,
        # Omitted at their defaults, so that stores written before these settings existed keep their fingerprint.
        **{name: value for name, value in settings.items() if value != LEFT_OUT[name]},
    }
