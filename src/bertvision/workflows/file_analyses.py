"""What a run's own files tell: every analysis that needs neither states nor fits, and how findings are kept.

``RUN/analysis/NAME.json`` is the finding, ``NAME.svg`` its picture. Each says which leaderboard or
which store it was made from, so that an old one is never shown beside a new board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.core.records import Example, Row
from bertvision.core.registry import unknown_name
from bertvision.evaluation.analyses.agreement import agreement, with_pair_name
from bertvision.evaluation.analyses.answers import Answers, context_word_counts
from bertvision.evaluation.analyses.breakdowns import answer_length, answer_types, context_length, question_word
from bertvision.evaluation.analyses.calibration import calibration_table
from bertvision.evaluation.analyses.cost import Floor, cost_against_score
from bertvision.evaluation.analyses.layer_weights import LayerWeights, layer_weights
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.leaderboard import baseline
from bertvision.report.charts import draw, write_svg
from bertvision.report.training_curves import group_by_spec
from bertvision.runs.costs import predictor_costs
from bertvision.runs.folder import ANSWERS
from bertvision.runs.reader import FINDINGS, Line, Run, best_head, finding_origin, group_rows, row_answers, row_title


@dataclass(frozen=True)
class RunView:
    """A run with the graded answers of its predictors, as analyses need it."""

    run: Run
    lines: Sequence[Line]
    predictors: Sequence[Answers]  # of each the best seed on inner
    main: Sequence[Answers]  # best row, best head, control, encoder

    @property
    def examples(self) -> tuple[Example, ...]:
        return self.run.task[self.run.board.split]

    @property
    def has_spans(self) -> bool:
        return self.run.task.kind == "span" and bool(self.predictors)


AnalysisFn = Callable[[RunView], Finding | None]


def view_run(run: Run) -> RunView:
    """Grade every predictor of a run; none where answers are numbers or were not kept."""
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


def _answer_types(view: RunView) -> Finding | None:
    return answer_types(view.examples, view.predictors) if view.has_spans and view.run.task.no_answer else None


def _context_length(view: RunView) -> Finding | None:
    return context_length(context_word_counts(view.examples), view.main) if view.main else None


def _answer_length(view: RunView) -> Finding | None:
    return answer_length(view.examples, view.main) if view.has_spans else None


def _question_word(view: RunView) -> Finding | None:
    return question_word(view.examples, view.main) if view.has_spans else None


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


def _cost(view: RunView) -> Finding | None:
    return cost_finding(view.run, view.lines, {})


def cost_finding(run: Run, lines: Sequence[Line], seconds: Mapping[str, float]) -> Finding | None:
    """``seconds``: of every head (spec@seed) over the split, if they were measured."""
    prices = predictor_costs(run, lines, seconds)
    if not prices:
        return None
    name, scores = run.baseline or baseline(run.task, run.board.split)  # an old leaderboard lacks it
    return cost_against_score(prices, run.board.metric, Floor(name, scores[run.board.metric]))


FROM_FILES: Mapping[str, AnalysisFn] = {
    "answer-types": _answer_types,
    "context-length": _context_length,
    "answer-length": _answer_length,
    "question-word": _question_word,
    "agreement": _agreement,
    "layer-weights": _layer_weights,
    "calibration": _calibration,
    "cost": _cost,
}


def file_findings(run: Run, names: Iterable[str] = tuple(FROM_FILES)) -> list[Finding]:
    """Those that apply to this run, in order."""
    view = view_run(run)
    findings = [FROM_FILES[name](view) for name in names]
    return [finding for finding in findings if finding is not None]


def pair_agreement(run: Run, names: Sequence[str], beside: Path | None = None, other: Run | None = None) -> Finding:
    """Any two rows, named as on the board; without a seed the one that is best on inner.

    With another run, at ``beside``, the second row is one of that: it has the same examples in dev, in whatever order.
    """
    a = _named_answers(run, names[0], "row")
    if beside is None or other is None:
        b = _named_answers(run, names[1], "row")
        if a.name == b.name:
            raise BadInput(f"--pair names {a.name} twice; expected two different rows of the leaderboard")
        return with_pair_name(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name)
    # The other run's examples in this run's order, so that answers pair by their index.
    by_id = {example.id: example for example in other.task[other.board.split]}
    ordered = tuple(by_id[example.id] for example in run.task[run.board.split])
    task = replace(other.task, splits={**other.task.splits, other.board.split: ordered})
    b = _named_answers(replace(other, task=task), names[1], f"row of {beside}")
    b = replace(b, name=f"{b.name} of {beside.resolve().name}")
    finding = with_pair_name(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name, str(beside))
    return replace(finding, about=f"{finding.about} The second is a row of {beside}, as it was when this was made.")


def _named_answers(run: Run, name: str, what: str) -> Answers:
    """``what`` the name should have been, for who misspelt it."""
    rows = {title: row for row in reversed(run.board.rows) for title in (row.name, row_title(row))}
    if name not in rows:
        raise BadInput(unknown_name(what, name, list(rows)))
    if (rows[name].name, rows[name].seed) not in run.answers:
        raise BadInput(missing_answers_text(run, [rows[name]]))
    answers = row_answers(run, rows[name], row_title(rows[name]))
    if answers is None:
        raise BadInput(f"{name} gave no answers that are right or wrong, so nothing can be compared")
    return answers


def missing_answers_text(run: Run, rows: Sequence[Row]) -> str:
    """What to say, and to do, of rows whose answers are gone."""
    titles = ", ".join(map(row_title, rows))
    return f"{run.folder / ANSWERS} has no answers of {titles}; make them again: bertvision evaluate {run.folder}"


def keep(folder: Path, run: Run, findings: Iterable[Finding]) -> list[Path]:
    """Write findings into a run, each with what it was made from."""
    return [write_finding(folder, found, finding_origin(found.name, run.board, run.manifest)) for found in findings]


def write_finding(folder: Path, finding: Finding, origin: str) -> Path:
    """A finding as JSON and, of its plots, as pictures."""
    path = folder / FINDINGS / f"{finding.name}.json"
    write_json(path, {**finding.document(), "made_from": origin})
    for index, plot in enumerate(finding.plots):
        more = "" if index == 0 else f"-{index + 1}"
        write_svg(draw(plot), path.with_name(f"{finding.name}{more}.svg"))
    return path
