"""Several runs in one report: comparable runs are tested in pairs, others are named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.files import write_json
from bertvision.core.records import Example
from bertvision.report.compare_runs import compare_runs
from bertvision.runs.reader import Run, gather
from bertvision.tasks.task import Task

LONG = 40
NASTY = "<img src=x onerror=alert(1)>"


def classify(labels: tuple[str, ...] = ("no", "yes")) -> Task:
    dev = tuple(Example(f"e{n}", f"text {n}", label=float(n % 2)) for n in range(LONG))
    return Task("t", "classify", {"train": dev[:2], "inner": dev[:2], "dev": dev}, "accuracy", labels)


def run_with_accuracy(folder: Path, make_run: Any, task: Task, right: int) -> Run:
    """A run in which every row is right on the first ``right`` examples only."""
    made, _ = make_run("classify")
    made.rename(folder)
    for path in (folder / "predictions").glob("*.json"):
        labels = [int(e.label or 0) if n < right else 1 - int(e.label or 0) for n, e in enumerate(task["dev"])]
        write_json(path, {e.id: task.labels[label] for e, label in zip(task["dev"], labels, strict=True)})
    document = json.loads((folder / "leaderboard.json").read_text())
    for row in document["rows"]:
        row["scores"]["accuracy"] = 100 * right / LONG
    write_json(folder / "leaderboard.json", document)
    return gather(folder, task)


def text_of(*runs: Run) -> str:
    return compare_runs([(f"run-{index}{NASTY}", run) for index, run in enumerate(runs)])


def test_runs_on_the_same_dev_are_tested_in_pairs(make_run: Any, tmp_path: Path) -> None:
    good, poor, same = (
        run_with_accuracy(tmp_path / name, make_run, classify(), right)
        for name, right in (("good", 38), ("poor", 8), ("same", 37))
    )
    text = text_of(good, poor, same)
    assert NASTY not in text
    assert "Holm-corrected over all 6 tests" in text  # three pairs of best rows, three of encoders
    assert text.count("+75.00") == 2
    assert text.count("<td>ahead</td>") == 2
    assert text.count("<td>behind</td>") == 2
    assert text.count("<td>not significant</td>") == 2
    assert "learned-pool" in text
    assert "95.00" in text
    assert text.count("<td>&lt; 0.001</td>") == 4
    assert "Not compared" not in text


def test_best_rows_are_counted_against_each_other(make_run: Any, tmp_path: Path) -> None:
    good, poor = (
        run_with_accuracy(tmp_path / name, make_run, classify(), right) for name, right in (("good", 38), ("poor", 8))
    )
    turned = replace(poor.task, splits={**poor.task.splits, "dev": poor.task["dev"][::-1]})
    _, text = text_of(good, replace(poor, task=turned)).split("Agreement of the best rows: how often")
    assert "run-0&lt;img src=x onerror=alert(1)&gt;: learned-pool@0</span>" in text
    assert re.findall("<td>(.*?)</td>", text) == ["20.00", "75.00", "0.00", "5.00", "25.00"]


def test_numbers_are_neither_right_nor_wrong(make_run: Any) -> None:
    folder, task = make_run("regress")
    run = gather(folder, task)
    text = text_of(run, run)
    assert "first minus second" in text
    assert "Agreement of the best rows: how often" not in text


def test_the_order_of_examples_does_not_matter(make_run: Any, tmp_path: Path) -> None:
    one = run_with_accuracy(tmp_path / "one", make_run, classify(), 30)
    turned = replace(one.task, splits={**one.task.splits, "dev": one.task["dev"][::-1]})
    assert text_of(one, replace(one, task=turned)).count("<td>+0.00 to +0.00</td>") == 2


@pytest.mark.parametrize("what", ["dev", "metric", "labels"])
def test_runs_that_do_not_compare_are_named_in_one_line(make_run: Any, tmp_path: Path, what: str) -> None:
    one = run_with_accuracy(tmp_path / "one", make_run, classify(), 30)
    task, board = one.task, one.board
    if what == "dev":
        task = replace(task, splits={**task.splits, "dev": task["dev"][1:]})
    elif what == "labels":
        task = replace(task, labels=("yes", "no"))
    else:
        board = replace(board, metric="macro_f1")
    text = text_of(one, replace(one, task=task, board=board))
    assert text.count("<p>") == 1
    assert text.startswith("<p>Not compared, because no other run has the same metric and the same dev examples: run-0")
    assert "<table" not in text


def test_a_run_without_answers_cannot_be_compared(make_run: Any, tmp_path: Path) -> None:
    one = run_with_accuracy(tmp_path / "one", make_run, classify(), 30)
    text = text_of(one, replace(one, answers={}))
    assert "saved answers are missing or do not determine" in text
