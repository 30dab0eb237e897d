"""What a table or figure was made from, as one hash: documents of other recipes or encoders are not mixed with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.files import hash_json, hashed_fields
from bertvision.workflows.reproduce.estimate import chain_below, sources_of
from bertvision.workflows.reproduce.specs import DataSet, Item, Line, Shared

WORDS = ("about", "url", "windows", "learned", "tokens")
"""Of a data set: what is told of it, and sizes for plans. They change nothing that is made."""


def origin(item: Item, shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()) -> str:
    """Of everything that decides the rows: the recipe's lines, what lies below them, data, seeds, encoders."""
    facts = [_line_facts(line, shared) for line in shared.lines_of(item)]
    fits = {"seeds": shared.seeds, "once": shared.once, "often": shared.often}
    return hash_json([item.kind, list(item.metrics), facts, fits, encoder, list(settings)])


def _line_facts(line: Line, shared: Shared) -> dict[str, Any]:
    below = [one for source in sources_of(line, shared) for one in chain_below(shared, source)]
    names = [line.data, *(source.data for source in below)]
    data = {name: _data_facts(shared.data[name]) for name in names if name is not None}
    encoders = {source.encoder: shared.encoders.get(source.encoder) for source in below}
    return {
        "line": hashed_fields(line),
        "below": [hashed_fields(one) for one in below],
        "data": data,
        "encoders": encoders,
    }


def _data_facts(data: DataSet) -> Mapping[str, Any]:
    return {key: value for key, value in hashed_fields(data).items() if key not in WORDS}
