"""Commands for stores of hidden states: plan and store (info, verify, prune)."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertvision.cli.options import (
    Result,
    add_command,
    add_data,
    add_encoder,
    add_heads,
    add_set,
    add_settings,
    recipe_from,
)
from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput

MAX_LISTED = 5
"""Maximum number of damaged files that an error lists."""


def add_commands(subparsers: Any) -> None:
    plan = add_command(
        subparsers,
        "plan",
        "estimate size, time and memory for each data type and choice of tokens, without running anything",
        "squad2 --train train-v2.0.json --to /data/runs",
    )
    plan.add_argument(
        "--to", default=".", metavar="FOLDER", help="check free space on the disk of this folder (default: here)"
    )
    add_settings(plan, ExtractConfig, ("pairs", "layers", "max_gb"))
    add_heads(plan, "heads to train on the store (default: quick)")
    for add in (add_data, add_encoder, add_set):
        add(plan)

    store = add_command(
        subparsers,
        "store",
        "inspect, verify, repair or delete stores of hidden states",
        "info runs/reviews/store",
        "verify runs/reviews/store --repair",
        "prune runs --older-than 30",
    )
    store.add_argument(
        "what", choices=("info", "verify", "prune"), help="show the contents, verify checksums, or delete old stores"
    )
    store.add_argument(
        "places", nargs="+", metavar="STORE", help="folder or URL of a store; for prune, folders that contain stores"
    )
    check = store.add_argument_group("verify")
    check.add_argument("--repair", action="store_true", help="extract damaged shards again")
    check.add_argument(
        "--encoder", metavar="E", help="encoder for --repair (default: RUN/encoder, or the recorded one)"
    )
    prune = store.add_argument_group("prune", "Lists the stores that would be deleted; add --yes to delete them.")
    prune.add_argument("--older-than", type=float, metavar="DAYS", help="delete stores written more than DAYS days ago")
    prune.add_argument(
        "--max-gb", type=float, metavar="X", help="delete the oldest stores until the rest fits into X gigabytes"
    )
    prune.add_argument(
        "--orphaned", action="store_true", help="delete unfinished stores and those without a run with heads"
    )
    prune.add_argument("--yes", action="store_true", help="delete; without it, stores are only listed")


def plan_command(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.estimate import plan, plan_text
    from bertvision.training.inputs import check_heads, resolve_tokens
    from bertvision.training.pair_texts import check_pairs, resolve_pairs

    recipe = recipe_from(options)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    tuned = recipe.tune.epochs > 0 or encoder.own is not None
    recipe = replace(recipe, extract=resolve_pairs(recipe.extract, task, tuned))
    check_pairs(recipe.extract, task)
    recipe = replace(recipe, extract=resolve_tokens(recipe.extract, recipe.heads, task, encoder, tuned))
    heads = check_heads(recipe.heads, task, encoder, recipe.extract.layers, tuned=tuned, pairs=recipe.extract.pairs)
    document = plan(recipe, encoder, task, heads, Path(options.to))
    return document, plan_text(document)


def store_command(options: argparse.Namespace) -> Result:
    if options.what == "prune":
        return _prune(options)
    if len(options.places) > 1:
        raise BadInput(f"store {options.what} takes one store, got {len(options.places)}")
    if options.what == "info":
        return _info(options.places[0])
    return (_repair if options.repair else _verify)(options.places[0], options)


def _info(path: str) -> Result:
    from bertvision.store.store import Store

    manifest = Store(path).manifest
    facts = {key: manifest[key] for key in ("id", "shape", "layers", "dtype", "own", "fingerprint")}
    facts |= {"tokens": manifest.get("tokens", "all"), "encoder": manifest["encoder"]["name"], "splits": {}}
    facts |= {"pairs": manifest["pairs"]} if "pairs" in manifest else {}
    pairs = f", pairs {facts['pairs']}" if "pairs" in facts else ""
    lines = [
        f"store {manifest['id']}: {facts['encoder']}, layers {manifest['layers']}, tokens {facts['tokens']}{pairs}, "
        f"{manifest['dtype']}"
    ]
    for name, split in manifest["splits"].items():
        facts["splits"][name] = {key: value for key, value in split.items() if key != "shards"}
        lines.append(
            f"{name:6} {split['windows']:>9,} windows {split['tokens']:>12,} tokens "
            f"{split['bytes'] / 1e6:>12,.1f} MB, {len(split['shards'])} shards"
        )
    return facts, "\n".join(lines)


def _verify(path: str, options: argparse.Namespace) -> Result:
    from bertvision.store.store import Store, find_damage, recorded

    store = Store(path)
    damaged = find_damage(store)
    count = sum(1 for _ in recorded(store.manifest))
    if damaged:
        names = ", ".join(map(str, damaged[:MAX_LISTED]))
        if len(damaged) > MAX_LISTED:
            names += f" and {len(damaged) - MAX_LISTED} more"
        raise BadInput(
            f"store {path}: {len(damaged)} of {count} files are damaged: {names}; "
            f"extract them again with: bertvision store verify {path} --repair"
        )
    return {"store": path, "files": count, "damaged": []}, f"{path}: all {count} files are intact"


def _repair(path: str, options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import ENCODER_FILE, load_encoder
    from bertvision.store.store import Store
    from bertvision.training.extract import repair

    encoder = Path(path).parent / "encoder"
    default = str(encoder) if (encoder / ENCODER_FILE).exists() else str(Store(path).manifest["encoder"]["name"])
    repaired = repair(path, load_encoder(options.encoder or default))
    text = f"{path}: repaired {', '.join(map(str, repaired))}" if repaired else f"{path}: no damaged files"
    return {"store": path, "repaired": [damage.file for damage in repaired]}, text


def _prune(options: argparse.Namespace) -> Result:
    from bertvision.runs.folder import STORE_SOURCE
    from bertvision.store.prune import choose, delete, find_stores

    stores = find_stores([Path(folder) for folder in options.places], STORE_SOURCE)
    chosen = choose(stores, options.older_than, options.max_gb, options.orphaned)
    if options.yes:
        for store in chosen:
            delete(store.folder)
    rows, lines = [], []
    for store in stores:
        row = {"store": str(store.folder), "bytes": store.bytes, "days": round(store.days, 2)}
        rows.append({**row, "orphaned": store.orphaned, "delete": store in chosen})
        lines.append(
            f"{'delete' if store in chosen else 'keep':7}{store.bytes / 1e9:>9.2f} GB{row['days']:>8.1f} days  "
            f"{store.folder}{'  (orphaned)' if store.orphaned else ''}"
        )
    size = sum(store.bytes for store in chosen) / 1e9
    status = "deleted" if options.yes else "would be deleted; add --yes to delete"
    lines.append(f"{len(chosen)} stores, {size:.2f} GB {status}")
    return {"stores": rows, "deleted": options.yes}, "\n".join(lines)
