"""Analyses that need only a run's files, and how findings are saved.

``RUN/analysis/NAME.json`` is the finding, ``NAME.svg`` its picture, ``labels.csv`` the table of likely label errors.
Findings have a hash of the leaderboard or store that they were made from, so reports leave outdated ones out.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.files import atomic_open, write_json
from bertvision.core.records import Example, Row
from bertvision.core.registry import unknown_name
from bertvision.core.row_title import row_title
from bertvision.evaluation.analyses import label_errors
from bertvision.evaluation.analyses.agreement import agreement, with_pair_name
from bertvision.evaluation.analyses.answers import Answers, context_word_counts
from bertvision.evaluation.analyses.breakdowns import answer_length, answer_types, context_length, question_word
from bertvision.evaluation.analyses.calibration import calibration_table
from bertvision.evaluation.analyses.cost import Floor, cost_against_score
from bertvision.evaluation.analyses.layer_weights import LayerWeights, layer_weights
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.leaderboard import baseline
from bertvision.report.charts import draw, write_svg
from bertvision.report.markup import printable
from bertvision.report.training_curves import group_by_spec
from bertvision.runs.costs import predictor_costs
from bertvision.runs.folder import ANSWERS
from bertvision.runs.reader import FINDINGS, Line, Run, best_head, finding_origin, group_rows, row_answers


@dataclass(frozen=True)
class RunView:
    """A run with the graded answers of its predictors."""

    run: Run
    lines: Sequence[Line]
    predictors: Sequence[Answers]  # the best seed of each on inner
    main: Sequence[Answers]  # best row, best head, control, encoder

    @property
    def examples(self) -> tuple[Example, ...]:
        return self.run.task[self.run.board.split]

    @property
    def has_spans(self) -> bool:
        return self.run.task.kind == "span" and bool(self.predictors)


AnalysisFn = Callable[[RunView], Finding | None]


def view_run(run: Run) -> RunView:
    """Grade the answers of every predictor; predictors of numbers, or without saved answers, are left out."""
    lines = group_rows(run.board)
    graded: dict[str, Answers] = {}
    for line in lines:
        answers = row_answers(run, line.rows[0], row_title(line.rows[0]))
        if answers is not None:
            graded[line.name] = answers
    best = best_head(lines)
    names = [lines[0].name if lines else "", best.name if best else ""]
    names += [line.name for kind in ("control", "encoder") for line in lines if line.kind == kind]
    main = [graded[name] for name in dict.fromkeys(names) if name in graded]
    return RunView(run, lines, list(graded.values()), main)


def _agreement(view: RunView) -> Finding | None:
    pairs = list(combinations(view.main, 2))
    return agreement(view.run.task, view.run.board.split, pairs) if pairs else None


def _layer_weights(view: RunView) -> Finding | None:
    groups = [heads for heads in group_by_spec(view.run.heads) if heads[0].weights]
    weights = [LayerWeights(heads[0].spec, heads[0].states, tuple(head.weights for head in heads)) for heads in groups]
    return layer_weights(weights) if weights else None


def _calibration(view: RunView) -> Finding | None:
    rows = [row for row in view.run.board.rows if row.calibration]
    return calibration_table(rows, view.run.board.reliability) if rows else None


def _answer_types(view: RunView) -> Finding | None:
    return answer_types(view.examples, view.predictors) if view.has_spans and view.run.task.no_answer else None


def cost_finding(run: Run, lines: Sequence[Line], seconds: Mapping[str, float]) -> Finding | None:
    """The cost analysis; ``seconds`` are measured inference times on the split, by head (spec@seed)."""
    prices = predictor_costs(run, lines, seconds)
    if not prices:
        return None
    name, scores = run.baseline or baseline(run.task, run.board.split)  # an old leaderboard lacks it
    return cost_against_score(prices, run.board.metric, Floor(name, scores[run.board.metric]))


FROM_FILES: Mapping[str, AnalysisFn] = {
    "answer-types": _answer_types,
    "context-length": lambda view: context_length(context_word_counts(view.examples), view.main) if view.main else None,
    "answer-length": lambda view: answer_length(view.examples, view.main) if view.has_spans else None,
    "question-word": lambda view: question_word(view.examples, view.main) if view.has_spans else None,
    "agreement": _agreement,
    "layer-weights": _layer_weights,
    "calibration": _calibration,
    "cost": lambda view: cost_finding(view.run, view.lines, {}),
}


def file_findings(run: Run, names: Iterable[str] = tuple(FROM_FILES)) -> list[Finding]:
    """Findings of these analyses, without those that do not apply to the run."""
    view = view_run(run)
    findings = [FROM_FILES[name](view) for name in names]
    return [finding for finding in findings if finding is not None]


def pair_agreement(run: Run, names: Sequence[str], beside: Path | None = None, other: Run | None = None) -> Finding:
    """Agreement of two rows, named as on the leaderboard (without a seed: the best on inner).

    The second row is of the run ``other`` at ``beside``, if given, which has the same examples in dev in any order.
    """
    a = named_answers(run, names[0], "row")
    if beside is None or other is None:
        b = named_answers(run, names[1], "row")
        if a.name == b.name:
            raise BadInput(f"--pair names {a.name} twice; expected two different rows of the leaderboard")
        return with_pair_name(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name)
    # Answers pair by index: put the other run's examples in the order of this run.
    by_id = {example.id: example for example in other.task[other.board.split]}
    ordered = tuple(by_id[example.id] for example in run.task[run.board.split])
    task = replace(other.task, splits={**other.task.splits, other.board.split: ordered})
    b = named_answers(replace(other, task=task), names[1], f"row of {beside}")
    b = replace(b, name=f"{b.name} of {beside.resolve().name}")
    finding = with_pair_name(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name, str(beside))
    return replace(finding, about=f"{finding.about} The second row is of {beside}, as that run was when this was made.")


def named_answers(run: Run, name: str, what: str) -> Answers:
    """Answers of a named row; ``what`` describes it in errors."""
    rows = {title: row for row in reversed(run.board.rows) for title in (row.name, row_title(row))}
    if name not in rows:
        raise BadInput(unknown_name(what, name, list(rows)))
    if (rows[name].name, rows[name].seed) not in run.answers:
        raise BadInput(missing_answers_text(run, [rows[name]]))
    answers = row_answers(run, rows[name], row_title(rows[name]))
    if answers is None:
        raise BadInput(
            f"{name}: its answers are not right or wrong (expected spans or labels), so they cannot be compared"
        )
    return answers


def missing_answers_text(run: Run, rows: Sequence[Row]) -> str:
    """Error text for rows without saved answers."""
    titles = ", ".join(map(row_title, rows))
    return f"{run.folder / ANSWERS} has no answers of {titles}; write them with: bertvision evaluate {run.folder}"


def save_findings(folder: Path, run: Run, findings: Iterable[Finding]) -> list[Path]:
    """Write findings into a run, each with the hash of what it was made from."""
    paths = []
    for finding in findings:
        paths.append(write_finding(folder, finding, finding_origin(finding.name, run.board, run.manifest)))
    return paths


def write_finding(folder: Path, finding: Finding, origin: str) -> Path:
    """Write a finding as JSON, its plots as SVG, and likely label errors also as CSV."""
    path = folder / FINDINGS / f"{finding.name}.json"
    write_json(path, {**finding.document(), "made_from": origin})
    if finding.name == label_errors.NAME:
        write_table(finding, path.with_suffix(".csv"))
    for index, plot in enumerate(finding.plots):
        suffix = "" if index == 0 else f"-{index + 1}"
        write_svg(draw(plot), path.with_name(f"{finding.name}{suffix}.svg"))
    return path


def write_table(finding: Finding, path: Path) -> None:
    """Write the table of a finding as CSV; characters that a text file cannot hold are replaced."""
    with atomic_open(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(finding.columns)
        for row in finding.rows:
            cells = (row.get(key) for key in finding.columns)
            table.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])
