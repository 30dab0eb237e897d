"""Where the most likely answer is wrong: how often the second most likely one is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertvision.core.records import Example
from bertvision.evaluation.analyses.result import Cell, Finding, bars, share
from bertvision.evaluation.metrics.squad import best_over_golds, exact, normalize
from bertvision.tasks.task import Task

ABOUT = (
    "Of the examples whose most likely answer is wrong, how many are right in the second place. Of spans the second "
    "is the next that reads differently (articles, case and punctuation aside); no answer counts as one of them."
)
COLUMNS = {
    "name": "predictor",
    "wrong": "best wrong",
    "second_right": "second right",
    "share": "of the wrong, %",
    "has_answer_share": "with answer, %",
    "no_answer_share": "without answer, %",
    "rescued_has_answer": "rescued that have an answer, %",
    "right_has_answer": "right at once that have an answer, %",
}
LABEL_COLUMNS = {key: COLUMNS[key] for key in ("name", "wrong", "second_right", "share")}

Ranked = Sequence[Sequence[str]]
"""Per example the answers by falling probability."""


def second_best(task: Task, split: str, ranked: Mapping[str, Ranked]) -> Finding:
    """``ranked``: by predictor, for every example of the split in order, its likeliest answers."""
    examples = task[split]
    spans = task.kind == "span"
    rows = tuple(
        second_best_row(task, name, examples, second_answers_correct(task, examples, said))
        for name, said in ranked.items()
    )
    shares = [row["share"] if isinstance(row["share"], float) else None for row in rows]
    picture = bars(list(ranked), {"second right": shares}, "of the wrong, %")
    columns = COLUMNS if spans else LABEL_COLUMNS
    return Finding("second-best", "The second most likely answer", ABOUT, columns, rows, (picture,))


def second_answers_correct(task: Task, examples: Sequence[Example], ranked: Ranked) -> list[bool | None]:
    """For every example whether its second answer is right; None where the first is."""
    pairs = zip(examples, ranked, strict=True)
    return [None if _right(task, e, some[:1]) else _right(task, e, _second(task, some)) for e, some in pairs]


def second_best_row(
    task: Task, name: str, examples: Sequence[Example], rescued_by_second: Sequence[bool | None]
) -> dict[str, Cell]:
    """A predictor's row of the table, from its :func:`rescues`."""
    found = list(zip(examples, rescued_by_second, strict=True))
    wrong = [example for example, second in found if second is not None]
    rescued = [example for example, second in found if second]
    row: dict[str, Cell] = {"name": name, "wrong": len(wrong), "second_right": len(rescued)}
    row["share"] = share(len(rescued), len(wrong))
    if task.kind != "span":
        return row
    answerable = sum(bool(example.answers) for example in examples)
    right, missed = len(examples) - len(wrong), sum(bool(example.answers) for example in wrong)
    sides = {has: [sum(bool(e.answers) == has for e in some) for some in (rescued, wrong)] for has in (True, False)}
    return {
        **row,
        "has_answer_share": share(*sides[True]),
        "no_answer_share": share(*sides[False]),
        "rescued_has_answer": share(sides[True][0], len(rescued)),
        "right_has_answer": share(answerable - missed, right),
    }


def _second(task: Task, answers: Sequence[str]) -> Sequence[str]:
    """The next answer that is another one."""
    if task.kind != "span":
        return answers[1:2]
    first = normalize(answers[0]) if answers else ""
    return next(([answer] for answer in answers[1:] if normalize(answer) != first), [])


def _right(task: Task, example: Example, answers: Sequence[str]) -> bool:
    if not answers:
        return False
    if task.kind == "span":
        return best_over_golds(exact, [answer.text for answer in example.answers], answers[0]) == 1.0
    return answers[0] == task.labels[int(example.label or 0)]
