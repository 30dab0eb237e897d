"""Every row of a recipe, by whatever it is made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from statistics import fmean

from bertvision.reproduce.entries import (
    MIX,
    Entry,
    board_entry,
    count_entry,
    counted,
    curve_entry,
    head_of,
    heads_by_run,
    run_label,
    tune_entry,
)
from bertvision.reproduce.looks import ablated, history, limited_share, looked_at, on_share
from bertvision.reproduce.recipes import Item, Line
from bertvision.reproduce.timing import with_times
from bertvision.reproduce.workshop import NoData, Workshop

Maker = Callable[[Workshop, Line, list[str]], Entry]


def entries_of(shop: Workshop, item: Item) -> list[Entry]:
    """All rows of a table; a row whose data is missing says so."""
    heads = heads_by_run(item.lines)
    found: list[Entry] = []
    for line in item.lines:
        means = None if line.mean is None else mean_entry(line, found)
        found.append(means or entry(shop, line, heads.get(run_label(line), [])))
    return with_times(shop, item, found)


def mean_entry(line: Line, entries: Sequence[Entry]) -> Entry:
    """The mean of the tasks' metrics over the rows above that match."""
    known = [one for one in entries if fnmatchcase(one.row, str(line.mean)) and one.task and not one.missing]
    scores = [one.values[one.task.metric] for one in known if one.task is not None]
    if not scores:
        return Entry(line.row, missing="none of the rows has data")
    return Entry(line.row, {"mean": fmean(scores), "of": float(len(scores))})


def entry(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """One row; where data is missing, what can be told without."""
    try:
        if line.only not in (None, shop.shared.scale):
            raise NoData(f"this row is for {line.only} scale")
        made = maker_of(line)(shop, line, heads)
    except NoData as missing:
        made = Entry(line.row, missing=str(missing))
    spec = None if line.run is None or line.who.startswith(MIX) else head_of(line.who)
    share = {} if spec is None else {"percent": counted(line, spec)["percent"]}
    return replace(made, values={**made.values, **share})


def maker_of(line: Line) -> Maker:
    """What makes a row, by what it names."""
    if line.count is not None:
        return lambda _shop, one, _heads: count_entry(one)
    if line.curve is not None:
        return lambda shop, one, _heads: curve_entry(shop, one)
    if line.tune is not None:
        make = tune_entry if line.without is None else ablated
        return lambda shop, one, _heads: make(shop, one)
    if line.study is not None:
        return looked_at
    if line.epoch is not None:
        return history
    if line.share is not None:
        return limited_share if line.limited else on_share
    return board_entry
