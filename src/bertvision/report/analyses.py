"""The findings of a run, one after the other: how to read it, pictures, table, examples; then what is lacking."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertvision.evaluation.analyses.answers import told
from bertvision.evaluation.analyses.catalogue import ANALYSES, ENCODER, FITS, STATES, has_second
from bertvision.evaluation.analyses.result import Finding, Plot
from bertvision.report.charts import draw
from bertvision.report.highlight import Span, marked, place_of
from bertvision.report.markup import NOTHING, Html, Section, cut, facts, join, number, scrolling, section, table, tag
from bertvision.runs.reader import Run

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

LONGEST_CELL, LONGEST_TEXT, LONGEST_ANSWER = 60, 400, 200

MOST_ROWS = 40

SORTS = {"only_a": "only the first right", "only_b": "only the second right"}

TAKES = {
    STATES: "one pass over the states of dev",
    FITS: "fits heads anew",
    ENCODER: "runs the encoder over dev many times",
}

INSTEAD = {
    "cost": "inference seconds, measured; without them cost against score is only half of it",
    "depth": "the best head on the layers 0..k for every k",
    "learning-curve": "the best head on shares of the training data",
}
"""Where the catalogue speaks of options, or of more than is lacking."""

INTRO = (
    "These apply to this run, too, but take time. Each command puts its analysis into the run and its report. Paths "
    "are as they were given when this page was written."
)


def analyses_section(findings: Sequence[Finding], lacking: Sequence[Html] = ()) -> Section | None:
    """Nothing if nothing was analysed, nor could be."""
    known = {one.name: one for one in findings if one.name not in ELSEWHERE}
    parts = [part for name in sorted(known, key=_turn) for part in _finding(known[name])]
    parts += lacking
    return section("analyses", "Analyses", *parts) if parts else None


def _turn(name: str) -> tuple[int, str]:
    """Agreement of a pair that was asked for stands behind the usual one; what is not known comes last."""
    known = "agreement" if name.startswith("agreement-") else name
    return ORDER.index(known) if known in ORDER else len(ORDER), name


def _finding(one: Finding) -> list[Html]:
    pictures = [_figure(one, plot) for plot in one.plots]
    body = tag("div", *pictures, class_="panels wide") if len(pictures) > 1 else join(pictures)
    return [tag("h3", one.title), tag("p", one.about), body, _table(one), *_examples(one.examples)]


def _figure(one: Finding, plot: Plot) -> Html:
    """A square of numbers keeps its width; all else takes that of the page."""
    picture = draw(plot)
    return tag("figure", scrolling(picture, one.title) if plot.kind == "heat" else picture)


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
    which = tag("small", cut(str(case.get("id")), LONGEST_CELL))
    top = tag("p", tag("span", sort, class_="tag"), which, class_="top")
    names = [("gold", case_gold(case))] if "gold" in case else []
    names += [(cut(str(case.get(side)), LONGEST_CELL), told(case.get(f"{side}_said"))) for side in ("a", "b")]
    said = [(name, cut(answer, LONGEST_ANSWER)) for name, answer in names]
    return tag("article", top, *_texts(case), facts(said, class_="stacked"), class_="card")


def case_gold(case: Mapping[str, Any]) -> str:
    """In words; where there is none, what stands for none is told by what was said."""
    nothing = told([]) if isinstance(case.get("a_said"), list) else told("")
    gold = case.get("gold")
    return (" / ".join(map(str, gold)) if isinstance(gold, list) else str(gold)) or nothing


def _texts(case: Mapping[str, Any]) -> list[Html]:
    """A question over its context, around what is marked in it; else the text and, of a pair, the second one."""
    text, pair = str(case.get("text")), str(case.get("pair") or "")
    if "spans" not in case:
        return [tag("p", cut(one, LONGEST_TEXT), dir="auto", class_="context") for one in (text, pair) if one]
    context = marked(pair, [(start, end) for start, end in case["spans"]], _wrong_place(case, pair))
    return [tag("h4", cut(text, LONGEST_TEXT), dir="auto"), tag("p", context, dir="auto", class_="context")]


def _wrong_place(case: Mapping[str, Any], context: str) -> Span | None:
    """Where the wrong one of the two looked; the right one is where the gold is."""
    side = "b" if case.get("sort") == "only_a" else "a"
    near = [start for start, _ in case["spans"]]
    return place_of(str(case.get(f"{side}_said") or ""), context, near, case.get(f"{side}_place"))


@dataclass(frozen=True)
class Unmade:
    """An analysis to be made."""

    name: str
    needs: str
    about: str
    command: str


def unmade(run: Run) -> list[Unmade]:
    """In the order of the catalogue."""
    found = {name: ANALYSES[name] for name in ANALYSES if name in APPLIES and APPLIES[name](run)}
    return [
        Unmade(name, needs, INSTEAD.get(name, about), _command(run, name))
        for name, (needs, about) in found.items()
        if not _made(run, name)
    ]


def unmade_parts(run: Run) -> list[Html]:
    """A list for the page; nothing where nothing is lacking."""
    lacking = unmade(run)
    if not lacking:
        return []
    pairs = [(join([tag("b", one.name), f": {one.about} ({TAKES[one.needs]})"]), _block(one)) for one in lacking]
    return [tag("h3", "Not made yet"), tag("p", INTRO), facts(pairs, class_="unmade")]


def _block(one: Unmade) -> Html:
    return tag("pre", tag("code", one.command))


def _command(run: Run, name: str) -> str:
    return shlex.join(["bertvision", "analyse", str(run.folder), "--what", name])


def _made(run: Run, name: str) -> bool:
    known = {one.name: one for one in run.findings}
    if name == "cost" and name in known:
        encoders = {row.name for row in run.board.rows if row.kind == "encoder"}  # theirs are known without measuring
        heads = [row for row in known[name].rows if row.get("name") not in encoders]
        return any(row.get("inference_seconds") is not None for row in heads)
    return name in known


def _fitted(run: Run) -> bool:
    """Whether there are heads, and states that others could be fitted on."""
    return bool(run.manifest and run.heads)


def _timed(run: Run) -> bool:
    """Without the seconds of the extraction a head's own are no inference time."""
    return _fitted(run) and bool(run.manifest.get("seconds"))


def _with_best(run: Run) -> bool:
    return _fitted(run) and run.board.best_head is not None


APPLIES: Mapping[str, Callable[[Run], bool]] = {
    "second-best": lambda run: _fitted(run) and has_second(run.task),
    "cost": _timed,
    "layers": _fitted,
    "depth": _with_best,
    "ablation": lambda run: run.adapted,
    "learning-curve": _with_best,
}
"""Of every analysis that needs more than files whether it says anything of a run."""


assert set(APPLIES) == {name for name, (needs, _) in ANALYSES.items() if needs in TAKES}
