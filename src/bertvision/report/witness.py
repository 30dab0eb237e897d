"""A row of a run with the evidence of its written answers: what comparing it with any other row rests on."""

from __future__ import annotations

from bertvision.records import Row
from bertvision.report.facts import Run
from bertvision.steps.evidence import evidence_of_answers
from bertvision.steps.trust import Witness


def witness_of(run: Run, row: Row, name: str) -> Witness:
    """``name`` is what it is called in court, where rows of several runs may meet."""
    evidence = evidence_of_answers(run.task, run.board.split, run.answers[row.name, row.seed])
    return Witness(name, row.kind, row.seed, row.scores[run.board.metric], evidence)
