"""Commands around stores: plan, info, verify, repair and prune."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, add_data, add_encoder, add_heads, add_set, add_settings, recipe_from
from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput

SHOWN = 5
"""Damaged files that an error names."""


def add_commands(commands: Any) -> None:
    plan = commands.add_parser("plan", help="size, time and memory of every kind of store, before anything runs")
    plan.add_argument("--to", default=".", metavar="FOLDER", help="folder on the disk to check for space; default here")
    add_settings(plan, ExtractConfig, ("layers", "max_gb"))
    add_heads(plan, "heads to be fitted; default quick")
    for add in (add_data, add_encoder, add_set):
        add(plan)

    store = commands.add_parser("store", help="inspect, verify, repair and delete stores")
    store.add_argument("what", choices=("info", "verify", "prune"), help="facts; checksums; delete unneeded stores")
    store.add_argument(
        "places", nargs="+", metavar="STORE", help="folder or URL of a store (prune: folders that contain stores)"
    )
    check = store.add_argument_group("verify")
    check.add_argument("--repair", action="store_true", help="make damaged shards again, and only those")
    check.add_argument("--encoder", metavar="E", help="encoder of the store; default: RUN/encoder, or as recorded")
    prune = store.add_argument_group("prune: shows what it would delete")
    prune.add_argument("--older-than", type=float, metavar="DAYS", help="stores written more than DAYS ago")
    prune.add_argument(
        "--max-gb", type=float, metavar="X", help="the oldest ones, until the rest fits into X gigabytes"
    )
    prune.add_argument("--orphaned", action="store_true", help="stores that no run with heads uses; unfinished ones")
    prune.add_argument("--yes", action="store_true", help="really delete")


def plan_command(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.estimate import plan, plan_text
    from bertvision.training.inputs import check_heads

    recipe = recipe_from(options)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    heads = check_heads(recipe.heads, task, encoder, recipe.extract.layers)
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
    lines = [
        f"store {manifest['id']}: {facts['encoder']}, layers {manifest['layers']}, tokens {facts['tokens']}, "
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
        more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
        raise BadInput(
            f"store {path}: {len(damaged)} of {count} files are damaged: {', '.join(map(str, damaged[:SHOWN]))}{more}; "
            f"make them again with: bertvision store verify {path} --repair"
        )
    return {"store": path, "files": count, "damaged": []}, f"{path}: {count} files are what was written"


def _repair(path: str, options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import ENCODER_FILE, load_encoder
    from bertvision.store.store import Store
    from bertvision.training.extract import repair

    encoder = Path(path).parent / "encoder"
    default = str(encoder) if (encoder / ENCODER_FILE).exists() else str(Store(path).manifest["encoder"]["name"])
    repaired = repair(path, load_encoder(options.encoder or default))
    text = f"{path}: made again: {', '.join(map(str, repaired))}" if repaired else f"{path}: nothing is damaged"
    return {"store": path, "repaired": [damage.file for damage in repaired]}, text


def _prune(options: argparse.Namespace) -> Result:
    from bertvision.runs.folder import STORE_SOURCE
    from bertvision.store.prune import choose, delete, find_stores

    stores = find_stores([Path(folder) for folder in options.places], STORE_SOURCE)
    chosen = choose(stores, options.older_than, options.max_gb, options.orphaned)
    if options.yes:
        for store in chosen:
            delete(store)
    rows, lines = [], []
    for store in stores:
        row = {"store": str(store.folder), "bytes": store.bytes, "days": round(store.days, 2)}
        rows.append({**row, "orphaned": store.orphaned, "delete": store in chosen})
        lines.append(
            f"{'delete' if store in chosen else 'keep':7}{store.bytes / 1e9:>9.2f} GB{row['days']:>8.1f} days  "
            f"{store.folder}{'  (orphaned)' if store.orphaned else ''}"
        )
    size = sum(store.bytes for store in chosen) / 1e9
    done = "deleted" if options.yes else "to delete; nothing is deleted without --yes"
    lines.append(f"{len(chosen)} stores, {size:.2f} GB {done}")
    return {"stores": rows, "deleted": options.yes}, "\n".join(lines)
