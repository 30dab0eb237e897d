"""Disk space of a store: what it will take, computed before the first shard is made, and what is free."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.summaries import APART
from bertvision.store.codec import state_bytes, vector_dtype
from bertvision.store.token_subset import kept_lengths
from bertvision.store.writer import StoreWriter
from bertvision.training.pair_texts import apart_bytes
from bertvision.training.shard_builder import ExtractionPlan

TOKEN_BYTES = 4 + 1 + 2 * 4
"""Bytes per token in addition to its states: id, type, offsets."""

WINDOW_BYTES = 4 + 8 + 8 + 4 + 16
"""Bytes per window: length, window number, example number, CLS position, key."""


def store_bytes(extraction: ExtractionPlan, dtype: str | None = None, tokens: str | None = None) -> int:
    """Bytes of all shards without their headers; ``dtype`` and ``tokens`` default to those of the plan."""
    config = replace(extraction.config, dtype=dtype or extraction.config.dtype)
    dtype, tokens = config.dtype, tokens or config.stored_tokens
    task, encoder, spans = extraction.task, extraction.encoder, extraction.task.kind == "span"
    inputs = config.pairs != APART  # whether whole inputs are encoded
    pooled_bytes = vector_dtype(dtype).itemsize * inputs
    native = inputs and encoder.own is not None
    targets = task.outputs if task.kind in ("span", "multilabel") else 1
    per_token = (
        len(extraction.builder.layers) * state_bytes(dtype, encoder.width) + TOKEN_BYTES + 8 * (native and spans)
    )
    per_window = WINDOW_BYTES + 4 * targets + pooled_bytes * encoder.width * encoder.has_pooler
    per_window += 4 * task.outputs * (native and not spans)
    per_window += apart_bytes(config, len(extraction.builder.layers), encoder.width)
    stored = sum(sum(kept_lengths(windows, tokens)) for windows in extraction.windows.values())
    return stored * per_token + sum(map(len, extraction.windows.values())) * per_window


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist yet."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_disk_space(extraction: ExtractionPlan, writer: StoreWriter) -> int:
    """The size of a store in bytes; an error if it exceeds ``max_gb`` or the free disk space."""
    needed, limit = store_bytes(extraction), extraction.config.max_gb
    temporary = 0 if extraction.texts is None else extraction.texts.bytes
    advice = "use --dtype int8, --layers last4, other --tokens or run --live (bertvision plan TASK ... shows what fits)"
    if limit is not None and needed > limit * 1e9:
        raise BadInput(f"the store would take {format_gb(needed)}, more than --max-gb {limit:g}; {advice}")
    if writer.remote is None:
        written = sum(path.stat().st_size for path in writer.folder.glob("*/shard-*.safetensors"))
        remaining = needed - written
    else:
        remaining = 2 * extraction.config.shard_mb * 1_000_000  # shards are deleted here after their upload
    free = free_bytes(writer.folder)
    if min(remaining, needed) + temporary > free:
        shortage = f"{format_gb(remaining + temporary)} more at {writer.folder}, but only {format_gb(free)} are free"
        raise BadInput(f"the store needs {shortage}; {advice}")
    return needed


def format_gb(count: float) -> str:
    """Bytes as text, in GB or MB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count / 1e6:.2f} MB"
