"""Score raw outputs: decode answers, choose labels, rescale values, and compute the official metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import FOLDS, Example, Predictions, WindowTable
from bertvision.evaluation.example_scores import (
    ALWAYS_NULL,
    ExampleScores,
    SpanScores,
    gold_answers,
    label_indicators,
    score_label_sets,
    score_labels,
    score_spans,
    score_values,
    span_scores,
)
from bertvision.evaluation.metrics.calibration import log_probabilities
from bertvision.evaluation.metrics.labels import best_micro_threshold, classification_scores, multilabel_scores
from bertvision.evaluation.metrics.squad import summarise
from bertvision.evaluation.metrics.thresholds import fit_no_answer_threshold
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.tasks.span_decoding import DecodedSpans, answer_spans, answer_texts, decode
from bertvision.tasks.task import Task

Logits = Sequence[NDArray[np.float32]]


@dataclass(frozen=True)
class SplitScores:
    """The answers of one predictor on a split, and their scores."""

    scores: dict[str, float]
    threshold: float | None
    answers: dict[str, object]  # example id -> answer text, label name, names of labels or value
    example_scores: ExampleScores | None = None
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # spans: characters of each answer


@dataclass(frozen=True)
class ScoredPredictions:
    """Predictions with their scores on their own split and on inner."""

    predictions: Predictions
    result: SplitScores
    inner: SplitScores | None

    def selection_score(self, metric: str) -> float:
        """Score by which predictors are selected: on inner or, without an inner split, on the split itself."""
        return (self.inner or self.result).scores[metric]

    def rank(self, metric: str) -> tuple[float, int, str, int]:
        """Sort key: best first; ties by fewer parameters, name and seed, independent of the order of training."""
        predictions = self.predictions
        seed = -1 if predictions.seed is None else predictions.seed
        return -self.selection_score(metric), predictions.parameters, predictions.name, seed


def score_split(
    task: Task, split: str, logits: Logits, table: WindowTable, threshold: float | None = None
) -> SplitScores:
    """Score outputs on a split at a given threshold."""
    examples = task[split]
    if task.kind == "span":
        decoded = decode(logits, table, len(examples))
        threshold = (threshold or 0.0) if task.no_answer else None
        return _score_spans_at(examples, decoded, span_scores(examples, decoded), threshold)
    values = example_outputs(logits, table, len(examples), task.merge_label)  # (examples, outputs)
    if task.kind == "multilabel":
        return _score_label_sets(task, examples, values, threshold or 0.0)
    gold = np.array([example.label for example in examples])
    if task.kind == "classify":
        labels = values.argmax(1) if not threshold else (_margins(values) >= threshold).astype(int)
        names = {example.id: task.labels[int(label)] for example, label in zip(examples, labels, strict=True)}
        scores = classification_scores(gold.astype(int).tolist(), labels.tolist(), len(task.labels))
        return SplitScores(scores, threshold or None, dict(names), score_labels(gold.astype(int), labels, values))
    rescaled = values[:, 0] * task.spread + task.center
    predicted = {example.id: float(value) for example, value in zip(examples, rescaled, strict=True)}
    scores = regression_scores(gold.tolist(), rescaled.tolist())
    return SplitScores(scores, None, dict(predicted), score_values(gold, rescaled))


def score_inner(task: Task, logits: Logits, table: WindowTable, split: str = "inner") -> SplitScores:
    """Score outputs on the validation split (``"inner"``, or ``"folds"`` for out-of-fold outputs of train and inner).

    Thresholds are fitted there: of no answer, unless the task sets one, or of the labels.
    """
    examples = task[split]
    if task.kind == "span" and task.no_answer:
        decoded = decode(logits, table, len(examples))
        spans, threshold = span_scores(examples, decoded), task.threshold
        if threshold is None:
            has_answer = np.array([bool(example.answers) for example in examples])
            threshold = fit_no_answer_threshold(spans.no_answer, spans.answered[:, 1], has_answer)
        return _score_spans_at(examples, decoded, spans, threshold)
    if task.kind == "multilabel":
        values = example_outputs(logits, table, len(examples))  # (examples, labels)
        threshold = best_micro_threshold(label_indicators(examples, task.outputs), values)
        return _score_label_sets(task, examples, values, threshold)
    if task.kind == "classify" and task.outputs == 2 and split == FOLDS and task.metric != "accuracy":
        return score_split(task, split, logits, table, _share_threshold(task, split, logits, table))
    return score_split(task, split, logits, table)


def _share_threshold(task: Task, split: str, logits: Logits, table: WindowTable) -> float:
    """The margin from which the second label is predicted as often as it occurs.

    A weak predictor is right most often if it always gives the common label, which F1 and Matthews' correlation
    count for nothing.
    """
    examples = task[split]
    share = float(np.mean([example.label == 1 for example in examples]))
    margins = _margins(example_outputs(logits, table, len(examples), task.merge_label))
    return float(np.quantile(margins, 1 - share))


def _margins(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much the output of the second of two labels exceeds that of the first: (examples,)."""
    return np.asarray(values[:, 1] - values[:, 0])


