"""Raw outputs into scores: decode, pick labels, undo the scale, and call the official definitions.

Shared ground of fit (which epoch was best on inner), ensemble and evaluate; not a step itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bertvision.records import Example, Predictions, WindowTable
from bertvision.scoring.classification import classification_scores
from bertvision.scoring.regression import regression_scores
from bertvision.scoring.squad import best_threshold, score_examples, squad_scores
from bertvision.tasks.base import Task
from bertvision.tasks.spans import Decoded, answer_texts, decode

Logits = Sequence[NDArray[np.float32]]

ALWAYS_NULL = 1e9
"""Finite stand-in for the no-answer score of a question that no window could be made for."""


@dataclass(frozen=True)
class Verdict:
    """What a predictor said about a split and how good that was."""

    scores: dict[str, float]
    threshold: float | None
    answers: dict[str, object]  # example id -> answer text, label name or value


@dataclass(frozen=True)
class Judged:
    """A predictor with its verdicts on its own split and on inner."""

    predictions: Predictions
    verdict: Verdict
    inner: Verdict | None

    def choice_score(self, metric: str) -> float:
        """What predictors are chosen by: the score on inner; the split's own only where there is no inner."""
        return (self.inner or self.verdict).scores[metric]


def judge(task: Task, split: str, logits: Logits, table: WindowTable, threshold: float | None = None) -> Verdict:
    """Score one predictor's outputs on a split at a threshold that was fitted elsewhere."""
    examples = task[split]
    if task.kind == "span":
        return _judge_spans(task, examples, decode(logits, table, len(examples)), threshold)
    values = example_outputs(logits, table, len(examples), task.merge_label)  # (examples, outputs)
    gold = np.array([example.label for example in examples])
    if task.kind == "classify":
        picked = values.argmax(1)
        answers = {e.id: task.labels[int(label)] for e, label in zip(examples, picked, strict=True)}
        scores = classification_scores(gold.astype(int).tolist(), picked.tolist(), len(task.labels))
        return Verdict(scores, None, dict(answers))
    numbers = values[:, 0] * task.spread + task.center
    said = {e.id: float(number) for e, number in zip(examples, numbers, strict=True)}
    return Verdict(regression_scores(gold.tolist(), numbers.tolist()), None, dict(said))


def judge_inner(task: Task, logits: Logits, table: WindowTable) -> Verdict:
    """Score on the inner split, fitting the no-answer threshold there if the task has one."""
    if task.kind == "span" and task.no_answer:
        decoded = decode(logits, table, len(task["inner"]))
        return _judge_spans(task, task["inner"], decoded, _threshold(task["inner"], decoded))
    return judge(task, "inner", logits, table)


def judge_predictions(task: Task, predictions: Predictions) -> Judged:
    """Verdicts on the split and on inner; the threshold of the first comes from the second."""
    inner = predictions.inner
    fitted = None if inner is None else judge_inner(task, inner.logits, inner.table)
    threshold = 0.0 if fitted is None or fitted.threshold is None else fitted.threshold
    verdict = judge(task, predictions.split, predictions.logits, predictions.table, threshold)
    return Judged(predictions, verdict, fitted)


def _judge_spans(
    task: Task, examples: Sequence[Example], decoded: Sequence[Decoded], threshold: float | None
) -> Verdict:
    threshold = (threshold or 0.0) if task.no_answer else None
    answers = answer_texts(decoded, examples, threshold)
    return Verdict(dict(squad_scores(_golds(examples), answers)), threshold, dict(answers))


def _threshold(examples: Sequence[Example], decoded: Sequence[Decoded]) -> float:
    """The threshold that gives the best F1 on these questions."""
    always = score_examples(_golds(examples), answer_texts(decoded, examples, None))
    no_answer = {e.id: _finite(d.no_answer_score) for e, d in zip(examples, decoded, strict=True)}
    threshold, _ = best_threshold(
        no_answer, {key: f1 for key, (_, f1) in always.items()}, {e.id: bool(e.answers) for e in examples}
    )
    return threshold


def _finite(score: float) -> float:
    return float(np.clip(score, -ALWAYS_NULL, ALWAYS_NULL))


@lru_cache(maxsize=8)
def _golds_of(examples: tuple[Example, ...]) -> dict[str, list[str]]:
    return {example.id: [answer.text for answer in example.answers] for example in examples}


def _golds(examples: Sequence[Example]) -> dict[str, list[str]]:
    return _golds_of(tuple(examples))


def example_outputs(
    logits: Logits, table: WindowTable, examples: int, any_label: int | None = None
) -> NDArray[np.float64]:
    """Outputs of each example (examples, outputs): the mean over its windows.

    With ``any_label`` one window that gives this label is enough for it: the window where
    logit of the label - largest other logit is largest speaks for the example.
    """
    values = np.asarray(np.stack(list(logits)), np.float64)  # (windows, outputs)
    if any_label is not None:
        return _surest_outputs(values, table.example, examples, any_label)
    sums = np.zeros((examples, values.shape[1]))
    np.add.at(sums, table.example, values)
    return sums / np.maximum(np.bincount(table.example, minlength=examples), 1)[:, None]


def _surest_outputs(
    values: NDArray[np.float64], example: NDArray[np.int64], examples: int, label: int
) -> NDArray[np.float64]:
    """The outputs of the window that leans most to ``label``; without a window nothing says so."""
    lean = values[:, label] - np.delete(values, label, axis=1).max(1)  # (windows,)
    order = np.argsort(lean, kind="stable")
    outputs = np.zeros((examples, values.shape[1]))
    outputs[:, label] = -ALWAYS_NULL
    outputs[example[order]] = values[order]  # of several rows for one example the last is kept
    return outputs
