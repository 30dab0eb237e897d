"""Seconds of what several tables and figures share, and of each `bertvision reproduce NAME` after that.

python benchmarks/reproduce_times.py DATA RUNS results/reproduce_times.csv [--after-others] [NAME...]

Everything is made at laptop scale below RUNS, with nothing beside it. First the checkpoints and stores that more than
one item needs, each with its control head; what is there already is not made or timed again. Then the items, by
their command: before each, what only it needs is deleted, and all its heads, though others may need them too. So a
row is what an item takes for itself. With --after-others nothing is deleted: a row is then what an item takes when
those before have made and fitted all that both need, and its heads are counted as 0. Interrupted, the same command goes
on; what is named, an item or something shared, is made and timed anew.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from os.path import abspath
from pathlib import Path

import torch

from bertvision.core.progress import Timer
from bertvision.workflows.reproduce.estimate import base_of, sources_of
from bertvision.workflows.reproduce.experiments import NoData, Workshop, scaled_method
from bertvision.workflows.reproduce.row_sources import heads_by_run
from bertvision.workflows.reproduce.specs import Item, Line, Source, all_items, shared_at
from rows import Rows

SCALE = "laptop"
SHARED, ITEM = "shared", "item"
AFTER = "--after-others"
OF_HEADS = ("analysis", "mixed", "concluded.json", "leaderboard.json")
"""What a run tells of its heads."""


@dataclass(frozen=True)
class Part:
    """A checkpoint, curve or run of the workshop: its folder, and how it is made."""

    place: Path
    make: Callable[[], object]


def main() -> None:
    data, runs, path, *names = [word for word in sys.argv[1:] if word != AFTER]
    items, shop = all_items(), Workshop(shared_at(SCALE), Path(abspath(data)), Path(abspath(runs)) / SCALE)
    parts = {item.name: {part.place: part for part in _parts(item, shop)} for item in items.values()}
    users = Counter(place for found in parts.values() for place in found)
    rows = Rows(Path(path))
    everything = {place: part for found in parts.values() for place, part in found.items()}
    shared = {str(place.relative_to(shop.out)): part for place, part in everything.items() if users[place] > 1}
    for name in [name for name in names if name in shared]:
        rows.drop(kind=SHARED, name=name)
        _delete(shared[name].place)
    _make_shared(shared, rows)
    asked = [name for name in names if name not in shared]
    for name in asked or [name for name in items if not rows.has(kind=ITEM, name=name)]:
        own = [place for place in parts[name] if users[place] == 1]
        heads = 0 if AFTER in sys.argv else _forget(items[name], shop, own)
        command = ["bertvision", "reproduce", name, "--scale", SCALE, "--data", data, "--out", runs]
        _timed(rows, ITEM, name, heads, partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL))


def _make_shared(parts: Mapping[str, Part], rows: Rows) -> None:
    for name, part in parts.items():
        if not rows.has(kind=SHARED, name=name):
            try:
                _timed(rows, SHARED, name, 0, part.make)
            except NoData as missing:
                print(f"{name}: {missing}", flush=True)


def _timed(rows: Rows, kind: str, name: str, heads: int, work: Callable[[], object]) -> None:
    timer, before = Timer(), _processor_seconds()
    work()
    took = {"seconds": round(timer.seconds, 1), "processor_seconds": round(_processor_seconds() - before, 1)}
    rows.drop(kind=kind, name=name)
    rows.add({"kind": kind, "name": name, "heads": heads, "threads": torch.get_num_threads(), **took})
    print(f"{kind} {name}: {heads} heads, {took}", flush=True)


def _processor_seconds() -> float:
    """Of all work so far, all threads together: on a busy machine it tells what was work and what was waiting."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _forget(item: Item, shop: Workshop, own: Iterable[Path]) -> int:
    """Delete what only this item needs, its heads and its answer; how many heads that were."""
    lines = [shop.shared.narrowed(line) for line in _lines(item)]
    limited = [place for line in lines if line.limited for place in _limited(line, shop)]
    for place in (*own, *limited):
        _delete(place)
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


def _lines(item: Item) -> list[Line]:
    return [line for line in item.lines if line.only in (None, SCALE)]


def _limited(line: Line, shop: Workshop) -> Iterator[Path]:
    return (shop.out / "limited").glob(f"{line.run}-{line.share:g}-*")


def _parts(item: Item, shop: Workshop) -> Iterator[Part]:
    """What an item's rows are read from, each after the encoders below it."""
    for line in _lines(item):
        for source in sources_of(line, shop.shared):
            yield from _below(source, line.data, shop)
            yield _part(line, source, shop)


def _part(line: Line, source: Source, shop: Workshop) -> Part:
    if source.kind == "tune":
        method = scaled_method(line.method, *shop.shared.shapes[base_of(shop.shared, source)])
        return _tuned(shop, source.name, line.data, method, line.head)
    if source.kind == "curve":
        return _curve(shop, source.name)
    return Part(shop.run_place(source.name, line.data), lambda: shop.run(source.name, line.data, []))


def _below(source: Source, data: str | None, shop: Workshop) -> Iterator[Part]:
    """Encoders that a source begins with, the lowest first."""
    if source.encoder in shop.shared.encoders:
        return
    name, at, _ = source.encoder.partition("@")
    below = shop.source("curve" if at else "tune", name)
    data = None if below.data else data
    yield from _below(below, data, shop)
    yield _curve(shop, name) if at else _tuned(shop, name, data, "full", None)


def _curve(shop: Workshop, name: str) -> Part:
    return Part(shop.out / "curve" / name, lambda: shop.curve(name))


def _tuned(shop: Workshop, name: str, data: str | None, method: str, head: str | None) -> Part:
    return Part(shop.tuned_place(name, data, method, head), lambda: shop.tuned(name, data, method, head))


if __name__ == "__main__":
    main()
