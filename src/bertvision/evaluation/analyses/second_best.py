"""How often the second most likely answer is right where the most likely one is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertvision.core.records import Example
from bertvision.evaluation.analyses.result import Cell, Finding, as_float, bars, share
from bertvision.evaluation.metrics.squad import best_over_golds, exact, normalize
from bertvision.tasks.task import Task

ABOUT = (
    "Among the examples whose most likely answer is wrong, how often the second most likely answer is right. For "
    "spans, the second answer is the next one with different text (ignoring articles, case and punctuation); 'no "
    "answer' counts as an answer."
)
COLUMNS = {
    "name": "predictor",
    "wrong": "best wrong",
    "second_right": "second right",
    "share": "of wrong, %",
    "has_answer_share": "with answer, %",
    "no_answer_share": "without answer, %",
    "rescued_has_answer": "second right: have an answer, %",
    "right_has_answer": "best right: have an answer, %",
}
LABEL_COLUMNS = {key: COLUMNS[key] for key in ("name", "wrong", "second_right", "share")}

Ranked = Sequence[Sequence[str]]
"""Per example: its answers by decreasing probability."""


def second_best(task: Task, split: str, ranked: Mapping[str, Ranked]) -> Finding:
    """One row per predictor; ``ranked`` maps its name to the ranked answers of each example of the split."""
    examples = task[split]
    rows = []
    for name, answers in ranked.items():
        rows.append(second_best_row(task, name, examples, second_answers_correct(task, examples, answers)))
    plot = bars(list(ranked), {"second right": [as_float(row["share"]) for row in rows]}, "of wrong, %")
    columns = COLUMNS if task.kind == "span" else LABEL_COLUMNS
    return Finding("second-best", "The second most likely answer", ABOUT, columns, tuple(rows), (plot,))


def second_answers_correct(task: Task, examples: Sequence[Example], ranked: Ranked) -> list[bool | None]:
    """For each example, whether the second answer is right; None where the first is."""
    correct: list[bool | None] = []
    for example, answers in zip(examples, ranked, strict=True):
        others = answers[1:]
        if task.kind == "span" and answers:
            first = normalize(answers[0])
            others = [answer for answer in others if normalize(answer) != first]
        correct.append(None if _is_right(task, example, answers[:1]) else _is_right(task, example, others[:1]))
    return correct


def second_best_row(
    task: Task, name: str, examples: Sequence[Example], second_correct: Sequence[bool | None]
) -> dict[str, Cell]:
    """The table row of a predictor, given its :func:`second_answers_correct`."""
    pairs = list(zip(examples, second_correct, strict=True))
    wrong = [example for example, correct in pairs if correct is not None]
    second_right = [example for example, correct in pairs if correct]
    row: dict[str, Cell] = {"name": name, "wrong": len(wrong), "second_right": len(second_right)}
    row["share"] = share(len(second_right), len(wrong))
    if task.kind != "span":
        return row
    # Examples that have an answer, among all, those with a wrong best answer and those with a right second one.
    has_answer, wrong_has, second_has = (sum(bool(e.answers) for e in part) for part in (examples, wrong, second_right))
    return {
        **row,
        "has_answer_share": share(second_has, wrong_has),
        "no_answer_share": share(len(second_right) - second_has, len(wrong) - wrong_has),
        "rescued_has_answer": share(second_has, len(second_right)),
        "right_has_answer": share(has_answer - wrong_has, len(examples) - len(wrong)),
    }


def _is_right(task: Task, example: Example, best: Sequence[str]) -> bool:
    """Whether the answer is right; ``best`` holds one answer or none."""
    if not best:
        return False
    if task.kind == "span":
        return best_over_golds(exact, [answer.text for answer in example.answers], best[0]) == 1.0
    return best[0] == task.labels[int(example.label or 0)]
