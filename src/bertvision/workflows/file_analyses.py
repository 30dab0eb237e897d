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
from bertvision.core.registry import unknown
from bertvision.evaluation.analyses.agreement import agreement, of_pair
from bertvision.evaluation.analyses.answers import Said, context_words
from bertvision.evaluation.analyses.breakdowns import answer_length, answer_types, context_length, question_word
from bertvision.evaluation.analyses.calibration import calibration_table
from bertvision.evaluation.analyses.cost import Floor, cost_against_score
from bertvision.evaluation.analyses.layer_weights import LayerWeights, layer_weights
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.baseline import baseline
from bertvision.report.charts import draw, write_picture
from bertvision.report.training_curves import by_spec
from bertvision.runs.costs import prices_of
from bertvision.runs.folder import ANSWERS
from bertvision.runs.reader import FINDINGS, Line, Run, best_head, finding_origin, lines_of, row_title, said_by

Maker = Callable[["Desk"], Finding | None]


@dataclass(frozen=True)
class Desk:
    """A run laid out for analyses: its lines, and what its predictors said."""

    run: Run
    lines: Sequence[Line]
    everyone: Sequence[Said]  # a predictor's best seed on inner each
    main: Sequence[Said]  # best row, best head, control, encoder

    @property
    def examples(self) -> tuple[Example, ...]:
        return self.run.task[self.run.board.split]


def desk_of(run: Run) -> Desk:
    """Hear every predictor of a run; nobody where answers are numbers or are not there."""
    lines = lines_of(run.board)
    heard = {line.name: said_by(run, line.rows[0], row_title(line.rows[0])) for line in lines}
    told = {name: said for name, said in heard.items() if said is not None}
    best = best_head(lines)
    names = [lines[0].name if lines else "", best.name if best else ""]
    names += [line.name for kind in ("control", "encoder") for line in lines if line.kind == kind]
    main = [told[name] for name in dict.fromkeys(names) if name in told]
    return Desk(run, lines, list(told.values()), main)


def _span(desk: Desk) -> bool:
    return desk.run.task.kind == "span" and bool(desk.everyone)


def _answer_types(desk: Desk) -> Finding | None:
    return answer_types(desk.examples, desk.everyone) if _span(desk) and desk.run.task.no_answer else None


def _context_length(desk: Desk) -> Finding | None:
    return context_length(context_words(desk.examples), desk.main) if desk.main else None


def _answer_length(desk: Desk) -> Finding | None:
    return answer_length(desk.examples, desk.main) if _span(desk) else None


def _question_word(desk: Desk) -> Finding | None:
    return question_word(desk.examples, desk.main) if _span(desk) else None


def _agreement(desk: Desk) -> Finding | None:
    pairs = list(combinations(desk.main, 2))
    return agreement(desk.run.task, desk.run.board.split, pairs) if pairs else None


def agreement_of(run: Run, names: Sequence[str]) -> Finding:
    """Any two rows, named as on the board; without a seed the one that is best on inner."""
    a, b = (_heard(run, name, "row") for name in names)
    if a.name == b.name:
        raise BadInput(f"--pair names {a.name} twice; expected two different rows of the leaderboard")
    return of_pair(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name)


def agreement_between(run: Run, place: Path, beside: Run, names: Sequence[str]) -> Finding:
    """A row of a run and one of another, at ``place``, that has the same examples in dev, in whatever order."""
    a, other = _heard(run, names[0], "row"), _heard(_in_order_of(run, beside), names[1], f"row of {place}")
    b = replace(other, name=f"{other.name} of {place.resolve().name}")
    found = of_pair(agreement(run.task, run.board.split, [(a, b)]), a.name, b.name, str(place))
    return replace(found, about=f"{found.about} The second is a row of {place}, as it was when this was made.")


def _in_order_of(run: Run, other: Run) -> Run:
    """The other run with its own examples where this run has them, so that answers pair by their places."""
    known = {example.id: example for example in other.task[other.board.split]}
    ordered = tuple(known[example.id] for example in run.task[run.board.split])
    return replace(other, task=replace(other.task, splits={**other.task.splits, other.board.split: ordered}))


def _heard(run: Run, name: str, what: str) -> Said:
    """``what`` the name should have been, for who misspelt it."""
    rows = {title: row for row in reversed(run.board.rows) for title in (row.name, row_title(row))}
    if name not in rows:
        raise BadInput(unknown(what, name, list(rows)))
    if (rows[name].name, rows[name].seed) not in run.answers:
        raise BadInput(no_answers(run, [rows[name]]))
    said = said_by(run, rows[name], row_title(rows[name]))
    if said is None:
        raise BadInput(f"{name} gave no answers that are right or wrong, so nothing can be compared")
    return said


def no_answers(run: Run, rows: Sequence[Row]) -> str:
    """What to say, and to do, of rows whose answers are gone."""
    told = ", ".join(row_title(row) for row in rows)
    return f"{run.folder / ANSWERS} has no answers of {told}; make them again: bertvision evaluate {run.folder}"


def _layer_weights(desk: Desk) -> Finding | None:
    groups = [heads for heads in by_spec(desk.run.heads) if heads[0].weights]
    told = [LayerWeights(heads[0].spec, heads[0].states, tuple(head.weights for head in heads)) for heads in groups]
    return layer_weights(told) if told else None


def _calibration(desk: Desk) -> Finding | None:
    rows = [row for row in desk.run.board.rows if row.calibration]
    return calibration_table(rows, desk.run.board.reliability) if rows else None


def _cost(desk: Desk) -> Finding | None:
    return cost_finding(desk.run, desk.lines, {})


def cost_finding(run: Run, lines: Sequence[Line], seconds: Mapping[str, float]) -> Finding | None:
    """``seconds``: of every head (spec@seed) over the split, if they were measured."""
    prices = prices_of(run, lines, seconds)
    return cost_against_score(prices, run.board.metric, _floor(run)) if prices else None


def _floor(run: Run) -> Floor:
    """As on the leaderboard; an old one lacks it."""
    name, scores = run.baseline or baseline(run.task, run.board.split)
    return Floor(name, scores[run.board.metric])


FROM_FILES: Mapping[str, Maker] = {
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
    desk = desk_of(run)
    found = [FROM_FILES[name](desk) for name in names]
    return [one for one in found if one is not None]


def keep(folder: Path, run: Run, findings: Iterable[Finding]) -> list[Path]:
    """Write findings into a run, each with what it was made from."""
    return [write_finding(folder, one, finding_origin(one.name, run.board, run.manifest)) for one in findings]


def write_finding(folder: Path, one: Finding, origin: str) -> Path:
    """A finding as JSON and, of its plots, as pictures."""
    path = folder / FINDINGS / f"{one.name}.json"
    write_json(path, {**one.document(), "made_from": origin})
    for place, plot in enumerate(one.plots):
        more = "" if place == 0 else f"-{place + 1}"
        write_picture(draw(plot), path.with_name(f"{one.name}{more}.svg"))
    return path
