"""How long tuned encoders take to answer, heads and all, taken in turns so that a busy machine slows all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bertvision.core.files import hash_json
from bertvision.core.runtime import Timer, known_json, write_json
from bertvision.encoders.loading import load_encoder
from bertvision.model import own_model
from bertvision.workflows.reproduce.experiments import Workshop
from bertvision.workflows.reproduce.row_sources import Entry
from bertvision.workflows.reproduce.specs import Item

EXAMPLES, ROUNDS = 16, 9
OUTER = 1
"""Rounds left out at either end: of nine the second and the eighth enclose the median with 96 %."""


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
    made_from = hash_json([known_json(Path(place) / "own.json") for place in places])
    path = shop.out / "times" / f"{made_from}.json"
    known = known_json(path)
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
