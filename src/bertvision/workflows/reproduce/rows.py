"""Every row of a recipe, by whatever it is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean, median

from bertvision.core.files import hash_json, read_json_or_empty, write_json
from bertvision.core.progress import Timer
from bertvision.encoders.loading import load_encoder
from bertvision.model import own_model
from bertvision.workflows.reproduce.analysis_rows import ablated, history, limited_share, looked_at, on_share
from bertvision.workflows.reproduce.experiments import Missing, NoData, NotHere, Workshop
from bertvision.workflows.reproduce.published import published_of
from bertvision.workflows.reproduce.row_sources import (
    NOBODY,
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
from bertvision.workflows.reproduce.specs import MIX, Item, Line

EXAMPLES, ROUNDS = 16, 9

OUTER = 1
"""Rounds left out at either end: of nine the second and the eighth enclose the median with 96 %."""

Maker = Callable[[Workshop, Line, list[str]], Entry]


def with_times(shop: Workshop, item: Item, entries: Sequence[Entry]) -> list[Entry]:
    """Seconds for 1,000 examples, and the ratio to the first row with the interval of its median over rounds."""
    tuned = {one.made for one, line in zip(entries, item.lines, strict=True) if line.tune and one.answers}
    if not {"inference", "inference_ratio"} & set(item.metrics) or not tuned:
        return list(entries)
    first = next(one.made for one in entries if one.made in tuned)
    seconds = _seconds(shop, [first, *sorted(tuned - {first})], entries)
    return [_timed(one, seconds, first) if one.made in seconds else one for one in entries]


def _timed(one: Entry, seconds: dict[str, list[float]], first: str) -> Entry:
    ratios = [mine / theirs for mine, theirs in zip(seconds[one.made], seconds[first], strict=True)]
    values = {"inference": median(seconds[one.made]), "inference_ratio": median(ratios)}
    low, *_, high = sorted(ratios)[OUTER:-OUTER]
    return replace(one, values={**one.values, **values}, ends={**one.ends, "inference_ratio": (low, high)})


def _seconds(shop: Workshop, places: Sequence[str], entries: Sequence[Entry]) -> dict[str, list[float]]:
    """Measured once for the same encoders, as they were tuned."""
    made_from = hash_json([read_json_or_empty(Path(place) / "own.json") for place in places])
    path = shop.out / "times" / f"{made_from}.json"
    known = read_json_or_empty(path)
    if known:
        return {place: list(map(float, known[place])) for place in places}
    task = next(one.task for one in entries if one.made == places[0])
    assert task is not None
    models = {place: own_model(load_encoder(str(Path(place) / "encoder")), task) for place in places}
    found: dict[str, list[float]] = {place: [] for place in places}
    for _ in range(ROUNDS):
        for place, model in models.items():
            timer, asked = Timer(), task["dev"][:EXAMPLES]
            model.outputs(asked)
            found[place].append(1000 * timer.seconds / len(asked))
    write_json(path, found)
    return found


def entries_of(shop: Workshop, item: Item) -> list[Entry]:
    """All rows of a table; a row that cannot be made says why."""
    heads = heads_by_run([shop.shared.narrowed(line) for line in item.lines])
    found: list[Entry] = []
    for line in item.lines:
        means = None if line.mean is None else mean_entry(line, found, published_of(item.name))
        found.append(means or entry(shop, line, heads.get(run_label(line), [])))
    return with_times(shop, item, found)


def mean_entry(line: Line, entries: Sequence[Entry], printed: Mapping[str, Mapping[str, float]]) -> Entry:
    """The mean of the tasks' metrics over the rows above that match, and the paper's over the same rows."""
    known = [
        (one.row, one.task.metric, one.values[one.task.metric])
        for one in entries
        if fnmatchcase(one.row, str(line.mean)) and one.task and not one.missing
    ]
    if not known:
        return Entry(line.row, missing=NoData("none of these rows has any"))
    theirs = [printed[row][metric] for row, metric, _ in known if metric in printed.get(row, {})]
    same = {"paper_mean_of_these": fmean(theirs)} if len(theirs) == len(known) else {}
    return Entry(line.row, {"mean": fmean(score for *_, score in known), "of": float(len(known)), **same})


def entry(shop: Workshop, line: Line, heads: list[str]) -> Entry:
    """One row; where it cannot be made, what can be told all the same."""
    try:
        if line.only not in (None, shop.shared.scale):
            raise NotHere(f"this row is for {line.only} scale")
        made = maker_of(line)(shop, shop.shared.narrowed(line), heads)
    except Missing as missing:
        made = Entry(line.row, missing=missing)
    if line.run is None or line.who.startswith(MIX) or line.who == NOBODY:
        return made
    spec = head_of(line.who)
    share = 100.0 if spec is None else counted(line, spec)["percent"]
    return replace(made, values={**made.values, "percent": share})


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
