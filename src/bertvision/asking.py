"""Models as one asks them: questions about a context, labels or numbers for texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.ensemble import sigmoid, softmax_rows
from bertvision.evaluation.scoring import example_outputs
from bertvision.model import Model, read_config
from bertvision.tasks.span_decoding import Decoded, decode, n_best

CHUNK = 256
"""Examples that are in memory at a time."""


class QuestionAnswerer(Model):
    """Answers questions from a context, or says that the context does not hold the answer."""

    kinds = ("span",)

    def __call__(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
        handle_impossible_answer: bool | None = None,
    ) -> Any:
        """``{"answer", "score", "start", "end", "no_answer_probability"}``; lists in, lists out.

        An empty answer means that there is none; ``handle_impossible_answer=False`` always gives a
        span. ``start`` and ``end`` are characters of the context.
        """
        if isinstance(question, str) and isinstance(context, str):
            return next(self.answers([(question, context)], top_k, handle_impossible_answer))
        pairs = list(zip(_listed(question, context), _listed(context, question), strict=True))
        return list(self.answers(pairs, top_k, handle_impossible_answer))

    def answers(
        self, pairs: Sequence[tuple[str, str]], top_k: int = 1, handle_impossible: bool | None = None
    ) -> Iterator[Any]:
        """Answers to (question, context) pairs, a few hundred at a time."""
        if top_k < 1:
            raise BadInput(f"top_k is {top_k}, expected at least 1")
        wanted = self.task.no_answer if handle_impossible is None else handle_impossible
        threshold = (self.threshold or 0.0) if wanted else None
        for first in range(0, len(pairs), CHUNK):
            examples = [_question(i, q, c) for i, (q, c) in enumerate(pairs[first : first + CHUNK], first)]
            logits, table = self.outputs(examples)
            for example, found in zip(examples, decode(logits, table, len(examples)), strict=True):
                best = self._entries(found, example.pair or "", threshold, top_k)
                yield best[0] if top_k == 1 else best

    def _entries(self, found: Decoded, context: str, threshold: float | None, top_k: int) -> list[dict[str, object]]:
        # The same whether "no answer" may be said or not: it tells how near it was.
        beyond = (found.no_answer_score - (self.threshold or 0.0)) / self.temperatures.get("no_answer", 1.0)
        chance = {"no_answer_probability": float(sigmoid(np.array(beyond)))}
        listed = n_best(found, context, threshold, top_k, self.temperatures.get("answer", 1.0))
        return [{**entry, **chance} for entry in listed]


class TextClassifier(Model):
    """A label, any number of them, or for a regression task a number, for texts and pairs of texts."""

    kinds = ("classify", "multilabel", "regress")

    def __call__(self, text: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Any:
        """``{"label", "score", "scores"}`` or ``{"value"}``; lists in, lists out.

        Where a text has any number of labels: ``{"labels": [{"label", "score"}, ...], "scores"}``, the
        labels that reach the model's threshold, the surest first, and the scores of all.
        """
        if isinstance(text, str) and (pair is None or isinstance(pair, str)):
            return next(self.labels([(text, pair)]))
        texts = _listed(text, text if pair is None else pair)
        pairs: Sequence[str | None] = [None] * len(texts) if pair is None else _listed(pair, text)
        return list(self.labels(list(zip(texts, pairs, strict=True))))

    def labels(self, texts: Sequence[tuple[str, str | None]]) -> Iterator[dict[str, Any]]:
        """Labels for (text, pair or None), a few hundred at a time."""
        for first in range(0, len(texts), CHUNK):
            chunk = texts[first : first + CHUNK]
            logits, table = self.outputs([Example(str(i), text, pair) for i, (text, pair) in enumerate(chunk)])
            for row in example_outputs(logits, table, len(chunk), self.task.merge_label):
                yield self._entry(row)

    def _entry(self, row: np.ndarray) -> dict[str, Any]:
        if self.task.kind == "regress":
            return {"value": float(row[0]) * self.task.spread + self.task.center}
        logits: np.ndarray = row / self.temperatures.get("label", 1.0)
        scores = sigmoid(logits) if self.task.kind == "multilabel" else softmax_rows(logits)
        named = {label: float(score) for label, score in zip(self.task.labels, scores, strict=True)}
        if self.task.kind == "multilabel":
            said = [self.task.labels[place] for place in np.argsort(-row) if row[place] >= (self.threshold or 0.0)]
            return {"labels": [{"label": label, "score": named[label]} for label in said], "scores": named}
        best = int(scores.argmax())
        return {"label": self.task.labels[best], "score": float(scores[best]), "scores": named}


def load_model(
    folder: str | Path, device: str = "auto", base: Encoder | str | None = None
) -> QuestionAnswerer | TextClassifier:
    """A saved model as what it is for; models on one ``base`` share its weights."""
    kind = read_config(Path(folder))["task"]["kind"]
    return (QuestionAnswerer if kind == "span" else TextClassifier).from_pretrained(folder, device, base)


def _question(number: int, question: str, context: str) -> Example:
    if not context.strip() or not question.strip():
        raise BadInput(f"question {number + 1}: the {'context' if question.strip() else 'question'} is empty")
    return Example(str(number + 1), question.strip(), context)


def _listed(given: str | Sequence[str], other: str | Sequence[str]) -> list[str]:
    """One context for many questions, or many for one, or as many as the other."""
    listed = [given] * len(other) if isinstance(given, str) else list(given)
    if not isinstance(other, str) and len(listed) != len(other):
        raise BadInput(f"got {len(listed)} and {len(other)} texts; expected as many of the one as of the other")
    return listed
