"""Scores per example, from which metrics, intervals, paired tests, thresholds and calibration are computed.

Decoding and comparison with the gold answers happen here once, and everything else reuses their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import Example
from bertvision.evaluation.metrics.squad import score_examples
from bertvision.tasks.span_decoding import TOP_K, DecodedSpans, answer_texts
from bertvision.tasks.task import Task

Floats = NDArray[np.float64]

SPAN_SCORES = ("exact", "f1")

ALWAYS_NULL = 1e9
"""Finite no-answer score of a question without windows."""


@dataclass(frozen=True)
class SpanScores:
    """Scores of every question's best span and of the empty answer, and of the candidate spans."""

    answered: Floats  # (examples, 2) exact and f1 of the best span
    unanswered: Floats  # (examples, 2) exact and f1 of the empty answer
    no_answer: Floats  # (examples,) null score - best span score
    spans: Floats  # (examples, TOP_K) scores of the best spans, best first; -inf if there are fewer

    def scores_at(self, threshold: float | None) -> Floats:
        """Exact and f1 of each question (examples, 2), with questions above the threshold left unanswered."""
        if threshold is None:
            return self.answered
        return np.where((self.no_answer > threshold)[:, None], self.unanswered, self.answered)


@dataclass(frozen=True)
class ExampleScores:
    """Gold and predicted values of each example, and every metric that is a mean over examples, in 0..1."""

    gold: NDArray[Any]  # (examples,) label or value; spans: whether there is an answer; sets: (examples, labels)
    predicted: NDArray[Any]  # (examples,) label or value; spans: whether one was given; sets: (examples, labels)
    means: Mapping[str, Floats]  # metric -> (examples,)
    outputs: Floats | None = None  # (examples, labels)
    spans: SpanScores | None = None


def span_scores(examples: Sequence[Example], decoded: Sequence[DecodedSpans]) -> SpanScores:
    """Score the best span and the empty answer of every question."""
    scores = score_examples(gold_answers(examples), answer_texts(decoded, examples, None))
    spans = np.full((len(examples), TOP_K), -np.inf)
    for row, question in enumerate(decoded):
        best = question.candidates[:TOP_K]
        spans[row, : len(best)] = [candidate.score for candidate in best]
    return SpanScores(
        answered=np.array([scores[example.id] for example in examples]),
        unanswered=_empty_answer_scores(tuple(examples)),
        no_answer=np.clip([question.no_answer_score for question in decoded], -ALWAYS_NULL, ALWAYS_NULL),
        spans=spans,
    )


def score_spans(examples: Sequence[Example], spans: SpanScores, threshold: float | None) -> ExampleScores:
    """Scores of the answers at a threshold; None answers every question."""
    answered = np.ones(len(examples), bool) if threshold is None else spans.no_answer <= threshold
    return _from_pairs(examples, answered, spans.scores_at(threshold), spans)


def _from_pairs(
    examples: Sequence[Example], answered: NDArray[np.bool_], scores: Floats, spans: SpanScores | None = None
) -> ExampleScores:
    """Example scores from exact and f1 of each question (examples, 2)."""
    has_answer = np.array([bool(example.answers) for example in examples])
    means = {name: scores[:, column] for column, name in enumerate(SPAN_SCORES)}
    return ExampleScores(has_answer, answered, means, spans=spans)


def score_labels(gold: NDArray[Any], predicted: NDArray[Any], outputs: Floats | None = None) -> ExampleScores:
    """Scores of labels (examples,)."""
    return ExampleScores(gold, predicted, {"accuracy": np.asarray(gold == predicted, np.float64)}, outputs)


def label_indicators(examples: Sequence[Example], labels: int) -> NDArray[np.bool_]:
    """Label indicator matrix: which labels each example has, as booleans (examples, labels)."""
    marks = np.zeros((len(examples), labels), bool)
    for row, example in enumerate(examples):
        marks[row, list(example.labels or ())] = True
    return marks


def score_label_sets(
    gold: NDArray[np.bool_], predicted: NDArray[np.bool_], outputs: Floats | None = None
) -> ExampleScores:
    """Scores of label sets, given as indicators (examples, labels)."""
    return ExampleScores(gold, predicted, {"exact": (gold == predicted).all(1).astype(np.float64)}, outputs)


def score_values(gold: NDArray[Any], predicted: NDArray[Any]) -> ExampleScores:
    """Gold and predicted values (examples,), whose metrics are not means over examples."""
    return ExampleScores(gold, predicted, {})


def score_answers(task: Task, split: str, answers: Mapping[str, Any]) -> ExampleScores:
    """Score answers without confidences, e.g. from a file: example id -> text, label, labels or value."""
    examples = task[split]
    ordered = [answers[example.id] for example in examples]
    if task.kind == "span":
        pairs = score_examples(gold_answers(examples), dict(answers))
        scores = np.array([pairs[example.id] for example in examples])
        return _from_pairs(examples, np.array([bool(text) for text in ordered]), scores)
    if task.kind == "multilabel":
        index = {label: number for number, label in enumerate(task.labels)}
        predicted = [Example("", "", labels=tuple(index[label] for label in labels)) for labels in ordered]
        return score_label_sets(label_indicators(examples, task.outputs), label_indicators(predicted, task.outputs))
    gold = np.array([example.label for example in examples], np.float64)
    if task.kind == "classify":
        return score_labels(gold.astype(int), np.array([task.labels.index(label) for label in ordered]))
    return score_values(gold, np.array(ordered, np.float64))


def example_clusters(task: Task, split: str) -> list[str] | None:
    """The context of each example, as questions about one context are not independent; None if all examples are."""
    examples = task[split]
    clustered = task.kind == "span" or any(example.group for example in examples)
    return [example.pair or "" for example in examples] if clustered else None


def gold_answers(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Gold answers by question id."""
    return _golds(tuple(examples))


@lru_cache(maxsize=8)
def _golds(examples: tuple[Example, ...]) -> dict[str, list[str]]:
    return {example.id: [answer.text for answer in example.answers] for example in examples}


@lru_cache(maxsize=8)
def _empty_answer_scores(examples: tuple[Example, ...]) -> Floats:
    scores = score_examples(_golds(examples), {example.id: "" for example in examples})
    return np.array([scores[example.id] for example in examples])
