"""Class imbalance: counts of a task's labels, and balanced class weights for the loss."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Example
from bertvision.core.registry import unknown_name

if TYPE_CHECKING:
    from bertvision.tasks.task import Task

WEIGHTS = ("none", "balanced")
IMBALANCE_RATIO = 3
"""Labels count as imbalanced if the most common one has at least this many times the rarest's examples."""

LEAST_EXAMPLES = 3
"""Labels with fewer training examples are reported: nothing can be learned from so few."""

MAX_LABELS_SHOWN = 8


def label_indices(example: Example) -> tuple[int, ...]:
    """Indices of an example's labels: one, several, or none."""
    if example.labels is not None:
        return example.labels
    return () if example.label is None else (int(example.label),)


def class_counts(task: Task) -> dict[str, int]:
    """Number of training examples of each label, in the order of ``task.labels``."""
    counts = Counter(index for example in task["train"] for index in label_indices(example))
    return {label: counts[index] for index, label in enumerate(task.labels)}


def format_class_counts(task: Task) -> str:
    """Labels with their training counts, most common first; "" for a task without labels."""
    ranked = sorted(class_counts(task).items(), key=lambda item: -item[1])
    text = ", ".join(f"{label} {count:,}" for label, count in ranked[:MAX_LABELS_SHOWN])
    if len(ranked) > MAX_LABELS_SHOWN:
        text += f", {len(ranked) - MAX_LABELS_SHOWN} more down to {ranked[-1][1]:,}"
    return text


def describe_imbalance(task: Task) -> str:
    """One line about imbalanced labels, with advice; "" if the labels are balanced."""
    counts = class_counts(task)
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    if most < max(IMBALANCE_RATIO * least, 1):
        return ""
    share = f"{100 * most / len(task['train']):.0f} % of train have the most common label"
    ratio = f"{most / least:.1f} times as many as the rarest" if least else "none has the rarest"
    remedy = "balanced class weights are used" if task.class_weights else "consider --class-weights balanced"
    return f"imbalanced labels: {format_class_counts(task)}; {share}, {ratio}; {remedy}"


def describe_rare_labels(task: Task) -> str:
    """One line about labels with very few training examples; "" if there are none."""
    rare = [f"{shorten(label, 40)} ({count})" for label, count in class_counts(task).items() if count < LEAST_EXAMPLES]
    if not rare:
        return ""
    listed = ", ".join(rare[:MAX_LABELS_SHOWN])
    if len(rare) > MAX_LABELS_SHOWN:
        listed += f" and {len(rare) - MAX_LABELS_SHOWN:,} more"
    return (
        f"rare labels: {listed}: with fewer than {LEAST_EXAMPLES} training rows, a label can hardly be learned; "
        "add rows, or join labels"
    )


def with_class_weights(task: Task, how: object) -> Task:
    """The task with class weights ("none" or "balanced") for the loss.

    Balanced tasks choose epochs and models by macro-F1 instead of accuracy, which would favour the most
    common label again.
    """
    if how not in WEIGHTS:
        raise BadInput(unknown_name("class_weights", str(how), list(WEIGHTS)))
    if how == "none":
        return task
    if not task.labels:
        raise BadInput(f"class_weights: task {task.name} has no labels; leave it out")
    metric = "macro_f1" if task.metric == "accuracy" else task.metric
    return replace(task, class_weights=balanced_weights(task), metric=metric)


def balanced_weights(task: Task) -> tuple[float, ...]:
    """scikit-learn's "balanced": n / (k · count) for each of k labels and n training examples.

    For multilabel tasks, the positive class of each label gets (n - count) / count (``pos_weight`` of
    BCEWithLogitsLoss). A label gets 1 if none or all of the examples have it.
    """
    n, counts = len(task["train"]), list(class_counts(task).values())
    if task.kind == "multilabel":
        return tuple((n - count) / count if 0 < count < n else 1.0 for count in counts)
    return tuple(n / (len(counts) * count) if count else 1.0 for count in counts)
