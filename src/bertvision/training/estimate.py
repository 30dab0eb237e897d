"""What an extraction will cost, before it runs: bytes by the plan, the rest from a few batches."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe
from bertvision.core.errors import BadInput
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import SPLITS
from bertvision.core.runtime import peak_bytes
from bertvision.encoders.loading import Encoder
from bertvision.heads.summary import fits
from bertvision.store.codec import make_codec, state_bytes
from bertvision.store.token_subset import TOKENS, kept_lengths
from bertvision.store.writer import StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.inputs import task_shape
from bertvision.training.shard_builder import ExtractionPlan

TOKEN_BYTES = 4 + 1 + 2 * 4
"""Bytes of a token beside its states: id, type, offsets."""

WINDOW_BYTES = 4 + 8 + 8 + 4
"""Bytes of a window: length, its number, its example's, where CLS is."""

MEASURED = 4
"""Batches that are timed, the first of which only warms up."""

ENOUGH = 100
"""With fewer batches than this timing would be a good part of the work, and the work a matter of minutes."""

DTYPES = ("f32", "f16", "int8")

SPARE = 0.9
"""Share of the free disk that a store may take."""


@dataclass(frozen=True)
class Speed:
    """What a few batches have shown."""

    tokens_per_second: float
    memory: int  # most bytes held so far


def store_bytes(extraction: ExtractionPlan, dtype: str | None = None, tokens: str | None = None) -> int:
    """Bytes of all shards with these choices, or with those of the plan; headers make it a little more."""
    dtype, tokens = dtype or extraction.config.dtype, tokens or extraction.config.tokens
    task, encoder, spans = extraction.task, extraction.encoder, extraction.task.kind == "span"
    side_bytes = 4 if dtype == "f32" else 2  # of a number that lies beside the states
    own = encoder.own is not None
    targets = task.outputs if task.kind in ("span", "multilabel") else 1
    per_token = len(extraction.builder.layers) * state_bytes(dtype, encoder.width) + TOKEN_BYTES + 8 * (own and spans)
    per_window = WINDOW_BYTES + 4 * targets + side_bytes * encoder.width * encoder.has_pooler
    per_window += 4 * task.outputs * (own and not spans)
    stored = sum(sum(kept_lengths(windows, tokens)) for windows in extraction.windows.values())
    return stored * per_token + sum(map(len, extraction.windows.values())) * per_window


def encoder_tokens(extraction: ExtractionPlan) -> dict[str, int]:
    """Tokens that the encoder reads of each split."""
    return {split: sum(map(len, extraction.windows[split])) for split in SPLITS}


