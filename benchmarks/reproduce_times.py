"""Seconds of single `bertvision reproduce NAME`, after what several tables and figures share was made.

python benchmarks/reproduce_times.py DATA RUNS results/reproduce_times.csv [NAME...]

RUNS is the folder of a finished `bertvision reproduce all --out RUNS`. Of every item what only it needs is deleted,
and all its heads, though others may need them too; then it is made again by the command, with nothing beside it.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from bertvision.reproduce.entries import heads_by_run
from bertvision.reproduce.plan import base_of, sources_of
from bertvision.reproduce.recipes import Item, Line, Source, all_items, shared_at
from bertvision.reproduce.workshop import Workshop, scaled_method
from bertvision.runtime import Timer
from rows import Rows

SCALE = "laptop"
OF_HEADS = ("analysis", "mixed", "concluded.json", "leaderboard.json")
"""What a run tells of its heads."""


def main() -> None:
    data, runs, path, *names = sys.argv[1:]
    items, shop = all_items(), Workshop(shared_at(SCALE), None, Path(runs) / SCALE)
    users = Counter(place for item in items.values() for place in set(_places(item, shop)))
    rows = Rows(Path(path))
    for name in names or items:
        heads = _forget(items[name], shop, users)
        timer, before = Timer(), _processor_seconds()
        command = ["bertvision", "reproduce", name, "--scale", SCALE, "--data", data, "--out", runs]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = {"seconds": round(timer.seconds, 1), "processor_seconds": round(_processor_seconds() - before, 1)}
        rows.drop(item=name)
        rows.add({"item": name, "heads": heads, "threads": torch.get_num_threads(), **took})
        print(f"{name}: {heads} heads, {took}", flush=True)


def _processor_seconds() -> float:
    """Of the commands so far, all threads together: on a busy machine it tells what was work and what was waiting."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _forget(item: Item, shop: Workshop, users: Counter[Path]) -> int:
    """Delete what only this item needs, its heads and its answer; how many heads that were."""
    for place in set(_places(item, shop)):
        if users[place] == 1:
            _delete(place)
    lines = [shop.shared.narrowed(line) for line in item.lines if line.only in (None, SCALE)]
    wanted = heads_by_run(lines)
    for label, specs in wanted.items():
        name, _, data = label.partition("/")
        for part in (*OF_HEADS, *(f"heads/{spec}" for spec in specs)):
            _delete(shop.run_place(name, data or None) / part)
    if {"inference", "inference_ratio"} & set(item.metrics):
        _delete(shop.out / "times")
    _delete(shop.out / "items" / f"{item.name}.json")
    return sum(map(len, wanted.values()))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _places(item: Item, shop: Workshop) -> Iterator[Path]:
    """Folders that an item's rows are read from, and those of the encoders below them."""
    for line in item.lines:
        if line.only in (None, shop.shared.scale):
            for source in sources_of(line, shop.shared):
                yield _place(line, source, shop)
                yield from _below(line, source, shop)
            if line.limited:
                yield from (shop.out / "limited").glob(f"{line.run}-{line.share:g}-*")


def _place(line: Line, source: Source, shop: Workshop) -> Path:
    if source.kind == "tune":
        method = scaled_method(line.method, *shop.shared.shapes[base_of(shop.shared, source)])
        return shop.tuned_place(source.name, line.data, method, line.head)
    return shop.run_place(source.name, line.data) if source.kind == "run" else shop.out / "curve" / source.name


def _below(line: Line, source: Source, shop: Workshop) -> Iterator[Path]:
    while source.encoder not in shop.shared.encoders:
        name, at, _ = source.encoder.partition("@")
        source = shop.source("curve" if at else "tune", name)
        data = None if source.data else line.data
        yield shop.out / "curve" / name if at else shop.tuned_place(name, data, "full", None)


if __name__ == "__main__":
    main()
