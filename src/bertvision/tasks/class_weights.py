"""How unevenly a task's labels occur in train, and weights that make up for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.core.registry import unknown_name

if TYPE_CHECKING:
    from bertvision.tasks.task import Task

WEIGHTS = ("none", "balanced")
LEAST_RATIO = 3
"""Labels are uneven where the commonest has at least this many times the examples of the rarest."""

MOST_NAMED = 8


def label_indices(example: Example) -> tuple[int, ...]:
    """An example's labels as numbers: one, several, or none."""
    if example.labels is not None:
        return example.labels
    return () if example.label is None else (int(example.label),)


def class_counts(task: Task) -> dict[str, int]:
    """Examples of train by label, in the order of the labels."""
    counts = Counter(place for example in task["train"] for place in label_indices(example))
    return {label: counts[place] for place, label in enumerate(task.labels)}


def format_class_counts(task: Task) -> str:
    """Labels with their examples in train, the commonest first; nothing for a task without labels."""
    ranked = sorted(class_counts(task).items(), key=lambda item: -item[1])
    named = [f"{label} {count:,}" for label, count in ranked[:MOST_NAMED]]
    more = f", {len(ranked) - MOST_NAMED} more down to {ranked[-1][1]:,}" if len(ranked) > MOST_NAMED else ""
    return ", ".join(named) + more


def describe_imbalance(task: Task) -> str:
    """One line on labels that occur unevenly and on what can be done; nothing where they do not."""
    counts = class_counts(task)
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    if most < max(LEAST_RATIO * least, 1):
        return ""
    share = f"{100 * most / len(task['train']):.0f} % of train have the commonest"
    times = f"{most / least:.1f} times as many as the rarest" if least else "and none the rarest"
    remedy = "they are weighed" if task.class_weights else "--class-weights balanced weighs them"
    return f"uneven labels: {format_class_counts(task)}; {share}, {times}; {remedy}"


def weighed(task: Task, how: object) -> Task:
    """The task with the weights that its labels get in the loss.

    Epochs and models are then chosen by macro-F1 where it was by accuracy, which would go by the
    commonest label again.
    """
    if how not in WEIGHTS:
        raise BadInput(unknown_name("way to weigh labels (--class-weights)", str(how), list(WEIGHTS)))
    if how == "none":
        return task
    if not task.labels:
        raise BadInput(f"--class-weights is for labels; task {task.name} has none: leave it out")
    metric = "macro_f1" if task.metric == "accuracy" else task.metric
    return replace(task, class_weights=balanced_weights(task), metric=metric)


def balanced_weights(task: Task) -> tuple[float, ...]:
    """n / (k count) for each of k labels, n examples in train: every label weighs alike, the mean weight is 1.

    Where an example may have any number of labels, each is a question of yes or no, and its yes
    weighs (n - count) / count, so that yes and no weigh alike. A label that train has nowhere, or
    everywhere, weighs 1.
    """
    rows, counts = len(task["train"]), list(class_counts(task).values())
    if task.kind == "multilabel":
        return tuple((rows - count) / count if 0 < count < rows else 1.0 for count in counts)
    return tuple(rows / (len(counts) * count) if count else 1.0 for count in counts)
