"""A row of a run with the evidence of its written answers: what comparing it with any other row rests on."""

from __future__ import annotations

from bertvision.core.records import Row
from bertvision.evaluation.analyses.answers import MEANS, Said, hear
from bertvision.evaluation.comparison import Witness
from bertvision.evaluation.example_scores import evidence_of_answers
from bertvision.runs.reader import Run


def witness_of(run: Run, row: Row, name: str) -> Witness:
    """``name`` is what it is called in court, where rows of several runs may meet."""
    evidence = evidence_of_answers(run.task, run.board.split, run.answers[row.name, row.seed])
    return Witness(name, row.kind, row.seed, row.scores[run.board.metric], evidence)


def said_by(run: Run, row: Row, name: str) -> Said | None:
    """What a row answered, right or wrong; None where answers are numbers, or were not written down."""
    answers = run.answers.get((row.name, row.seed))
    if run.task.kind not in MEANS or not answers:
        return None
    return hear(run.task, run.board.split, name, row.kind, answers, run.places.get((row.name, row.seed)))
