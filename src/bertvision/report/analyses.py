"""The analyses of a run with their explanation, plots, table and examples; then those that could still be made."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertvision.evaluation.analyses.answers import format_answer
from bertvision.evaluation.analyses.catalogue import ANALYSES, ENCODER, FITS, STATES, supports_second_best
from bertvision.evaluation.analyses.result import Finding
from bertvision.report.charts import draw
from bertvision.report.highlight import Card, answer_span, highlight_answers
from bertvision.report.markup import MISSING, format_number, truncate
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Run

HAVE_OWN_SECTION = ("layer-weights", "calibration", "labels")

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

MAX_CELL, MAX_TEXT, MAX_ANSWER = 60, 400, 200
"""Maximum characters of a table cell, of a text and of an answer."""

MAX_ROWS = 40

DISAGREEMENTS = {"only_a": "only the first right", "only_b": "only the second right"}

COSTS = {
    STATES: "one pass over stored states",
    FITS: "fits new heads",
    ENCODER: "runs the encoder over dev many times",
}

DESCRIPTIONS = {
    "cost": "measures inference seconds, the missing part of cost against score",
    "depth": "the best head on the layers 0..k for every k",
    "learning-curve": "the best head on shares of the training data",
}
"""Replace descriptions in the catalogue that mention options or more than is missing."""


def analyses_section(findings: Sequence[Finding], run: Run | None = None) -> Section | None:
    """All analyses, then those still missing; None if there is neither."""
    shown = {finding.name: finding for finding in findings if finding.name not in HAVE_OWN_SECTION}
    missing = [] if run is None else missing_analyses(run)
    if not shown and not missing:
        return None
    ordered = []
    for name in sorted(shown, key=_sort_key):
        finding = shown[name]
        ordered.append(
            {
                "name": name,
                "title": finding.title,
                "about": finding.about,
                "pictures": [(draw(plot), plot.kind == "heat") for plot in finding.plots],
                "columns": list(finding.columns.values()),
                "rows": [[format_cell(row.get(key)) for key in finding.columns] for row in finding.rows[:MAX_ROWS]],
                "left": len(finding.rows) - MAX_ROWS,
                "cards": [_disagreement_card(case) for case in finding.examples],
            }
        )
    return render_section("analyses", "Analyses", findings=ordered, missing=missing, costs=COSTS)


def _sort_key(name: str) -> tuple[int, str]:
    """The agreement of a requested pair follows the default one; unknown names come last."""
    base = "agreement" if name.startswith("agreement-") else name
    return ORDER.index(base) if base in ORDER else len(ORDER), name


def format_cell(value: object) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return truncate(str(value), MAX_CELL)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{value:,.0f}"
    return format_number(value, 3 if 0 < abs(value) < 1 else 2)


def _disagreement_card(case: Mapping[str, Any]) -> Card:
    """A question with its highlighted context, or the text or texts of a labelled example."""
    sort = str(case.get("sort"))
    answers = [("gold", format_gold(case))] if "gold" in case else []
    for side in ("a", "b"):
        answers.append((truncate(str(case.get(side)), MAX_CELL), format_answer(case.get(f"{side}_said"))))
    text, pair = str(case.get("text")), str(case.get("pair") or "")
    question, texts = None, [truncate(part, MAX_TEXT) for part in (text, pair) if part]
    if "spans" in case:
        golds = [(start, end) for start, end in case["spans"]]
        # The wrong answer is highlighted; the right one coincides with the gold span.
        side = "b" if sort == "only_a" else "a"
        answer, saved = str(case.get(f"{side}_said") or ""), case.get(f"{side}_place")
        predicted = answer_span(answer, pair, [start for start, _ in golds], saved)
        question, texts = truncate(text, MAX_TEXT), [highlight_answers(pair, golds, predicted)]
    return Card(
        category=DISAGREEMENTS.get(sort, sort),
        id=truncate(str(case.get("id")), MAX_CELL),
        question=question,
        texts=texts,
        answers=[(name, truncate(answer, MAX_ANSWER)) for name, answer in answers],
        stacked=True,
    )


def format_gold(case: Mapping[str, Any]) -> str:
    """The gold answer as text; the word for an empty one depends on the form of the predictors' answers."""
    empty = format_answer([]) if isinstance(case.get("a_said"), list) else format_answer("")
    gold = case.get("gold")
    return (" / ".join(map(str, gold)) if isinstance(gold, list) else str(gold)) or empty


@dataclass(frozen=True)
class MissingAnalysis:
    """An analysis that applies to a run and has not been made, with the command that makes it."""

    name: str
    needs: str
    about: str
    command: str


def missing_analyses(run: Run) -> list[MissingAnalysis]:
    """The analyses that apply to a run and have not been made, in the order of the catalogue."""
    missing = []
    for name, (needs, about) in ANALYSES.items():
        if name in APPLIES and APPLIES[name](run) and not _is_complete(run, name):
            command = shlex.join(["bertvision", "analyse", str(run.folder), "--what", name])
            missing.append(MissingAnalysis(name, needs, DESCRIPTIONS.get(name, about), command))
    return missing


def _is_complete(run: Run, name: str) -> bool:
    findings = {finding.name: finding for finding in run.findings}
    if name == "cost" and name in findings:
        # Inference seconds of encoders are known without measuring.
        encoders = {row.name for row in run.board.rows if row.kind == "encoder"}
        heads = [row for row in findings[name].rows if row.get("name") not in encoders]
        return any(row.get("inference_seconds") is not None for row in heads)
    return name in findings


def _has_heads_and_states(run: Run) -> bool:
    return bool(run.manifest and run.heads)


def _has_best_head(run: Run) -> bool:
    return _has_heads_and_states(run) and run.board.best_head is not None


APPLIES: Mapping[str, Callable[[Run], bool]] = {
    "second-best": lambda run: _has_heads_and_states(run) and supports_second_best(run.task),
    "labels": lambda run: _has_heads_and_states(run) and run.task.kind != "span",
    # A head's own seconds are not its inference time without those of the extraction.
    "cost": lambda run: _has_heads_and_states(run) and bool(run.manifest.get("seconds")),
    "layers": _has_heads_and_states,
    "depth": _has_best_head,
    "ablation": lambda run: run.adapted,
    "learning-curve": _has_best_head,
}
"""By name of an analysis that needs more than files: whether it applies to a run."""


assert set(APPLIES) == {name for name, (needs, _) in ANALYSES.items() if needs in COSTS}
