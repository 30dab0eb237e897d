"""Commands around stores: plan, info, verify, repair and prune."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bertvision.cli.options import add_data, add_encoder, add_heads, add_set, recipe_from
from bertvision.core.errors import BadInput

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    plan = commands.add_parser("plan", help="bytes, minutes and memory of every kind of store, before anything runs")
    plan.add_argument("--to", default=".", metavar="FOLDER", help="on whose disk the store would be; default here")
    plan.add_argument("--layers", metavar="all|last4|first6|every2|0+3+6", help="states to store; 0: embeddings")
    plan.add_argument("--max-gb", type=float, metavar="X", help="most that a store may take")
    add_heads(plan, "what is to be fitted; default quick")
    for add in (add_data, add_encoder, add_set):
        add(plan)
    plan.set_defaults(run=_plan)

    store = commands.add_parser("store", help="look at stores, check, repair and delete them")
    store.add_argument("what", choices=("info", "verify", "prune"), help="facts; checksums; delete what nobody needs")
    store.add_argument(
        "places", nargs="+", metavar="STORE", help="what extract made (prune: folders with stores in them)"
    )
    check = store.add_argument_group("verify")
    check.add_argument("--repair", action="store_true", help="make damaged shards again, and only those")
    check.add_argument("--encoder", metavar="E", help="what the store was made with; found in RUN/encoder if not given")
    prune = store.add_argument_group("prune: shows what it would delete")
    prune.add_argument("--older-than", type=float, metavar="DAYS", help="stores written longer ago")
    prune.add_argument("--max-gb", type=float, metavar="X", help="the oldest, until the rest is no more than this")
    prune.add_argument("--orphaned", action="store_true", help="stores of no run with heads, and unfinished ones")
    prune.add_argument("--yes", action="store_true", help="really delete")
    store.set_defaults(run=_store)


def _plan(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.estimate import plan, plan_text
    from bertvision.training.inputs import check_heads

    recipe = recipe_from(options)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    heads = check_heads(recipe.heads, task, encoder, recipe.extract.layers)
    document = plan(recipe, encoder, task, heads, Path(options.to))
    return document, plan_text(document)


def _store(options: argparse.Namespace) -> Result:
    if options.what == "prune":
        return _prune(options)
    if len(options.places) > 1:
        raise BadInput(f"store {options.what} takes one store, got {len(options.places)}")
    return _info(options.places[0]) if options.what == "info" else _verify(options.places[0], options)


def _info(place: str) -> Result:
    from bertvision.store.store import Store

    manifest = Store(place).manifest
    splits = {name: {k: v for k, v in s.items() if k != "shards"} for name, s in manifest["splits"].items()}
    facts = {key: manifest[key] for key in ("id", "shape", "layers", "dtype", "own", "fingerprint")}
    facts |= {"tokens": manifest.get("tokens", "all"), "encoder": manifest["encoder"]["name"], "splits": splits}
    shards = {name: len(split["shards"]) for name, split in manifest["splits"].items()}
    lines = [
        f"{n:6} {s['windows']:>9,} windows {s['tokens']:>12,} tokens {s['bytes'] / 1e6:>12,.1f} MB, {shards[n]} shards"
        for n, s in splits.items()
    ]
    head = f"store {manifest['id']}: {facts['encoder']}, layers {manifest['layers']}, tokens {facts['tokens']}, "
    return facts, "\n".join([f"{head}{manifest['dtype']}", *lines])


def _verify(place: str, options: argparse.Namespace) -> Result:
    from bertvision.store.store import Store, damages, recorded

    if options.repair:
        return _repair(place, options.encoder)
    store = Store(place)
    found = damages(store)
    count = sum(1 for _ in recorded(store.manifest))
    if found:
        named = ", ".join(map(str, found[:5])) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise BadInput(
            f"store {place}: {len(found)} of {count} files are damaged: {named}; "
            f"make them again with: bertvision store verify {place} --repair"
        )
    return {"store": place, "files": count, "damaged": []}, f"{place}: {count} files are what was written"


def _repair(place: str, name: str | None) -> Result:
    from bertvision.encoders.loading import RECORD, load_encoder
    from bertvision.store.store import Store
    from bertvision.training.extract import repair

    beside = Path(place).parent / "encoder"
    own = str(beside) if (beside / RECORD).exists() else str(Store(place).manifest["encoder"]["name"])
    made = repair(place, load_encoder(name or own))
    text = f"{place}: made again: {', '.join(map(str, made))}" if made else f"{place}: nothing is damaged"
    return {"store": place, "repaired": [damage.file for damage in made]}, text


def _prune(options: argparse.Namespace) -> Result:
    from bertvision.runs.folder import STORE_SOURCE
    from bertvision.store.prune import choose, delete, find_stores

    stores = find_stores([Path(place) for place in options.places], STORE_SOURCE)
    chosen = choose(stores, options.older_than, options.max_gb, options.orphaned)
    if options.yes:
        for store in chosen:
            delete(store)
    rows: list[dict[str, Any]] = [
        {
            "store": str(s.folder),
            "bytes": s.bytes,
            "days": round(s.days, 2),
            "orphaned": s.orphaned,
            "delete": s in chosen,
        }
        for s in stores
    ]
    lines = [
        f"{'delete' if row['delete'] else 'keep':7}{row['bytes'] / 1e9:>9.2f} GB{row['days']:>8.1f} days  "
        f"{row['store']}{'  (orphaned)' if row['orphaned'] else ''}"
        for row in rows
    ]
    size = sum(store.bytes for store in chosen) / 1e9
    done = "deleted" if options.yes else "to delete; nothing is deleted without --yes"
    return {"stores": rows, "deleted": options.yes}, "\n".join([*lines, f"{len(chosen)} stores, {size:.2f} GB {done}"])
