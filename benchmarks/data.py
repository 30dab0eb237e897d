"""Tasks of several benchmarks, read from a folder of real data files (not part of the project)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bertvision.tasks.splits import stable_hash
from bertvision.tasks.task import Task, load_task


def load_named(name: str, data: Path) -> Task:
    """``squad``, ``mrpc`` or ``airline``."""
    if name == "squad":
        folder = data / "squad"
        files = ["squad2-train.json", "squad1-dev.json", "squad1-train-sample.json"]
        return load_task("squad2", train=[folder / file for file in files], dev=folder / "squad2-dev.json")
    if name == "mrpc":
        folder = data / "glue" / "MRPC"
        columns = {"text_column": "#1 String", "pair_column": "#2 String", "label_column": "Quality"}
        return load_task("text", train=folder / "train.tsv", dev=folder / "dev.tsv", **columns)
    table = data / "crowdflower" / "Airline-Sentiment-2-w-AA.csv"
    return load_task("text", train=table, text_column="text", label_column="airline_sentiment")


def sample_task(task: Task, train: int | None = None, inner: int | None = None, dev: int | None = None) -> Task:
    """The same task with at most this many examples per split, selected by a hash of their ids."""
    sizes = {"train": train, "inner": inner, "dev": dev}
    splits = {}
    for split, examples in task.splits.items():
        lowest = sorted(examples, key=lambda example: stable_hash(example.id))[: sizes[split]]
        selected = {example.id for example in lowest}
        splits[split] = tuple(example for example in examples if example.id in selected)
    return replace(task, splits=splits)
