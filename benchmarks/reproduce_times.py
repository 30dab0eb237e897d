"""Measure the seconds of the work that tables and figures share, and of each `bertvision reproduce NAME` after it.

python benchmarks/reproduce_times.py DATA RUNS results/reproduce_times.csv [--after-others] [NAME...]

Everything is made at laptop scale below RUNS. First the checkpoints and stores that more than one item needs, each with
its control head; existing ones are neither made nor timed again. Then the items, by their command. What only this item
needs is deleted before it, and all of its heads, so a row is the time of the item alone. With --after-others nothing is
deleted: a row is then the time after the items before it, and its heads are counted as 0. Rerun the same command to
resume; a named item or shared part is made and timed again.
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
from bertvision.workflows.reproduce.experiments import Experiments, NoData, scaled_method
from bertvision.workflows.reproduce.specs import (
    Item,
    RowSpec,
    Source,
    SubsetRow,
    TunedRow,
    all_items,
    heads_by_run,
    shared_at,
)
from rows import Rows

SCALE = "laptop"
SHARED, ITEM = "shared", "item"
AFTER = "--after-others"
HEAD_DEPENDENT = ("analysis", "mixed", "concluded.json", "leaderboard.json")
"""Files of a run that depend on its heads."""


@dataclass(frozen=True)
class Part:
    """A checkpoint, curve or run of the experiments: its folder, and the function that makes it."""

    path: Path
    make: Callable[[], object]


def main() -> None:
    data, runs, csv, *names = [word for word in sys.argv[1:] if word != AFTER]
    items, experiments = all_items(), Experiments(shared_at(SCALE), Path(abspath(data)), Path(abspath(runs)) / SCALE)
    parts = {item.name: {part.path: part for part in _parts(item, experiments)} for item in items.values()}
    users = Counter(path for of_item in parts.values() for path in of_item)
    rows = Rows(Path(csv))
    everything = {path: part for of_item in parts.values() for path, part in of_item.items()}
    shared = {str(path.relative_to(experiments.out)): part for path, part in everything.items() if users[path] > 1}
    for name in [name for name in names if name in shared]:
        rows.drop(kind=SHARED, name=name)
        _delete(shared[name].path)
    _make_shared(shared, rows)
    selected = [name for name in names if name not in shared]
    for name in selected or [name for name in items if not rows.has(kind=ITEM, name=name)]:
        own_paths = [path for path in parts[name] if users[path] == 1]
        heads = 0 if AFTER in sys.argv else _delete_results(items[name], experiments, own_paths)
        command = ["bertvision", "reproduce", name, "--scale", SCALE, "--data", data, "--out", runs]
        _time(rows, ITEM, name, heads, partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL))


def _make_shared(parts: Mapping[str, Part], rows: Rows) -> None:
    for name, part in parts.items():
        if not rows.has(kind=SHARED, name=name):
            try:
                _time(rows, SHARED, name, 0, part.make)
            except NoData as missing:
                print(f"{name}: {missing}", flush=True)


def _time(rows: Rows, kind: str, name: str, heads: int, work: Callable[[], object]) -> None:
    timer, before = Timer(), _processor_seconds()
    work()
    seconds = {"seconds": round(timer.seconds, 1), "processor_seconds": round(_processor_seconds() - before, 1)}
    rows.drop(kind=kind, name=name)
    rows.add({"kind": kind, "name": name, "heads": heads, "threads": torch.get_num_threads(), **seconds})
    print(f"{kind} {name}: {heads} heads, {seconds}", flush=True)


def _processor_seconds() -> float:
    """Processor time of all threads so far, which leaves out waiting on a busy machine."""
    usage = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(process.ru_utime + process.ru_stime for process in usage)


def _delete_results(item: Item, experiments: Experiments, own_paths: Iterable[Path]) -> int:
    """Delete everything that only this item needs, its heads and its document; returns the number of heads."""
    rows = experiments.shared.rows_of(item)
    subset_folders = [folder for row in rows for folder in _subset_folders(row, experiments)]
    for path in (*own_paths, *subset_folders):
        _delete(path)
    heads_of_runs = heads_by_run(rows)
    for label, specs in heads_of_runs.items():
        name, _, data = label.partition("/")
        for part in (*HEAD_DEPENDENT, *(f"heads/{spec}" for spec in specs)):
            _delete(experiments.run_folder(name, data or None) / part)
    if {"inference", "inference_ratio"} & set(item.metrics):
        _delete(experiments.out / "times")
    _delete(experiments.out / "items" / f"{item.name}.json")
    return sum(map(len, heads_of_runs.values()))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _subset_folders(row: RowSpec, experiments: Experiments) -> Iterator[Path]:
    if isinstance(row, SubsetRow) and row.limited:
        yield from (experiments.out / "limited").glob(f"{row.run}-{row.share:g}-*")


def _parts(item: Item, experiments: Experiments) -> Iterator[Part]:
    """Sources of an item's rows, each after the encoders that it needs."""
    for row in experiments.shared.rows_of(item):
        source = experiments.shared.source_of(row)
        if source is not None:
            yield from _encoders_of(source, row.data, experiments)
            yield _part(row, source, experiments)


def _part(row: RowSpec, source: Source, experiments: Experiments) -> Part:
    if isinstance(row, TunedRow):
        method = scaled_method(row.method, *experiments.shared.shapes[experiments.shared.base_encoder(source)])
        return _tuned(experiments, source.name, row.data, method, row.head)
    if source.kind == "curve":
        return _curve(experiments, source.name)
    folder = experiments.run_folder(source.name, row.data)
    return Part(folder, lambda: experiments.run(source.name, row.data, []))


def _encoders_of(source: Source, data: str | None, experiments: Experiments) -> Iterator[Part]:
    """Encoders that a source starts from, the first one first."""
    if source.encoder in experiments.shared.encoders:
        return
    name, is_checkpoint, _ = source.encoder.partition("@")
    source_below = experiments.source("curve" if is_checkpoint else "tune", name)
    data = None if source_below.data else data
    yield from _encoders_of(source_below, data, experiments)
    yield _curve(experiments, name) if is_checkpoint else _tuned(experiments, name, data, "full", None)


def _curve(experiments: Experiments, name: str) -> Part:
    return Part(experiments.out / "curve" / name, lambda: experiments.curve(name))


def _tuned(experiments: Experiments, name: str, data: str | None, method: str, head: str | None) -> Part:
    return Part(experiments.tuned_folder(name, data, method, head), lambda: experiments.tuned(name, data, method, head))


if __name__ == "__main__":
    main()
