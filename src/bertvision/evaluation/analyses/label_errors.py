"""Likely label errors: rows whose label the predictions on the validation split agree to doubt.

Labels are judged by confident learning (Northcutt et al. 2021): the bar of a label is the mean probability that rows
with this label get for it, and a row is flagged if another label is both above its bar and more probable than the given
one. Values are judged by their residuals, in robust standard deviations. A doubt counts if most heads share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import FOLDS, Kind, Predictions
from bertvision.core.row_title import row_title
from bertvision.evaluation.analyses.result import Cell, Finding
from bertvision.evaluation.ensemble import combine_validated, sigmoid
from bertvision.evaluation.example_scores import label_indicators
from bertvision.evaluation.scoring import example_outputs
from bertvision.tasks.task import Task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAME = "labels"

MAX_ROWS, MAX_TEXT = 1000, 300
"""Rows that are kept, and characters of each text."""

MIN_DEVIATIONS = 3.0
"""Robust standard deviations beyond which a residual is doubted."""

NORMAL_MAD = 1.4826
"""Standard deviation of normal values over their median absolute deviation."""

LABELS_ABOUT = (
    "A row is listed if another label is more probable than the given one and at least as probable as it is, on "
    "average, for the rows that have it (confident learning, Northcutt et al. 2021), and if most heads predict that "
    "label. The doubt is the difference of the two probabilities. Not every listed label is wrong: ambiguous texts are "
    "listed too."
)
VALUES_ABOUT = (
    f"A row is listed if its value differs from the predicted one by more than {MIN_DEVIATIONS:g} robust standard "
    "deviations (1.4826 times the median absolute deviation), also for most heads on their own. The doubt is that "
    "number of deviations. Not every listed value is wrong: unusual texts are listed too."
)
OUT_OF_FOLD = "Every row of train and inner is judged by heads that were fitted without it."
INNER_ONLY = (
    "Only the rows of inner are judged, because the heads or the encoder were fitted on those of train. A run with "
    "--epochs 0 and at most 10,000 rows judges all rows."
)
COLUMNS = {
    "id": "row",
    "text": "text",
    "pair": "pair",
    "given": "given",
    "suggested": "suggested",
    "given_probability": "probability of given",
    "suggested_probability": "probability of suggested",
    "agree": "heads that agree",
    "doubt": "doubt",
}
PROBABILITIES = ("given_probability", "suggested_probability")


@dataclass(frozen=True)
class Doubt:
    """A label or value that is likely wrong."""

    row: int
    given: Cell
    suggested: Cell
    doubt: float
    agree: int  # heads
    given_probability: float | None = None
    suggested_probability: float | None = None


def label_errors(task: Task, members: Sequence[Predictions]) -> Finding | None:
    """The rows of the validation split whose label is likely wrong, most doubtful first; None for spans.

    ``members`` are the predictions of the heads on the validation split.
    """
    if task.kind == "span" or not members:
        return None
    combined = combine_validated(members)
    examples = task[combined.split]
    specs = list(dict.fromkeys(member.spec for member in members))
    # One vote per head: its seeds are averaged.
    heads = [
        np.mean([_outputs(task, member) for member in members if member.spec == spec], axis=0) for spec in specs
    ]  # each (examples, outputs)
    judged = np.unique(combined.table.example)  # a text without windows was not predicted
    doubts = FINDERS[task.kind](task, judged, _outputs(task, combined), np.stack(heads), combined.split)
    doubts.sort(key=lambda doubt: (-doubt.doubt, doubt.row))
    rows = [_table_row(task, combined.split, doubt) for doubt in doubts[:MAX_ROWS]]
    columns = {**COLUMNS, "agree": f"heads that agree, of {len(specs)}"}
    unused = [*(["pair"] if all(example.pair is None for example in examples) else [])]
    unused += PROBABILITIES if task.kind == "regress" else []
    for key in unused:
        del columns[key]
    about = VALUES_ABOUT if task.kind == "regress" else LABELS_ABOUT
    about = f"{OUT_OF_FOLD if combined.split == FOLDS else INNER_ONLY} {about}"
    if len(doubts) > MAX_ROWS:
        about += f" Of {len(doubts):,} doubts the {MAX_ROWS:,} largest are kept."
    return Finding(NAME, _title(doubts, len(judged), combined.split), about, columns, tuple(rows))


def comparable_members(predictions: Sequence[Predictions]) -> list[Predictions]:
    """The predictions on one validation split, out of fold where there are any, else on inner; ordered by name."""
    splits = {member.split for member in predictions}
    members = [member for member in predictions if member.split == FOLDS or FOLDS not in splits]
    return sorted(members, key=row_title)


def doubted_labels(gold: Ints, probabilities: Floats, heads: Floats) -> list[Doubt]:
    """Confident learning on labels (rows,), probabilities (rows, labels), and those of each head (heads, rows, labels).

    Labels are given by index.
    """
    rows = np.arange(len(gold))
    given = probabilities[rows, gold]  # (rows,)
    count = np.bincount(gold, minlength=probabilities.shape[1])  # (labels,)
    # No row says how probable a label without rows has to be, so it is never suggested.
    bars = np.where(count > 0, np.bincount(gold, given, len(count)) / np.maximum(count, 1), np.inf)  # (labels,)
    confident = (probabilities >= bars) & (probabilities > given[:, None])  # (rows, labels)
    suggested = np.where(confident, probabilities, -1.0).argmax(1)  # (rows,)
    agree = (heads.argmax(2) == suggested).sum(0)  # (rows,)
    flagged = np.flatnonzero(confident.any(1) & (2 * agree > len(heads)))
    doubts = []
    for row in flagged.tolist():
        new, old = float(probabilities[row, suggested[row]]), float(given[row])
        doubts.append(Doubt(row, int(gold[row]), int(suggested[row]), new - old, int(agree[row]), old, new))
    return doubts


def doubted_values(gold: Floats, predicted: Floats, heads: Floats) -> list[Doubt]:
    """Values (rows,) far from the predicted ones (rows,), in the direction that most heads (heads, rows) give too."""
    deviations = _robust_deviations(predicted - gold)  # (rows,)
    by_head = np.stack([_robust_deviations(head - gold) for head in heads])  # (heads, rows)
    agree = (by_head * np.sign(deviations) > MIN_DEVIATIONS).sum(0)  # (rows,)
    flagged = np.flatnonzero((np.abs(deviations) > MIN_DEVIATIONS) & (2 * agree > len(heads)))
    return [
        Doubt(row, float(gold[row]), float(predicted[row]), float(abs(deviations[row])), int(agree[row]))
        for row in flagged.tolist()
    ]


def _robust_deviations(residuals: Floats) -> Floats:
    """Residuals from their median in robust standard deviations; 0 if most are equal, so that none is doubted."""
    centred = residuals - np.median(residuals)
    scale = NORMAL_MAD * float(np.median(np.abs(centred)))
    return centred / scale if scale > 0 else np.zeros_like(centred)


def _of_labels(task: Task, judged: Ints, probabilities: Floats, heads: Floats, split: str) -> list[Doubt]:
    gold = np.array([int(example.label or 0) for example in task[split]])
    doubts = doubted_labels(gold[judged], probabilities[judged], heads[:, judged])
    return [
        replace(
            doubt,
            row=int(judged[doubt.row]),
            given=task.labels[int(doubt.given or 0)],
            suggested=task.labels[int(doubt.suggested or 0)],
        )
        for doubt in doubts
    ]


def _of_label_sets(task: Task, judged: Ints, probabilities: Floats, heads: Floats, split: str) -> list[Doubt]:
    """Each label is judged by itself, as a yes or a no."""
    gold = label_indicators(task[split], task.outputs).astype(np.int64)  # (examples, labels)
    doubts = []
    for index, label in enumerate(task.labels):
        yes, yes_by_head = probabilities[judged, index], heads[:, judged, index]
        either, either_by_head = np.stack([1 - yes, yes], -1), np.stack([1 - yes_by_head, yes_by_head], -1)
        names = (f"{label}: no", f"{label}: yes")
        for doubt in doubted_labels(gold[judged, index], either, either_by_head):
            given, suggested = names[int(doubt.given or 0)], names[int(doubt.suggested or 0)]
            doubts.append(replace(doubt, row=int(judged[doubt.row]), given=given, suggested=suggested))
    return doubts


def _of_values(task: Task, judged: Ints, predicted: Floats, heads: Floats, split: str) -> list[Doubt]:
    gold = np.array([float(example.label or 0.0) for example in task[split]])
    doubts = doubted_values(gold[judged], predicted[judged, 0], heads[:, judged, 0])
    return [replace(doubt, row=int(judged[doubt.row])) for doubt in doubts]


FINDERS: Mapping[Kind, Callable[[Task, Ints, Floats, Floats, str], list[Doubt]]] = {
    "classify": _of_labels,
    "multilabel": _of_label_sets,
    "regress": _of_values,
}
"""By kind of task: doubts from the judged examples, the ensemble's outputs, those of each head, and the split."""


