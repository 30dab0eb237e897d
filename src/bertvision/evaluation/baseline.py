"""What a predictor must beat that never looks at the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bertvision.core.records import Example
from bertvision.evaluation.example_scores import label_marks
from bertvision.evaluation.metrics.labels import classification_scores, multilabel_scores
from bertvision.evaluation.metrics.squad import squad_scores
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.tasks.task import Task


def baseline(task: Task, split: str) -> tuple[str, dict[str, float]]:
    """(what it does, its scores): always "no answer", the commonest label or set of labels, or train's mean."""
    examples = task[split]
    if task.kind == "span":
        golds = {example.id: [answer.text for answer in example.answers] for example in examples}
        return "always no answer", dict(squad_scores(golds, dict.fromkeys(golds, "")))
    if task.kind == "multilabel":
        return _commonest_set(task, examples)
    gold = [float(example.label or 0.0) for example in examples]
    if task.kind == "regress":
        return "always the mean", regression_scores(gold, [task.center] * len(gold))
    commonest = Counter(int(example.label or 0) for example in task["train"]).most_common(1)[0][0]
    scores = classification_scores([int(label) for label in gold], [commonest] * len(gold), len(task.labels))
    return f"always {task.labels[commonest]}", scores


def _commonest_set(task: Task, examples: Sequence[Example]) -> tuple[str, dict[str, float]]:
    commonest = Counter(example.labels or () for example in task["train"]).most_common(1)[0][0]
    names = " + ".join(task.labels[place] for place in commonest) or "no label"
    said = [replace(example, labels=commonest) for example in examples]
    return f"always {names}", multilabel_scores(label_marks(examples, task.outputs), label_marks(said, task.outputs))
