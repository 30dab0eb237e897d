"""Made-up run folders with the files of ``bertvision run``: any kind of task, two heads with two seeds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.files import write_json
from bertvision.core.records import CONTROL, SPLITS, Answer, Example
from bertvision.tasks.task import Task

POOL = "learned-pool"
SCORES: Mapping[str, Mapping[str, float]] = {
    "span": {"exact": 60.0, "f1": 70.0, "total": 4, "HasAns_f1": 65.0, "HasAns_total": 2},
    "classify": {"accuracy": 80.0, "macro_f1": 78.0},
    "multilabel": {"f1_micro": 80.0, "f1_macro": 75.0, "exact": 60.0},
    "regress": {"pearson": 70.0, "spearmanr": 68.0, "rmse": 0.8},
}
METRICS = {"span": "f1", "classify": "accuracy", "multilabel": "f1_micro", "regress": "pearson"}
MakeRun = Callable[..., tuple[Path, Task]]


def make_task(kind: Any, plain: Callable[[str], str]) -> Task:
    """Twelve examples in three splits; ``plain`` is applied to every text."""
    labels = (plain("label-no"), plain("label-yes")) if kind in ("classify", "multilabel") else ()
    examples = tuple(_example(kind, number, plain) for number in range(12))
    splits = {split: examples[4 * index : 4 * index + 4] for index, split in enumerate(SPLITS)}
    return Task(plain("task"), kind, splits, METRICS[kind], labels, no_answer=kind == "span")


def _example(kind: str, number: int, plain: Callable[[str], str]) -> Example:
    name = plain(f"id{number}")
    if kind == "span":
        start = plain("context-start ")
        answers = (Answer(plain("answer"), len(start)),) if number % 2 else ()
        return Example(name, plain("question"), start + plain("answer") + plain(" context-end"), answers)
    if kind == "multilabel":
        return Example(name, plain("text"), plain("pair"), labels=((), (0,), (1,), (0, 1))[number % 4])
    return Example(name, plain("text"), plain("pair"), label=float(number % 2 if kind == "classify" else number))


def right_answer(task: Task, example: Example) -> object:
    if task.kind == "span":
        return example.answers[0].text if example.answers else ""
    if task.kind == "multilabel":
        return [task.labels[index] for index in example.labels or ()]
    return task.labels[int(example.label or 0)] if task.kind == "classify" else example.label


def wrong_answer(task: Task, example: Example) -> object:
    if task.kind == "span":
        return "" if example.answers else (example.pair or "")[:6]
    if task.kind == "multilabel":
        return [label for index, label in enumerate(task.labels) if index not in (example.labels or ())]
    return task.labels[1 - int(example.label or 0)] if task.kind == "classify" else float(example.label or 0) + 1.5


def fill_run(
    folder: Path, task: Task, plain: Callable[[str], str] = str, pool: str = POOL, trust: bool = False
) -> None:
    """Write every file that a report reads; with ``trust`` the leaderboard has statistics."""
    encoder = {"name": plain("encoder-name"), "parameters": 1000, "record": _record(plain)}
    rows = [_row(task, pool, seed, 5.0 - seed) for seed in (0, 1)] + [
        _row(task, CONTROL, seed, seed) for seed in (0, 1)
    ]
    rows += [_row(task, "encoder", None, 2.0, "encoder"), _row(task, plain("ensemble"), None, 3.0, "ensemble")]
    rows[-1] |= {"spec": "fitted", "members": [plain("member"), "encoder"], "weights": [0.25, 0.75]}
    baseline = {"name": plain("baseline"), "scores": dict.fromkeys(SCORES[task.kind], 10.0)}
    board = {"task": task.name, "split": "dev", "metric": task.metric, "rows": rows, "baseline": baseline}
    statistics = with_statistics(task, rows, pool) if trust else {}
    write_json(folder / "leaderboard.json", {**board, "advice": plain("advice"), **statistics})
    write_json(folder / "store" / "manifest.json", _manifest(encoder, plain))
    write_json(folder / "encoder" / "bertvision.json", encoder)
    (folder / "recipe.toml").write_text(plain("recipe"), encoding="utf-8")
    (folder / "log.jsonl").write_text('{"step": "fit", "time": "2031-05-06T07:08:09"}\n', encoding="utf-8")
    for row in rows:
        if row["kind"] == "head":
            write_json(folder / "heads" / row["spec"] / f"seed{row['seed']}" / "head.json", _head(row))
        answers = {e.id: (right_answer if i < 2 else wrong_answer)(task, e) for i, e in enumerate(task["dev"])}
        seed = "" if row["seed"] is None else f"@{row['seed']}"
        write_json(folder / "predictions" / f"{row['name']}{seed}.json", answers)


def with_statistics(task: Task, rows: list[dict[str, Any]], pool: str) -> dict[str, Any]:
    """Add intervals, calibration and thresholds to the rows; return the leaderboard's comparisons and reliability."""
    outputs = {"span": ["answer", "no_answer"], "regress": []}.get(task.kind, ["label"])
    calibration = {output: {"temperature": 1.5, "ece_raw": 0.12, "ece": 0.034} for output in outputs}
    scores = {"exact": 61.0, "f1": 62.0, "threshold": -0.5}
    oracle = {"best_exact": 77.0, "best_exact_thresh": 1.25, "best_f1": 78.0, "best_f1_thresh": 1.5}
    thresholds = {"zero": {**scores, "threshold": 0.0}, "fitted": scores, "oracle": oracle}
    for row in rows:
        row |= {"interval": [60.0, 80.0], "calibration": calibration}
        row["thresholds"] = thresholds if task.kind == "span" else {}
    rows_by_name = {row["name"]: row for row in rows}
    summary = [_summary_row(name, row) for name, row in rows_by_name.items()]
    comparisons = [_comparison(pool, name, 0.01) for name in rows_by_name if name != pool]
    comparisons += [_comparison(name, "encoder", 0.5) for name in rows_by_name if name not in (pool, "encoder")]
    bins = [[0.25, 0.5, 3], [0.9, 1.0, 1]]
    reliability = [
        {"name": name, "seed": seed, "what": output, "raw": bins, "calibrated": bins[:1]}
        for name, seed in ((pool, 0), ("encoder", None))
        for output in outputs
    ]
    basis = {"level": 0.95, "draws": 2000, "clusters": 3, "of": "contexts", "seeds_vary": "head"}
    header = {"best_head": pool, "basis": basis}
    return {**header, "lines": summary, "comparisons": comparisons, "reliability": reliability}


