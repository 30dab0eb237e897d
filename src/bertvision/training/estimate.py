"""What an extraction will cost, before it runs: bytes by the plan, the rest from a few batches; not a step itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe
from bertvision.core.errors import BadInput
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import SPLITS, Window
from bertvision.core.runtime import peak_bytes
from bertvision.encoders.loading import Encoder
from bertvision.heads.summary import fits
from bertvision.store.batching import Batch
from bertvision.store.codec import make_codec, state_bytes
from bertvision.store.token_subset import TOKENS, kept_lengths
from bertvision.store.writer import Site
from bertvision.tasks.task import Task
from bertvision.training.inputs import task_shape
from bertvision.training.shard_builder import ShardBuilder, Work

TOKEN_FACTS = 4 + 1 + 2 * 4
"""Bytes of a token beside its states: id, type, offsets."""

WINDOW_FACTS = 4 + 8 + 8 + 4
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
    """What a few batches told."""

    tokens_per_second: float
    memory: int  # most bytes held so far


def store_bytes(work: Work, dtype: str | None = None, tokens: str | None = None) -> int:
    """Bytes of all shards with these choices, or with those of the work; headers make it a little more."""
    dtype, tokens = dtype or work.config.dtype, tokens or work.config.tokens
    task, encoder, spans = work.task, work.encoder, work.task.kind == "span"
    small = 4 if dtype == "f32" else 2
    own = encoder.own is not None
    targets = task.outputs if task.kind in ("span", "multilabel") else 1
    per_token = len(work.maker.layers) * state_bytes(dtype, encoder.width) + TOKEN_FACTS + 8 * (own and spans)
    per_window = WINDOW_FACTS + 4 * targets + small * encoder.width * encoder.has_pooler
    per_window += 4 * task.outputs * (own and not spans)
    stored = sum(sum(kept_lengths(rows, tokens)) for rows in work.windows.values())
    return stored * per_token + sum(len(rows) for rows in work.windows.values()) * per_window


def encoder_tokens(work: Work) -> dict[str, int]:
    """Tokens that the encoder reads of each split."""
    return {split: sum(map(len, work.windows[split])) for split in SPLITS}


def measure(work: Work) -> Speed:
    """Tokens a second over a few batches of the plan, spread over it."""
    maker, train = work.maker, work.windows["train"]
    batches = [batch for shard in maker.plan(train) for batch in shard]
    chosen = [batches[i * len(batches) // MEASURED] for i in range(MEASURED)]
    rates = [_rate(maker, train, batch) for batch in chosen][1:]
    return Speed(len(rates) / sum(1 / rate for rate in rates), peak_bytes(maker.device))


def _rate(maker: ShardBuilder, windows: Sequence[Window], batch: Batch) -> float:
    """Tokens a second of one batch; as which type states are kept costs next to nothing."""
    timer, before = Timer(), maker.codec
    maker.codec = make_codec("f32", {})
    try:
        maker.shard(windows, [batch], lambda _: None)
    finally:
        maker.codec = before
    return sum(len(windows[int(number)]) for number in batch) / timer.seconds


def free_bytes(place: Path) -> int:
    """Free bytes of the disk on which a folder is, or would be."""
    place = place.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def announce(work: Work, site: Site, here: bool = True) -> None:
    """Say what an extraction will cost; refuse what does not fit, before anything is written.

    Minutes and memory are told only of what runs ``here``: nothing is known of other machines.
    """
    needed = check_room(work, site)
    batches = sum(len(job.batches) for job in work.jobs)
    time = ""
    if here and batches >= ENOUGH:
        speed, shard = measure(work), min(needed, work.config.shard_mb * 1_000_000)
        minutes = sum(encoder_tokens(work).values()) / speed.tokens_per_second / 60
        memory = speed.memory + 2 * shard
        time = f", about {minutes:.1f} min at {speed.tokens_per_second:,.0f} tokens/s, {memory / 1e9:.1f} GB memory"
    config = work.config
    log_line(
        f"extract: {gb(needed)} of {config.dtype}, tokens {config.tokens}{time}; {gb(free_bytes(site.folder))} free"
    )


def check_room(work: Work, site: Site) -> int:
    """Bytes that a store will have; refused where there is no room for them."""
    needed, limit, there = store_bytes(work), work.config.max_gb, _there(site)
    way = "take --dtype int8, --layers last4, other --tokens or run --live (bertvision plan TASK ... shows what fits)"
    if limit is not None and needed > limit * 1e9:
        raise BadInput(f"the store would be {gb(needed)}, more than --max-gb {limit:g}; {way}")
    # Shards that are sent away do not pile up here.
    room = needed - there if site.remote is None else 2 * work.config.shard_mb * 1_000_000
    free = free_bytes(site.folder)
    if min(room, needed) > free:
        raise BadInput(f"the store needs {gb(room)} more at {site.folder}, where {gb(free)} are free; {way}")
    return needed


def _there(site: Site) -> int:
    return sum(path.stat().st_size for path in site.folder.glob("*/shard-*.safetensors"))


def gb(count: float) -> str:
    """Bytes for a person."""
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count / 1e6:.2f} MB"


def token_choices(kind: str) -> tuple[str, ...]:
    """What of :data:`TOKENS` a task of this kind can do something with."""
    return ("all", "context") if kind == "span" else tuple(tokens for tokens in TOKENS if tokens != "context")


def passes(tokens: Mapping[str, int], epochs: int) -> int:
    """Tokens that the encoder reads live: train and inner once an epoch, dev once."""
    return epochs * (tokens["train"] + tokens["inner"]) + tokens["dev"]


def plan(recipe: Recipe, encoder: Encoder, task: Task, heads: Sequence[str], place: Path) -> dict[str, Any]:
    """Bytes, minutes and memory of every choice; which would be taken, and why."""
    work = Work(encoder, task, recipe.extract)
    speed, tokens, free = measure(work), encoder_tokens(work), free_bytes(place)
    limit = min(SPARE * free, (recipe.extract.max_gb or float("inf")) * 1e9)
    minutes = sum(tokens.values()) / speed.tokens_per_second / 60
    shard = recipe.extract.shard_mb * 1_000_000
    rows = []
    for kept in token_choices(task.kind):
        for dtype in DTYPES:
            size = store_bytes(work, dtype, kept)
            memory = speed.memory + 2 * min(size, shard)
            serves = _serves(work, heads, kept)
            facts = {"bytes": size, "minutes": minutes, "memory": memory, "fits": size <= limit, "serves": serves}
            rows.append({"dtype": dtype, "tokens": kept, **facts})
    live = {
        "minutes": passes(tokens, recipe.fit.epochs) / speed.tokens_per_second / 60,
        "memory": speed.memory + min(store_bytes(work), shard),
    }
    facts = {"windows": sum(map(len, work.windows.values())), "tokens": sum(tokens.values()), "free_bytes": free}
    choice = choose(rows, live, limit)
    return {**facts, "tokens_per_second": speed.tokens_per_second, "rows": rows, "live": live, "choice": choice}


def _serves(work: Work, heads: Sequence[str], tokens: str) -> bool:
    shape = task_shape(work.task, len(work.maker.layers), work.encoder.width)
    return all(fits(head, shape, True, tokens) for head in heads)


def choose(rows: Sequence[dict[str, Any]], live: dict[str, Any], limit: float) -> dict[str, Any]:
    """f16 of all tokens where it fits; else fewer tokens if they serve every head, else int8, else no store at all."""
    able = {(row["dtype"], row["tokens"]): row for row in rows if row["fits"] and row["serves"]}
    usual = next(row for row in rows if (row["dtype"], row["tokens"]) == ("f16", "all"))
    for dtype in ("f16", "int8"):
        for tokens in dict.fromkeys(row["tokens"] for row in rows):
            row = able.get((dtype, tokens))
            if row is not None:
                return {"how": "cached", "dtype": dtype, "tokens": tokens, "why": _why(row, usual, live, limit)}
    why = f"no store that serves these heads fits into {gb(limit)}; the encoder runs once an epoch instead"
    return {"how": "live", "why": why}


def _why(row: dict[str, Any], usual: dict[str, Any], live: dict[str, Any], limit: float) -> str:
    once = f"{row['minutes']:.1f} min once instead of {live['minutes']:.1f} min live"
    if row is usual:
        return f"it fits ({gb(row['bytes'])} of {gb(limit)}) and costs {once}"
    return (
        f"f16 of all tokens ({gb(usual['bytes'])}) does not fit into {gb(limit)}, this does, serves every head, {once}"
    )


def plan_text(document: dict[str, Any]) -> str:
    """The plan as a table."""
    choice = document["choice"]
    lines = [
        f"{document['windows']:,} windows, {document['tokens']:,} tokens, "
        f"{document['tokens_per_second']:,.0f} tokens/s measured; {gb(document['free_bytes'])} free",
        f"{'':8}{'dtype':7}{'tokens':9}{'disk':>12}{'minutes':>10}{'memory':>12}",
    ]
    for row in document["rows"]:
        note = "" if row["fits"] else "  does not fit"
        note += "" if row["serves"] else "  does not serve every head"
        lines.append(
            f"{'cached':8}{row['dtype']:7}{row['tokens']:9}{gb(row['bytes']):>12}{row['minutes']:>10.1f}"
            f"{gb(row['memory']):>12}{note}"
        )
    live = document["live"]
    lines.append(f"{'live':24}{'none':>12}{live['minutes']:>10.1f}{gb(live['memory']):>12}")
    flags = f"--dtype {choice['dtype']} --tokens {choice['tokens']}" if choice["how"] == "cached" else "--live"
    return "\n".join([*lines, f"take {flags}: {choice['why']}"])
