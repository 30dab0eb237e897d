"""``Task``: its one-line repr, and the examples of its docstring."""

from __future__ import annotations

import doctest
from dataclasses import replace

import bertvision.tasks.task
from bertvision import Example, Task


def test_doctests_of_task_run() -> None:
    results = doctest.testmod(bertvision.tasks.task)
    assert results.attempted > 0
    assert results.failed == 0


def test_repr_of_a_task_is_one_line() -> None:
    rows = tuple(Example(str(number), "text " * 100, label=0.0) for number in range(50))
    task = Task("text", "classify", {"train": rows, "inner": rows[:5], "dev": ()}, "accuracy", labels=("neg", "pos"))
    assert repr(task) == "Task('text', classify, train=50, inner=5, dev=0, labels=neg, pos)"
    many = replace(task, labels=tuple(f"label{number}" for number in range(100)))
    assert repr(many).endswith("labels=label0, label1, label2, label3, label4, ...)")
    assert repr(replace(task, labels=(), kind="regress")) == "Task('text', regress, train=50, inner=5, dev=0)"
