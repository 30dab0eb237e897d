"""The findings of a run, one after the other: how to read it, pictures, table, examples; then what is lacking."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertvision.evaluation.analyses.answers import told
from bertvision.evaluation.analyses.catalogue import ANALYSES, ENCODER, FITS, STATES, supports_second_best
from bertvision.evaluation.analyses.result import Finding
from bertvision.report.charts import draw
from bertvision.report.highlight import Card, marked, place_of
from bertvision.report.markup import NOTHING, cut, number
from bertvision.report.render import Section, section
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

DISAGREEMENTS = {"only_a": "only the first right", "only_b": "only the second right"}

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


def analyses_section(findings: Sequence[Finding], run: Run | None = None) -> Section | None:
    """Every analysis, then those that the run lacks; nothing if nothing was analysed, nor could be."""
    shown = {finding.name: finding for finding in findings if finding.name not in ELSEWHERE}
    missing = [] if run is None else missing_analyses(run)
    if not shown and not missing:
        return None
    ordered = [_finding(shown[name]) for name in sorted(shown, key=_order)]
    return section("analyses", "Analyses", findings=ordered, missing=missing, takes=TAKES)


def _order(name: str) -> tuple[int, str]:
    """Agreement of a pair that was asked for stands behind the usual one; what is not known comes last."""
    known = "agreement" if name.startswith("agreement-") else name
    return ORDER.index(known) if known in ORDER else len(ORDER), name


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "name": finding.name,
        "title": finding.title,
        "about": finding.about,
        "pictures": [(draw(plot), plot.kind == "heat") for plot in finding.plots],
        "columns": list(finding.columns.values()),
        "rows": [[_cell(row.get(key)) for key in finding.columns] for row in finding.rows[:MOST_ROWS]],
        "left": len(finding.rows) - MOST_ROWS,
        "cards": [_card(case) for case in finding.examples],
    }


def _cell(value: object) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cut(str(value), LONGEST_CELL)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{value:,.0f}"
    return number(value, 3 if 0 < abs(value) < 1 else 2)


def _card(case: Mapping[str, Any]) -> Card:
    """A question over its context, around what is marked in it; else the text and, of a pair, the second one."""
    sort = str(case.get("sort"))
    answers = [("gold", format_gold(case))] if "gold" in case else []
    answers += [(cut(str(case.get(side)), LONGEST_CELL), told(case.get(f"{side}_said"))) for side in ("a", "b")]
    text, pair = str(case.get("text")), str(case.get("pair") or "")
    question, texts = None, [cut(one, LONGEST_TEXT) for one in (text, pair) if one]
    if "spans" in case:
        golds = [(start, end) for start, end in case["spans"]]
        # The wrong one of the two is marked; the right one is where the gold is.
        side = "b" if sort == "only_a" else "a"
        answer, known = str(case.get(f"{side}_said") or ""), case.get(f"{side}_place")
        predicted = place_of(answer, pair, [start for start, _ in golds], known)
        question, texts = cut(text, LONGEST_TEXT), [marked(pair, golds, predicted)]
    return Card(
        sort=DISAGREEMENTS.get(sort, sort),
        id=cut(str(case.get("id")), LONGEST_CELL),
        question=question,
        texts=texts,
        answers=[(name, cut(answer, LONGEST_ANSWER)) for name, answer in answers],
        stacked=True,
    )


def format_gold(case: Mapping[str, Any]) -> str:
    """In words; where there is none, what stands for none depends on how the predictors answer."""
    nothing = told([]) if isinstance(case.get("a_said"), list) else told("")
    gold = case.get("gold")
    return (" / ".join(map(str, gold)) if isinstance(gold, list) else str(gold)) or nothing


@dataclass(frozen=True)
class MissingAnalysis:
    """An analysis to be made."""

    name: str
    needs: str
    about: str
    command: str


def missing_analyses(run: Run) -> list[MissingAnalysis]:
    """In the order of the catalogue."""
    missing = []
    for name, (needs, about) in ANALYSES.items():
        if name in APPLIES and APPLIES[name](run) and not _made(run, name):
            command = shlex.join(["bertvision", "analyse", str(run.folder), "--what", name])
            missing.append(MissingAnalysis(name, needs, INSTEAD.get(name, about), command))
    return missing


def _made(run: Run, name: str) -> bool:
    known = {finding.name: finding for finding in run.findings}
    if name == "cost" and name in known:
        encoders = {row.name for row in run.board.rows if row.kind == "encoder"}  # theirs are known without measuring
        heads = [row for row in known[name].rows if row.get("name") not in encoders]
        return any(row.get("inference_seconds") is not None for row in heads)
    return name in known


def _fitted(run: Run) -> bool:
    """Whether there are heads, and states that others could be fitted on."""
    return bool(run.manifest and run.heads)


def _with_best(run: Run) -> bool:
    return _fitted(run) and run.board.best_head is not None


APPLIES: Mapping[str, Callable[[Run], bool]] = {
    "second-best": lambda run: _fitted(run) and supports_second_best(run.task),
    # Without the seconds of the extraction a head's own are no inference time.
    "cost": lambda run: _fitted(run) and bool(run.manifest.get("seconds")),
    "layers": _fitted,
    "depth": _with_best,
    "ablation": lambda run: run.adapted,
    "learning-curve": _with_best,
}
"""Of every analysis that needs more than files whether it says anything of a run."""


assert set(APPLIES) == {name for name, (needs, _) in ANALYSES.items() if needs in TAKES}