def measure(extraction: ExtractionPlan) -> Speed:
    """Tokens a second over a few batches of the plan, spread over it; the first only warms up.

    States are kept as f32: as which type costs next to nothing.
    """
    builder, train = extraction.builder, extraction.windows["train"]
    batches = [batch for shard in builder.plan(train) for batch in shard]
    codec, seconds_per_token = builder.codec, []
    builder.codec = make_codec("f32", {})
    try:
        for i in range(MEASURED):
            batch, timer = batches[i * len(batches) // MEASURED], Timer()
            builder.shard(train, [batch], lambda _: None)
            seconds_per_token.append(timer.seconds / sum(len(train[int(number)]) for number in batch))
    finally:
        builder.codec = codec
    timed = seconds_per_token[1:]
    return Speed(len(timed) / sum(timed), peak_bytes(builder.device))


def free_bytes(folder: Path) -> int:
    """Free bytes of the disk on which a folder is, or would be."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def log_estimate(extraction: ExtractionPlan, writer: StoreWriter, here: bool = True) -> None:
    """Log what an extraction will cost; refuse what does not fit, before anything is written.

    Minutes and memory only where shards are made ``here``: nothing is known of other machines.
    """
    needed = check_disk_space(extraction, writer)
    config, time = extraction.config, ""
    if here and sum(len(job.batches) for job in extraction.jobs) >= ENOUGH:
        speed = measure(extraction)
        minutes = sum(encoder_tokens(extraction).values()) / speed.tokens_per_second / 60
        memory = speed.memory + 2 * min(needed, config.shard_mb * 1_000_000)
        time = f", about {minutes:.1f} min at {speed.tokens_per_second:,.0f} tokens/s, {memory / 1e9:.1f} GB memory"
    free = format_gb(free_bytes(writer.folder))
    log_line(f"extract: {format_gb(needed)} of {config.dtype}, tokens {config.tokens}{time}; {free} free")


def check_disk_space(extraction: ExtractionPlan, writer: StoreWriter) -> int:
    """Bytes that a store will have; refused where there is no room for them."""
    needed, limit = store_bytes(extraction), extraction.config.max_gb
    way = "take --dtype int8, --layers last4, other --tokens or run --live (bertvision plan TASK ... shows what fits)"
    if limit is not None and needed > limit * 1e9:
        raise BadInput(f"the store would be {format_gb(needed)}, more than --max-gb {limit:g}; {way}")
    if writer.remote is None:
        written = sum(path.stat().st_size for path in writer.folder.glob("*/shard-*.safetensors"))
        room = needed - written
    else:
        room = 2 * extraction.config.shard_mb * 1_000_000  # uploaded shards do not pile up here
    free = free_bytes(writer.folder)
    if min(room, needed) > free:
        raise BadInput(
            f"the store needs {format_gb(room)} more at {writer.folder}, where {format_gb(free)} are free; {way}"
        )
    return needed


def format_gb(count: float) -> str:
    """Bytes for a person."""
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count / 1e6:.2f} MB"


def token_choices(kind: str) -> tuple[str, ...]:
    """What of :data:`TOKENS` a task of this kind can do something with."""
    return ("all", "context") if kind == "span" else tuple(tokens for tokens in TOKENS if tokens != "context")


def passes(tokens: Mapping[str, int], epochs: int) -> int:
    """Tokens that the encoder reads live: train and inner once an epoch, dev once."""
    return epochs * (tokens["train"] + tokens["inner"]) + tokens["dev"]


def plan(recipe: Recipe, encoder: Encoder, task: Task, heads: Sequence[str], folder: Path) -> dict[str, Any]:
    """Bytes, minutes and memory of every choice; which would be taken, and why."""
    extraction = ExtractionPlan(encoder, task, recipe.extract)
    speed, tokens, free = measure(extraction), encoder_tokens(extraction), free_bytes(folder)
    limit = min(SPARE * free, (recipe.extract.max_gb or float("inf")) * 1e9)
    minutes = sum(tokens.values()) / speed.tokens_per_second / 60
    shard = recipe.extract.shard_mb * 1_000_000
    shape = task_shape(task, len(extraction.builder.layers), encoder.width)
    rows = []
    for kept in token_choices(task.kind):
        serves = all(fits(head, shape, True, kept) for head in heads)
        for dtype in DTYPES:
            size = store_bytes(extraction, dtype, kept)
            memory = speed.memory + 2 * min(size, shard)
            facts = {"bytes": size, "minutes": minutes, "memory": memory, "fits": size <= limit, "serves": serves}
            rows.append({"dtype": dtype, "tokens": kept, **facts})
    live = {
        "minutes": passes(tokens, recipe.fit.epochs) / speed.tokens_per_second / 60,
        "memory": speed.memory + min(store_bytes(extraction), shard),
    }
    return {
        "windows": sum(map(len, extraction.windows.values())),
        "tokens": sum(tokens.values()),
        "free_bytes": free,
        "tokens_per_second": speed.tokens_per_second,
        "rows": rows,
        "live": live,
        "choice": choose(rows, live, limit),
    }


def choose(rows: Sequence[dict[str, Any]], live: dict[str, Any], limit: float) -> dict[str, Any]:
    """f16 of all tokens where it fits; else fewer tokens if they serve every head, else int8, else no store at all."""
    able = {(row["dtype"], row["tokens"]): row for row in rows if row["fits"] and row["serves"]}
    usual = next(row for row in rows if (row["dtype"], row["tokens"]) == ("f16", "all"))
    for dtype in ("f16", "int8"):
        for tokens in dict.fromkeys(row["tokens"] for row in rows):
            row = able.get((dtype, tokens))
            if row is None:
                continue
            why = f"{row['minutes']:.1f} min once instead of {live['minutes']:.1f} min live"
            if row is usual:
                why = f"it fits ({format_gb(row['bytes'])} of {format_gb(limit)}) and costs {why}"
            else:
                size = format_gb(usual["bytes"])
                why = f"f16 of all tokens ({size}) does not fit into {format_gb(limit)}, this does, serves every head, {why}"
            return {"how": "cached", "dtype": dtype, "tokens": tokens, "why": why}
    why = f"no store that serves these heads fits into {format_gb(limit)}; the encoder runs once an epoch instead"
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
        note += "" if row["serves"] else "  does not serve every head"
        lines.append(
            f"{'cached':8}{row['dtype']:7}{row['tokens']:9}{format_gb(row['bytes']):>12}{row['minutes']:>10.1f}"
            f"{format_gb(row['memory']):>12}{note}"
        )
    live = document["live"]
    lines.append(f"{'live':24}{'none':>12}{live['minutes']:>10.1f}{format_gb(live['memory']):>12}")
    flags = f"--dtype {choice['dtype']} --tokens {choice['tokens']}" if choice["how"] == "cached" else "--live"
    return "\n".join([*lines, f"take {flags}: {choice['why']}"])
