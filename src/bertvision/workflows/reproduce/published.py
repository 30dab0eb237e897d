"""What the papers print, and what they claim, as data."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bertvision.core.config import from_mapping
from bertvision.core.errors import BadInput
from bertvision.core.registry import unknown
from bertvision.workflows.reproduce.specs import recipes_folder

COLUMNS = ("item", "row", "metric", "value", "printed", "source", "note")
RULES = ("more", "as-good", "about", "not-more")
QUANTITIES = ("score", "value", "efficiency", "length")
AMONG = ("all", "answerable", "unanswerable")


@dataclass(frozen=True)
class Number:
    """One published number; ``printed`` is what stands there where that is a misprint."""

    item: str
    row: str
    metric: str
    value: float
    printed: float | None
    source: str
    note: str


@dataclass(frozen=True)
class Check:
    """One comparison that a claim comes down to: row a against row b, or against a number.

    ``more``: a is above b by more than the margin. ``as-good``: a is not further than the margin below.
    ``about``: they are no further apart than the margin. ``not-more``: a is not above by more than the margin.
    Rows with a star stand for all that match, and are averaged.
    """

    item: str
    a: str
    says: str
    b: str | None = None
    number: float | None = None
    metric: str = ""  # empty: the task's own
    margin: float = 0.0
    of: str = "score"  # of paired answers; value: as in the table; efficiency; length: of contexts only one gets right
    among: str = "all"  # answerable or unanswerable questions
    silence: bool = False  # that nothing was learned is what it is about
    not_at: str = ""  # a scale that cannot decide it,
    because: str = ""  # and why

    def __post_init__(self) -> None:
        asked = (("rule", self.says, RULES), ("quantity", self.of, QUANTITIES), ("choice", self.among, AMONG))
        for what, value, known in asked:
            if value not in known:
                raise BadInput(f"claims: {unknown(what, value, list(known))}")
        if (self.b is None) == (self.number is None):
            raise BadInput(f"claims: a test of {self.item} needs a row b or a number, one of both")


@dataclass(frozen=True)
class Claim:
    """Something that a paper says, and the tests that decide it: it holds if all of them do."""

    id: int
    text: str
    source: str
    tests: tuple[Check, ...]


@cache
def published() -> tuple[Number, ...]:
    """All rows of ``published.csv``."""
    path = recipes_folder() / "published.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_number(row) for row in csv.DictReader(file))


def _number(row: Mapping[str, str]) -> Number:
    texts = {key: row[key] for key in ("item", "row", "metric", "source", "note")}
    return Number(value=float(row["value"]), printed=float(row["printed"]) if row["printed"] else None, **texts)


def published_of(item: str) -> dict[str, dict[str, float]]:
    """By row and metric, misprints corrected."""
    found: dict[str, dict[str, float]] = {}
    for one in published():
        if one.item == item:
            found.setdefault(one.row, {})[one.metric] = one.value
    return found


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in order."""
    values = tomllib.loads((recipes_folder() / "claims.toml").read_text(encoding="utf-8"))
    return tuple(_claim(table) for table in values["claim"])


def _claim(table: Mapping[str, Any]) -> Claim:
    where = f"claims.toml, claim {table.get('id')}"
    tests = tuple(from_mapping(Check, test, where) for test in table["test"])
    return Claim(int(table["id"]), str(table["text"]), str(table["source"]), tests)


def claims_of(item: str) -> list[Claim]:
    """Those that a table or figure helps to decide."""
    return [claim for claim in claims() if any(test.item == item for test in claim.tests)]
