"""Published numbers and claims of the papers, as data."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from bertvision.core.config import from_mapping
from bertvision.core.errors import BadInput
from bertvision.core.registry import unknown_name
from bertvision.workflows.reproduce.defaults import RECIPES

RULES = ("more", "as-good", "about", "not-more")
QUANTITIES = ("score", "value", "efficiency", "length")
AMONG = ("all", "answerable", "unanswerable")
MAX_NAMES = 4
"""More names than this are counted instead of listed."""


@dataclass(frozen=True)
class Number:
    """One published number; ``printed`` is the number in the paper if that is a misprint."""

    item: str
    row: str
    metric: str
    value: float
    printed: float | None
    source: str
    note: str

    @property
    def is_corrected(self) -> bool:
        return self.printed is not None and self.printed != self.value


@dataclass(frozen=True)
class Check:
    """One comparison of a claim: row a against row b, or against a number.

    ``more``: a is above b by more than the margin. ``as-good``: a is at most the margin below b. ``about``: they differ
    by at most the margin. ``not-more``: a is at most the margin above b. A star in names stands for all rows that
    match; their differences are averaged.
    """

    item: str
    a: str
    says: str
    b: str | None = None
    number: float | None = None
    metric: str = ""  # empty: the task's own
    margin: float = 0.0
    of: str = "score"  # paired; value: of the table; efficiency; length: of contexts that only one has right
    among: str = "all"  # answerable or unanswerable questions
    nothing_learned: bool = False  # the claim is that nothing is learned, so it is decided then too
    not_at: str = ""  # a scale at which it is not tested,
    because: str = ""  # and why

    def __post_init__(self) -> None:
        choices = (("rule", self.says, RULES), ("quantity", self.of, QUANTITIES), ("choice", self.among, AMONG))
        for name, value, allowed in choices:
            if value not in allowed:
                raise BadInput(f"claims: {unknown_name(name, value, list(allowed))}")
        if (self.b is None) == (self.number is None):
            raise BadInput(f"claims: a test of {self.item} needs either a row b or a number")


@dataclass(frozen=True)
class Claim:
    """A statement of a paper and its tests: it holds if all of them do."""

    id: int
    text: str
    source: str
    tests: tuple[Check, ...]


@cache
def published() -> tuple[Number, ...]:
    """All rows of ``published.csv``."""
    with (RECIPES / "published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Number(
                row["item"],
                row["row"],
                row["metric"],
                float(row["value"]),
                float(row["printed"]) if row["printed"] else None,
                row["source"],
                row["note"],
            )
            for row in csv.DictReader(file)
        )


def published_of(item: str) -> dict[str, dict[str, float]]:
    """Published values of an item by row and metric, with misprints corrected."""
    values: dict[str, dict[str, float]] = {}
    for number in published():
        if number.item == item:
            values.setdefault(number.row, {})[number.metric] = number.value
    return values


def published_notes(item: str) -> list[str]:
    """Notes on the published numbers of an item, each once; corrections of misprints first."""
    corrected: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}
    for number in published():
        if number.item == item and number.note:
            if number.is_corrected:
                text = f"{number.row}, {number.metric}: {number.value:,.10g} for {number.printed:,.10g}"
                corrected.setdefault(number.note, []).append(text)
            else:
                noted.setdefault(number.note, []).append(number.row)
    lines = [f"Published, corrected: {_list_or_count(texts, 'numbers')} ({note})." for note, texts in corrected.items()]
    for note, rows in noted.items():
        if note not in corrected:
            lines.append(f"Published, {_list_or_count(list(dict.fromkeys(rows)), 'rows')}: {note}.")
    return lines


def _list_or_count(names: Sequence[str], what: str) -> str:
    return "; ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} {what}"


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in order."""
    values = tomllib.loads((RECIPES / "claims.toml").read_text(encoding="utf-8"))
    all_claims = []
    for table in values["claim"]:
        where = f"claims.toml, claim {table.get('id')}"
        tests = tuple(from_mapping(Check, test, where) for test in table["test"])
        all_claims.append(Claim(int(table["id"]), str(table["text"]), str(table["source"]), tests))
    return tuple(all_claims)


def claims_of(item: str) -> list[Claim]:
    """Claims with a test on this table or figure."""
    return [claim for claim in claims() if any(test.item == item for test in claim.tests)]