def validation_losses(result: SplitScores) -> NDArray[np.float64]:
    """Log loss of the label or labels, or squared error of the value, of each example: (examples,)."""
    scores = result.example_scores
    assert scores is not None
    if scores.outputs is None:
        return np.asarray((scores.gold - scores.predicted) ** 2, np.float64)
    if scores.gold.ndim == 2:  # any number of labels
        return np.asarray(np.logaddexp(0, np.where(scores.gold > 0, -scores.outputs, scores.outputs)).mean(1))
    columns = scores.gold.astype(np.int64)[:, None]
    return -np.take_along_axis(log_probabilities(scores.outputs), columns, 1)[:, 0]


def score_predictions(task: Task, predictions: Predictions, on_inner: SplitScores | None = None) -> ScoredPredictions:
    """Score predictions on inner, and on their own split at the threshold fitted on inner.

    ``on_inner`` are the scores on inner, if they were computed before.
    """
    inner = predictions.inner
    if on_inner is None and inner is not None:
        on_inner = score_inner(task, inner.logits, inner.table, inner.split)
    threshold = task.threshold or 0.0
    if on_inner is not None and on_inner.threshold is not None:
        threshold = on_inner.threshold
    result = score_split(task, predictions.split, predictions.logits, predictions.table, threshold)
    return ScoredPredictions(predictions, result, on_inner)


def _score_spans_at(
    examples: Sequence[Example], decoded: Sequence[DecodedSpans], spans: SpanScores, threshold: float | None
) -> SplitScores:
    scores = spans.scores_at(threshold).tolist()  # exact and f1 of each question
    pairs = {example.id: (exact, f1) for example, (exact, f1) in zip(examples, scores, strict=True)}
    return SplitScores(
        scores=summarise(gold_answers(examples), pairs),
        threshold=threshold,
        answers=dict(answer_texts(decoded, examples, threshold)),
        example_scores=score_spans(examples, spans, threshold),
        places=answer_spans(decoded, examples, threshold),
    )


def _score_label_sets(
    task: Task, examples: Sequence[Example], values: NDArray[np.float64], threshold: float
) -> SplitScores:
    """Score the sets of labels whose output reaches the threshold."""
    gold, predicted = label_indicators(examples, task.outputs), values >= threshold  # (examples, labels)
    predicted_names: dict[str, object] = {}
    for example, indicators in zip(examples, predicted, strict=True):
        predicted_names[example.id] = [task.labels[index] for index in np.flatnonzero(indicators)]
    return SplitScores(
        scores=multilabel_scores(gold, predicted),
        threshold=threshold,
        answers=predicted_names,
        example_scores=score_label_sets(gold, predicted, values),
    )


def example_outputs(
    logits: Logits, table: WindowTable, examples: int, any_label: int | None = None
) -> NDArray[np.float64]:
    """Outputs of each example (examples, outputs): the mean over its windows.

    With ``any_label``, one window that predicts this label is enough: the example gets the outputs of the window
    with the largest margin of that label over the best other one. An example without windows never gets the label.
    """
    values = np.asarray(np.stack(list(logits)), np.float64)  # (windows, outputs)
    outputs = np.zeros((examples, values.shape[1]))
    if any_label is None:
        np.add.at(outputs, table.example, values)
        return outputs / np.maximum(np.bincount(table.example, minlength=examples), 1)[:, None]
    margin = values[:, any_label] - np.delete(values, any_label, axis=1).max(1)  # (windows,)
    order = np.argsort(margin, kind="stable")
    outputs[:, any_label] = -ALWAYS_NULL
    outputs[table.example[order]] = values[order]  # the last of several rows for an example is kept
    return outputs
