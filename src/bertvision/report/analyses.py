"""The findings of a run, one after the other: how to read it, pictures, table, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.analyse.finding import Finding
from bertvision.report.facts import Run
from bertvision.report.markup import NOTHING, Html, Section, cut, facts, join, number, section, table, tag
from bertvision.report.plots import draw

ELSEWHERE = ("layer-weights", "calibration")
"""What the report has sections of its own for."""
ORDER = (
    "answer-types",
    "second-best",
    "agreement",
    "question-word",
    "answer-length",
    "context-length",
    "layers",
    "depth",
    "ablation",
    "learning-curve",
    "cost",
)
LONGEST_CELL, LONGEST_TEXT = 60, 400
MOST_ROWS = 40
SORTS = {"only_a": "only the first right", "only_b": "only the second right"}


def analyses_section(run: Run) -> Section | None:
    """Nothing if nothing was analysed."""
    known = {one.name: one for one in run.findings if one.name not in ELSEWHERE}
    names = [name for name in ORDER if name in known] + [name for name in known if name not in ORDER]
    if not names:
        return None
    parts = [part for name in names for part in _finding(known[name])]
    return section("analyses", "Analyses", *parts)


def _finding(one: Finding) -> list[Html]:
    pictures = [tag("figure", draw(plot)) for plot in one.plots]
    body = tag("div", *pictures, class_="panels wide") if len(pictures) > 1 else join(pictures)
    return [tag("h3", one.title), tag("p", one.about), body, _table(one), *_examples(one.examples)]


def _table(one: Finding) -> Html:
    head = list(one.columns.values())
    rows = [[_cell(row.get(key)) for key in one.columns] for row in one.rows[:MOST_ROWS]]
    left = len(one.rows) - MOST_ROWS
    more = [tag("p", tag("small", f"{left} more rows are in analysis/{one.name}.json."))] if left > 0 else []
    return join([table(head, rows, one.title, "finding"), *more])


def _cell(value: object) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cut(str(value), LONGEST_CELL)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{value:,.0f}"
    return number(value, 3 if 0 < abs(value) < 1 else 2)


def _examples(cases: Sequence[Mapping[str, Any]]) -> list[Html]:
    if not cases:
        return []
    cards = [_card(case) for case in cases]
    summary = tag("summary", f"{len(cards)} examples of disagreement")
    return [tag("details", summary, tag("div", *cards, class_="cards"))]


def _card(case: Mapping[str, Any]) -> Html:
    sort = SORTS.get(str(case.get("sort")), str(case.get("sort")))
    names = tag("small", cut(str(case.get("id")), LONGEST_CELL))
    top = tag("p", tag("span", sort, class_="tag"), names, class_="top")
    told: list[tuple[object, object]] = [("gold", _said(case.get("gold")))] if "gold" in case else []
    told += [(cut(str(case.get(side)), LONGEST_CELL), _said(case.get(f"{side}_said"))) for side in ("a", "b")]
    text = tag("p", cut(str(case.get("text")), LONGEST_TEXT), dir="auto", class_="context")
    return tag("article", top, text, facts(told, class_="stacked"), class_="card")


def _said(said: object) -> str:
    told = " / ".join(map(str, said)) if isinstance(said, list) else str(said)
    return cut(told, LONGEST_CELL) if told else "no answer"
