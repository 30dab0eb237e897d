"""What a verdict rests on, example by example.

Intervals, paired tests, thresholds and probabilities are all made from it, so that nothing is
decoded or compared with the gold answers twice. Shared ground of the steps, not a step itself.
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
from bertvision.tasks.span_decoding import TOP_K, Decoded, answer_texts
from bertvision.tasks.task import Task

Floats = NDArray[np.float64]

SPAN_SCORES = ("exact", "f1")

ALWAYS_NULL = 1e9
"""Finite stand-in for the no-answer score of a question that no window could be made for."""


@dataclass(frozen=True)
class SpanScores:
    """Per question: what answering and what silence is worth, and how sure the predictor is of either."""

    answered: Floats  # (examples, 2) exact and f1 of the best span
    silent: Floats  # (examples, 2) exact and f1 of the empty answer
    no_answer: Floats  # (examples,) null score - best span score
    spans: Floats  # (examples, TOP_K) scores of the best spans, best first; -inf where there are no more

    def at(self, threshold: float | None) -> Floats:
        """Exact and f1 of each question (examples, 2) if what is above the threshold goes unanswered."""
        if threshold is None:
            return self.answered
        return np.where((self.no_answer > threshold)[:, None], self.silent, self.answered)


@dataclass(frozen=True)
class ExampleScores:
    """What was right, what was said, and every metric that is a mean over the examples, in 0..1."""

    gold: NDArray[Any]  # (examples,) label or value; spans: whether there is an answer; sets: (examples, labels)
    said: NDArray[Any]  # (examples,) label or value; spans: whether one was given; sets: (examples, labels)
    means: Mapping[str, Floats]  # metric -> (examples,)
    outputs: Floats | None = None  # (examples, labels)
    spans: SpanScores | None = None


def span_scores(examples: Sequence[Example], decoded: Sequence[Decoded]) -> SpanScores:
    """Both worlds of every question: its best span given, and nothing said."""
    golds = golds_of(examples)
    pairs = score_examples(golds, answer_texts(decoded, examples, None))
    spans = np.full((len(examples), TOP_K), -np.inf)
    for row, one in enumerate(decoded):
        spans[row, : len(one.candidates)] = [candidate.score for candidate in one.candidates[:TOP_K]]
    no_answer = np.clip([one.no_answer_score for one in decoded], -ALWAYS_NULL, ALWAYS_NULL)
    answered = np.array([pairs[example.id] for example in examples])
    return SpanScores(answered, _silent(tuple(examples)), no_answer, spans)


def score_spans(examples: Sequence[Example], spans: SpanScores, threshold: float | None) -> ExampleScores:
    """The evidence of answering at a threshold."""
    scores = spans.at(threshold)  # (examples, 2)
    answered = np.ones(len(examples), bool) if threshold is None else spans.no_answer <= threshold
    gold = np.array([bool(example.answers) for example in examples])
    return ExampleScores(gold, answered, {name: scores[:, i] for i, name in enumerate(SPAN_SCORES)}, spans=spans)


def score_labels(gold: NDArray[Any], said: NDArray[Any], outputs: Floats | None = None) -> ExampleScores:
    return ExampleScores(gold, said, {"accuracy": np.asarray(gold == said, np.float64)}, outputs)


def label_marks(examples: Sequence[Example], labels: int) -> NDArray[np.bool_]:
    """Which labels each example has (examples, labels), where it may have any number of them."""
    marks = np.zeros((len(examples), labels), bool)
    for row, example in enumerate(examples):
        marks[row, list(example.labels or ())] = True
    return marks


def score_label_sets(gold: NDArray[np.bool_], said: NDArray[np.bool_], outputs: Floats | None = None) -> ExampleScores:
    """Of sets of labels (examples, labels), true where a label is in the set."""
    return ExampleScores(gold, said, {"exact": (gold == said).all(1).astype(np.float64)}, outputs)


def score_values(gold: NDArray[Any], said: NDArray[Any]) -> ExampleScores:
    return ExampleScores(gold, said, {})


def score_answers(task: Task, split: str, answers: Mapping[str, Any]) -> ExampleScores:
    """What written answers (example id -> text, label or value) are worth; how sure they were is not known."""
    examples = task[split]
    said = [answers[example.id] for example in examples]
    if task.kind == "span":
        pairs = score_examples(golds_of(examples), dict(answers))
        scores = np.array([pairs[example.id] for example in examples])
        given = np.array([bool(answer) for answer in said])
        gold = np.array([bool(example.answers) for example in examples])
        return ExampleScores(gold, given, {name: scores[:, i] for i, name in enumerate(SPAN_SCORES)})
    if task.kind == "multilabel":
        places = {label: place for place, label in enumerate(task.labels)}
        told = [Example("", "", labels=tuple(places[label] for label in labels)) for labels in said]
        return score_label_sets(label_marks(examples, task.outputs), label_marks(told, task.outputs))
    truth = np.array([example.label for example in examples], np.float64)
    if task.kind == "classify":
        return score_labels(truth.astype(int), np.array([task.labels.index(label) for label in said]))
    return score_values(truth, np.array(said, np.float64))


def clusters_of(task: Task, split: str) -> list[str] | None:
    """Questions on one context are right or wrong together; None where every example stands for itself."""
    examples = task[split]
    asked = task.kind == "span" or any(example.group for example in examples)
    return [example.pair or "" for example in examples] if asked else None


def golds_of(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Gold answers by question id."""
    return _golds(tuple(examples))


@lru_cache(maxsize=8)
def _golds(examples: tuple[Example, ...]) -> dict[str, list[str]]:
    return {example.id: [answer.text for answer in example.answers] for example in examples}


@lru_cache(maxsize=8)
def _silent(examples: tuple[Example, ...]) -> Floats:
    pairs = score_examples(_golds(examples), {example.id: "" for example in examples})
    return np.array([pairs[example.id] for example in examples])
