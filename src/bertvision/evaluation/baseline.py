"""The score of a trivial predictor that never looks at the text."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bertvision.evaluation.example_scores import gold_answers, label_indicators
from bertvision.evaluation.metrics.labels import classification_scores, multilabel_scores
from bertvision.evaluation.metrics.squad import squad_scores
from bertvision.evaluation.metrics.values import regression_scores
from bertvision.tasks.task import Task


def baseline(task: Task, split: str) -> tuple[str, dict[str, float]]:
    """Name and scores of the trivial predictor: no answer, the most common label or label set, or train's mean."""
    examples = task[split]
    if task.kind == "span":
        golds = gold_answers(examples)
        return "always no answer", dict(squad_scores(golds, dict.fromkeys(golds, "")))
    if task.kind == "multilabel":
        labels = Counter(example.labels or () for example in task["train"]).most_common(1)[0][0]
        names = " + ".join(task.labels[label] for label in labels) or "no label"
        predicted = label_indicators([replace(example, labels=labels) for example in examples], task.outputs)
        return f"always {names}", multilabel_scores(label_indicators(examples, task.outputs), predicted)
    gold = [float(example.label or 0.0) for example in examples]
    if task.kind == "regress":
        return "always the mean", regression_scores(gold, [task.center] * len(gold))
    label = Counter(int(example.label or 0) for example in task["train"]).most_common(1)[0][0]
    scores = classification_scores([int(value) for value in gold], [label] * len(gold), len(task.labels))
    return f"always {task.labels[label]}", scores
