"""What is right and what was said, in words, whatever the kind of task."""

from __future__ import annotations

from bertvision.core.records import Example
from bertvision.tasks.task import Task


def gold_names(task: Task, example: Example) -> list[str]:
    """The gold answers that read differently, the labels, the one label, or the number; none is an empty list."""
    if task.kind == "span":
        return list(dict.fromkeys(answer.text for answer in example.answers))
    if task.kind == "multilabel":
        return [task.labels[place] for place in example.labels or ()]
    label = float(example.label or 0.0)
    return [task.labels[int(label)] if task.kind == "classify" else f"{label:g}"]


def gold_text(task: Task, example: Example) -> str:
    """Answers of which any will do, or labels that all belong; nothing where there is none."""
    return (" / " if task.kind == "span" else ", ").join(gold_names(task, example))


def told(said: object) -> str:
    """An answer as one reads it; none is said in words."""
    if isinstance(said, list | tuple):
        return ", ".join(map(str, said)) or "no label"
    return str(said) or "no answer"
