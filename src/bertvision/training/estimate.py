"""Estimate the cost of an extraction before it runs: disk from the plan, time and memory from a few batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import SPLITS, Window
from bertvision.core.runtime import peak_bytes
from bertvision.core.summaries import APART, NO_TOKENS, TOGETHER
from bertvision.encoders.loading import Encoder
from bertvision.heads.info import fits
from bertvision.store.batching import Batch
from bertvision.store.codec import make_codec
from bertvision.store.token_subset import TOKENS
from bertvision.store.writer import StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.disk_space import check_disk_space, format_gb, free_bytes, store_bytes
from bertvision.training.inputs import task_shape
from bertvision.training.shard_builder import ExtractionPlan, ShardBuilder

TIMED_BATCHES = 4
"""Batches that are timed; the first one only warms up."""

MIN_BATCHES = 100
"""Extractions of fewer batches are not timed: they take minutes, and timing would be a large part of that."""

DTYPES = ("f32", "f16", "int8")
VECTOR_DTYPES = ("f32", "f16")

MAX_DISK_SHARE = 0.9
"""Share of the free disk space that a store may take."""


@dataclass(frozen=True)
class Speed:
    """Speed and memory measured on a few batches."""

    tokens_per_second: float
    memory: int  # peak, in bytes


def encoder_tokens(extraction: ExtractionPlan) -> dict[str, int]:
    """Encoder input tokens per split, without those of texts that are encoded apart."""
    if extraction.config.pairs == APART:
        return dict.fromkeys(SPLITS, 0)
    return {split: sum(map(len, extraction.windows[split])) for split in SPLITS}


def text_tokens(extraction: ExtractionPlan) -> int:
    """Encoder input tokens of the texts that are encoded apart, each once."""
    return 0 if extraction.texts is None else sum(map(len, extraction.texts.texts.windows))


def measure(extraction: ExtractionPlan) -> Speed:
    """Time a few batches spread over the training split; the storage type hardly matters, so f32 is used.

    If only texts are encoded, each by itself, batches of these are timed.
    """
    builder, texts = extraction.builder, extraction.texts
    run: Callable[[Batch], object]
    if texts is not None and extraction.config.pairs == APART:
        windows, batches, run = texts.texts.windows, texts.batches, texts.run_batch
    else:
        windows = extraction.windows["train"]
        batches = [batch for shard in builder.plan(windows) for batch in shard]
        run = partial(_run_window_batch, builder, windows)
    codec, seconds_per_token = builder.codec, []
    builder.codec = make_codec("f32", {})
    try:
        for i in range(TIMED_BATCHES):
            batch, timer = batches[i * len(batches) // TIMED_BATCHES], Timer()
            run(batch)
            seconds_per_token.append(timer.seconds / sum(len(windows[int(window)]) for window in batch))
    finally:
        builder.codec = codec
    timed = seconds_per_token[1:]
    return Speed(len(timed) / sum(timed), peak_bytes(builder.device))


def _run_window_batch(builder: ShardBuilder, windows: Sequence[Window], batch: Batch) -> None:
    builder.shard(windows, [batch], lambda _: None)


def log_estimate(extraction: ExtractionPlan, writer: StoreWriter, local: bool = True) -> None:
    """Log the estimated cost of an extraction; raise an error if it does not fit on the disk.

    Time and memory are measured only if the shards are made on this machine (``local``).
    """
    needed = check_disk_space(extraction, writer)
    config, time = extraction.config, ""
    if local and sum(len(job.batches) for job in extraction.jobs) >= MIN_BATCHES:
        speed = measure(extraction)
        minutes = (sum(encoder_tokens(extraction).values()) + text_tokens(extraction)) / speed.tokens_per_second / 60
        memory = speed.memory + 2 * min(needed, config.shard_mb * 1_000_000)
        time = f", about {minutes:.1f} min at {speed.tokens_per_second:,.0f} tokens/s, {memory / 1e9:.1f} GB memory"
    free = format_gb(free_bytes(writer.folder))
    pairs = "" if config.pairs == TOGETHER else f", pairs {config.pairs}"
    log_line(f"extract: {format_gb(needed)} of {config.dtype}, tokens {config.stored_tokens}{pairs}{time}; {free} free")


def token_choices(kind: str, pairs: str = TOGETHER) -> tuple[str, ...]:
    """The members of :data:`TOKENS` that suit a task of this kind; none of them if no whole input is encoded."""
    if pairs == APART:
        return (NO_TOKENS,)
    return ("all", "context") if kind == "span" else tuple(tokens for tokens in TOKENS if tokens != "context")


def live_tokens(tokens: Mapping[str, int], epochs: int) -> int:
    """Encoder input tokens of a live run: train and inner in every epoch, dev once."""
    return epochs * (tokens["train"] + tokens["inner"]) + tokens["dev"]


def plan(recipe: Recipe, encoder: Encoder, task: Task, heads: Sequence[str], folder: Path) -> dict[str, Any]:
    """Disk, time and memory of every way to store or recompute the states, and a recommendation."""
    extraction = ExtractionPlan(encoder, task, recipe.extract)
    speed, tokens, free = measure(extraction), encoder_tokens(extraction), free_bytes(folder)
    apart, pairs = text_tokens(extraction), recipe.extract.pairs
    limit = min(MAX_DISK_SHARE * free, (recipe.extract.max_gb or float("inf")) * 1e9)
    minutes = (sum(tokens.values()) + apart) / speed.tokens_per_second / 60
    shard = recipe.extract.shard_mb * 1_000_000
    shape = task_shape(task, len(extraction.builder.layers), encoder.width)
    rows = []
    for stored in token_choices(task.kind, pairs):
        serves = all(fits(head, shape, True, stored, pairs) for head in heads)
        for dtype in VECTOR_DTYPES if pairs == APART else DTYPES:
            size = store_bytes(extraction, dtype, stored)
            memory = speed.memory + 2 * min(size, shard)
            costs = {"bytes": size, "minutes": minutes, "memory": memory, "fits": size <= limit, "serves": serves}
            rows.append({"dtype": dtype, "tokens": stored, **costs})
    live = {
        "minutes": (live_tokens(tokens, recipe.fit.epochs) + apart) / speed.tokens_per_second / 60,
        "memory": speed.memory + min(store_bytes(extraction), shard),
    }
    return {
        "windows": sum(map(len, extraction.windows.values())),
        "tokens": sum(tokens.values()) + apart,
        "free_bytes": free,
        "tokens_per_second": speed.tokens_per_second,
        "rows": rows,
        "live": live,
        "choice": recommend_storage(rows, live, limit),
    }


def recommend_storage(rows: Sequence[dict[str, Any]], live: dict[str, Any], limit: float) -> dict[str, Any]:
    """f16 of all tokens if it fits; else fewer tokens if all heads can use them, else int8, else no store (live)."""
    usable = {(row["dtype"], row["tokens"]): row for row in rows if row["fits"] and row["serves"]}
    default = next(row for row in rows if row["dtype"] == "f16" and row["tokens"] in ("all", NO_TOKENS))
    for dtype in ("f16", "int8"):
        for tokens in dict.fromkeys(row["tokens"] for row in rows):
            row = usable.get((dtype, tokens))
            if row is None:
                continue
            why = f"{row['minutes']:.1f} min once instead of {live['minutes']:.1f} min live"
            if row is default:
                why = f"it fits ({format_gb(row['bytes'])} of {format_gb(limit)}) and costs {why}"
            else:
                size = format_gb(default["bytes"])
                why = f"f16 of all tokens ({size}) exceeds {format_gb(limit)}; this fits, serves all heads, costs {why}"
            return {"how": "cached", "dtype": dtype, "tokens": tokens, "why": why}
    why = f"no store that serves these heads fits into {format_gb(limit)}; the encoder runs in every epoch instead"
    return {"how": "live", "why": why}


def plan_text(document: dict[str, Any]) -> str:
    """The plan as a table."""
    choice = document["choice"]
    lines = [
        f"{document['windows']:,} windows, {document['tokens']:,} tokens, "
        f"{document['tokens_per_second']:,.0f} tokens/s measured; {format_gb(document['free_bytes'])} free",
        f"{'':8}{'dtype':7}{'tokens':9}{'disk':>12}{'minutes':>10}{'memory':>12}",
    ]
    for row in document["rows"]:
        note = "" if row["fits"] else "  does not fit"
        note += "" if row["serves"] else "  not usable by every head"
        lines.append(
            f"{'cached':8}{row['dtype']:7}{row['tokens']:9}{format_gb(row['bytes']):>12}{row['minutes']:>10.1f}"
            f"{format_gb(row['memory']):>12}{note}"
        )
    live = document["live"]
    lines.append(f"{'live':24}{'none':>12}{live['minutes']:>10.1f}{format_gb(live['memory']):>12}")
    flags = "--live"
    if choice["how"] == "cached":
        tokens = "" if choice["tokens"] == NO_TOKENS else f" --tokens {choice['tokens']}"
        flags = f"--dtype {choice['dtype']}{tokens}"
    return "\n".join([*lines, f"recommended: {flags}: {choice['why']}"])
