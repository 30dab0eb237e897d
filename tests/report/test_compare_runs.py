"""Several runs in one report: comparable runs are tested in pairs, others are listed."""

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

DEV_SIZE = 40
NASTY = "<img src=x onerror=alert(1)>"


def classify_task(labels: tuple[str, ...] = ("no", "yes")) -> Task:
    dev = tuple(Example(f"e{n}", f"text {n}", label=float(n % 2)) for n in range(DEV_SIZE))
    return Task("t", "classify", {"train": dev[:2], "inner": dev[:2], "dev": dev}, "accuracy", labels)


def run_with_accuracy(folder: Path, make_run: Any, task: Task, right: int) -> Run:
    """A run in which every row is correct on exactly the first ``right`` examples."""
    folder_made, _ = make_run("classify")
    folder_made.rename(folder)
    for path in (folder / "predictions").glob("*.json"):
        labels = [int(e.label or 0) if n < right else 1 - int(e.label or 0) for n, e in enumerate(task["dev"])]
        write_json(path, {e.id: task.labels[label] for e, label in zip(task["dev"], labels, strict=True)})
    document = json.loads((folder / "leaderboard.json").read_text())
    for row in document["rows"]:
        row["scores"]["accuracy"] = 100 * right / DEV_SIZE
    write_json(folder / "leaderboard.json", document)
    return gather(folder, task)


def comparison_of(*runs: Run) -> str:
    return compare_runs([(f"run-{index}{NASTY}", run) for index, run in enumerate(runs)])


def test_runs_on_the_same_dev_are_tested_in_pairs(make_run: Any, tmp_path: Path) -> None:
    good, poor, same = (
        run_with_accuracy(tmp_path / name, make_run, classify_task(), right)
        for name, right in (("good", 38), ("poor", 8), ("same", 37))
    )
    text = comparison_of(good, poor, same)
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


def test_agreement_of_the_best_rows(make_run: Any, tmp_path: Path) -> None:
    good, poor = (
        run_with_accuracy(tmp_path / name, make_run, classify_task(), right)
        for name, right in (("good", 38), ("poor", 8))
    )
    reordered = replace(poor.task, splits={**poor.task.splits, "dev": poor.task["dev"][::-1]})
    _, text = comparison_of(good, replace(poor, task=reordered)).split("Agreement of the best rows: how often")
    assert "run-0&lt;img src=x onerror=alert(1)&gt;: learned-pool@0</span>" in text
    assert re.findall("<td>(.*?)</td>", text) == ["20.00", "75.00", "0.00", "5.00", "25.00"]


def test_regression_runs_have_no_agreement_table(make_run: Any) -> None:
    folder, task = make_run("regress")
    run = gather(folder, task)
    text = comparison_of(run, run)
    assert "first minus second" in text
    assert "Agreement of the best rows: how often" not in text


def test_order_of_examples_does_not_matter(make_run: Any, tmp_path: Path) -> None:
    run = run_with_accuracy(tmp_path / "one", make_run, classify_task(), 30)
    reordered = replace(run.task, splits={**run.task.splits, "dev": run.task["dev"][::-1]})
    assert comparison_of(run, replace(run, task=reordered)).count("<td>+0.00 to +0.00</td>") == 2


@pytest.mark.parametrize("difference", ["dev", "metric", "labels"])
def test_incomparable_runs_are_listed(make_run: Any, tmp_path: Path, difference: str) -> None:
    run = run_with_accuracy(tmp_path / "one", make_run, classify_task(), 30)
    task, board = run.task, run.board
    if difference == "dev":
        task = replace(task, splits={**task.splits, "dev": task["dev"][1:]})
    elif difference == "labels":
        task = replace(task, labels=("yes", "no"))
    else:
        board = replace(board, metric="macro_f1")
    text = comparison_of(run, replace(run, task=task, board=board))
    assert text.count("<p>") == 1
    assert text.startswith("<p>Not compared, because no other run has the same metric and the same dev examples: run-0")
    assert "<table" not in text


def test_run_without_answers_is_not_compared(make_run: Any, tmp_path: Path) -> None:
    run = run_with_accuracy(tmp_path / "one", make_run, classify_task(), 30)
    text = comparison_of(run, replace(run, answers={}))
    assert "saved answers are missing or do not determine" in text
