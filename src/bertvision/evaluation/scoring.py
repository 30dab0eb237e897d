"""Raw outputs into scores: decode, pick labels, undo the scale, and call the official definitions.

Shared ground of fit (which epoch was best on inner), ensemble and evaluate; not a step itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Example, Predictions, WindowTable
from bertvision.evaluation.example_scores import (
    ALWAYS_NULL,
    ExampleScores,
    SpanScores,
    golds_of,
    label_marks,
    score_label_sets,
    score_labels,
    score_spans,
    score_values,
    span_scores,
)
from bertvision.evaluation.metrics.labels import best_micro_threshold, classification_scores, multilabel_scores
from bertvision.evaluation.metrics.squad import summarise
from bertvision.evaluation.metrics.thresholds import no_answer_threshold
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.tasks.span_decoding import Decoded, answer_places, answer_texts, decode
from bertvision.tasks.task import Task

Logits = Sequence[NDArray[np.float32]]


@dataclass(frozen=True)
class SplitScores:
    """What a predictor said about a split and how good that was."""

    scores: dict[str, float]
    threshold: float | None
    answers: dict[str, object]  # example id -> answer text, label name, names of labels or value
    example_scores: ExampleScores | None = None
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # spans: where an answer that was given stands


@dataclass(frozen=True)
class ScoredPredictions:
    """A predictor with its verdicts on its own split and on inner."""

    predictions: Predictions
    result: SplitScores
    inner: SplitScores | None

    def choice_score(self, metric: str) -> float:
        """What predictors are chosen by: the score on inner; the split's own only where there is no inner."""
        return (self.inner or self.result).scores[metric]

    def rank(self, metric: str) -> tuple[float, int, str, int]:
        """Sorts the best first; of equals the smaller one, then by name, so that no order of fitting matters."""
        one = self.predictions
        return -self.choice_score(metric), one.parameters, one.name, -1 if one.seed is None else one.seed


def score_split(
    task: Task, split: str, logits: Logits, table: WindowTable, threshold: float | None = None
) -> SplitScores:
    """Score one predictor's outputs on a split at a threshold that was fitted elsewhere."""
    examples = task[split]
    if task.kind == "span":
        decoded = decode(logits, table, len(examples))
        asked = (threshold or 0.0) if task.no_answer else None
        return _split_scores_of_spans(examples, decoded, span_scores(examples, decoded), asked)
    values = example_outputs(logits, table, len(examples), task.merge_label)  # (examples, outputs)
    if task.kind == "multilabel":
        return _split_scores_of_sets(task, examples, values, threshold or 0.0)
    gold = np.array([example.label for example in examples])
    if task.kind == "classify":
        picked = values.argmax(1)
        answers = {e.id: task.labels[int(label)] for e, label in zip(examples, picked, strict=True)}
        scores = classification_scores(gold.astype(int).tolist(), picked.tolist(), len(task.labels))
        return SplitScores(scores, None, dict(answers), score_labels(gold.astype(int), picked, values))
    numbers = values[:, 0] * task.spread + task.center
    said = {e.id: float(number) for e, number in zip(examples, numbers, strict=True)}
    scores = regression_scores(gold.tolist(), numbers.tolist())
    return SplitScores(scores, None, dict(said), score_values(gold, numbers))


def score_inner(task: Task, logits: Logits, table: WindowTable) -> SplitScores:
    """Score on the inner split, fitting the threshold of no answer, unless it is given, or of a label there."""
    if task.kind == "span" and task.no_answer:
        decoded = decode(logits, table, len(task["inner"]))
        spans = span_scores(task["inner"], decoded)
        fitted = _threshold(task["inner"], spans) if task.threshold is None else task.threshold
        return _split_scores_of_spans(task["inner"], decoded, spans, fitted)
    if task.kind == "multilabel":
        values = example_outputs(logits, table, len(task["inner"]))  # (examples, labels)
        gold = label_marks(task["inner"], task.outputs)
        return _split_scores_of_sets(task, task["inner"], values, best_micro_threshold(gold, values))
    return score_split(task, "inner", logits, table)


def score_predictions(task: Task, predictions: Predictions) -> ScoredPredictions:
    """Verdicts on the split and on inner; the threshold of the first comes from the second."""
    inner = predictions.inner
    fitted = None if inner is None else score_inner(task, inner.logits, inner.table)
    threshold = task.threshold or 0.0 if fitted is None or fitted.threshold is None else fitted.threshold
    result = score_split(task, predictions.split, predictions.logits, predictions.table, threshold)
    return ScoredPredictions(predictions, result, fitted)


def _split_scores_of_spans(
    examples: Sequence[Example], decoded: Sequence[Decoded], spans: SpanScores, threshold: float | None
) -> SplitScores:
    answers = answer_texts(decoded, examples, threshold)
    pairs = {e.id: (exact, f1) for e, (exact, f1) in zip(examples, spans.at(threshold).tolist(), strict=True)}
    scores = summarise(golds_of(examples), pairs)
    places = answer_places(decoded, examples, threshold)
    return SplitScores(scores, threshold, dict(answers), score_spans(examples, spans, threshold), places)


def _split_scores_of_sets(
    task: Task, examples: Sequence[Example], values: NDArray[np.float64], threshold: float
) -> SplitScores:
    """Every label whose output reaches the threshold is said."""
    gold, said = label_marks(examples, task.outputs), values >= threshold  # (examples, labels)
    answers = {e.id: [task.labels[i] for i in np.flatnonzero(row)] for e, row in zip(examples, said, strict=True)}
    return SplitScores(multilabel_scores(gold, said), threshold, dict(answers), score_label_sets(gold, said, values))


def _threshold(examples: Sequence[Example], spans: SpanScores) -> float:
    """Where answering begins to gain F1 on these questions."""
    has = np.array([bool(example.answers) for example in examples])
    return no_answer_threshold(spans.no_answer, spans.answered[:, 1], has)


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