def _summary_row(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {"name": name, "kind": row["kind"], "seeds": [0, 1], "mean": 70.0, "std": 1.0, "min": 69.0, "max": 71.0}
    return {**facts, "interval": [61.2, 82.3]}


def _comparison(a: str, b: str, p: float) -> dict[str, Any]:
    return {"a": a, "b": b, "difference": 4.5, "low": -1.25, "high": 9.0, "p": p / 2, "p_holm": p}


def _record(plain: Callable[[str], str]) -> dict[str, Any]:
    tune = {"method": plain("method"), "epochs": 0.3, "steps": 17, "lr": 1e-4}
    return {"tune": tune, "cost": {"seconds": 61.0, "loss": 0.5}}


def _row(task: Task, spec: str, seed: int | None, bonus: float, kind: str = "head") -> dict[str, Any]:
    scores = {name: value if "total" in name else value + bonus for name, value in SCORES[task.kind].items()}
    facts = {"name": spec, "spec": spec, "kind": kind, "seed": seed, "parameters": 123, "percent": 12.3}
    return {**facts, "scores": scores, "inner": scores, "seconds": 2.5, "threshold": None, "members": [], "weights": []}


def _head(row: Mapping[str, Any]) -> dict[str, Any]:
    history = [{"epoch": epoch, "loss": 1.0, "inner": 50.0 + epoch} for epoch in (1, 2, 3)]
    weights = None if row["spec"] == CONTROL else [0.2, 0.3, 0.5]
    facts = {"spec": row["spec"], "seed": row["seed"], "best_epoch": 2, "history": history, "seconds": 2.5}
    return {**facts, "layers": [0, 1, 2], "layer_weights": weights, "parameters": 123}


def _manifest(encoder: Mapping[str, Any], plain: Callable[[str], str]) -> dict[str, Any]:
    splits = {split: {"windows": 4, "tokens": 100, "bytes": 60000} for split in SPLITS}
    shape = {"layers": 3, "width": 100}
    return {
        "shape": shape,
        "layers": [0, 4, 8],
        "dtype": plain("dtype"),
        "encoder": encoder,
        "splits": splits,
        "seconds": 9.0,
    }


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that makes a run folder for a kind of task and returns it with its task."""

    def make(kind: str, plain: Callable[[str], str] = str, pool: str = POOL, trust: bool = False) -> tuple[Path, Task]:
        task = make_task(kind, plain)
        fill_run(tmp_path / "run", task, plain, pool, trust)
        return tmp_path / "run", task

    return make
