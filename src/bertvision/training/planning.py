"""``bertvision plan``: every way to hold states side by side, measured on this machine, and the one to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe
from bertvision.encoders.loading import Encoder
from bertvision.heads.summary import fits
from bertvision.tasks.task import Task
from bertvision.training.estimate import encoder_tokens, free_bytes, gb, measure, passes, store_bytes, token_choices
from bertvision.training.inputs import task_shape
from bertvision.training.shard_builder import Work

DTYPES = ("f32", "f16", "int8")
SPARE = 0.9
"""Share of the free disk that a store may take."""


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