def _outputs(task: Task, predictions: Predictions) -> Floats:
    """Probabilities of the labels, or values on their own scale, of each example: (examples, outputs)."""
    count = len(task[predictions.split])
    outputs = example_outputs(predictions.logits, predictions.table, count, task.merge_label)
    if task.kind == "regress":
        return outputs * task.spread + task.center
    if task.kind == "multilabel":
        return sigmoid(outputs)
    odds = np.exp(outputs - outputs.max(1, keepdims=True))
    return np.asarray(odds / odds.sum(1, keepdims=True))


def _table_row(task: Task, split: str, doubt: Doubt) -> dict[str, Cell]:
    example = task[split][doubt.row]
    return {
        "id": example.id,
        "text": _excerpt(example.text),
        "pair": None if example.pair is None else _excerpt(example.pair),
        "given": doubt.given,
        "suggested": doubt.suggested,
        "given_probability": doubt.given_probability,
        "suggested_probability": doubt.suggested_probability,
        "agree": doubt.agree,
        "doubt": doubt.doubt,
    }


def _excerpt(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _title(doubts: Sequence[Doubt], judged: int, split: str) -> str:
    rows = len({doubt.row for doubt in doubts})
    return f"Likely label errors: {rows:,} of {judged:,} rows of {'train and inner' if split == FOLDS else 'inner'}"
