"""Compare two rules for the no-answer threshold on articles of inner that they were not fitted on.

python benchmarks/thresholds.py RUN [RUN ...]

RUN is a folder made by ``bertvision run`` on a task with unanswerable questions. The outputs of every fitted head
on inner are read; nothing is trained and dev is not used. Writes results/thresholds.csv, one row per head and
rule: the threshold, F1 where it was fitted, and F1 of each article at the threshold of all the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bertvision as bv
from bertvision.evaluation.metrics.thresholds import fit_no_answer_threshold, oracle_threshold
from bertvision.evaluation.scoring import score_inner
from bertvision.tasks.task import read_task
from bertvision.training.fitted_head import load_fitted
from collect import write_rows

Floats = NDArray[np.float64]


RULES: dict[str, Callable[..., float]] = {
    "best on inner": oracle_threshold,
    "curve through inner": fit_no_answer_threshold,
}


def main() -> None:
    rows = [row for run in map(Path, sys.argv[1:]) for row in _rows(run)]
    write_rows(Path("results/thresholds.csv"), rows)
    for run, rule in dict.fromkeys((row["run"], row["rule"]) for row in rows):
        selected = [row for row in rows if (row["run"], row["rule"]) == (run, rule)]
        columns = {key: np.array([row[key] for row in selected]) for key in ("threshold", "inner", "held_out")}
        means = ", ".join(f"{key} {values.mean():.2f}" for key, values in columns.items())
        print(f"{run}, {rule}: {len(selected)} heads, {means}, spread of thresholds {columns['threshold'].std():.2f}")


def _rows(run: Path) -> list[dict[str, object]]:
    store = bv.Store(run / "store")
    task, table = read_task(store.folder / "task"), store["inner"].table()
    articles = np.array([example.group for example in task["inner"]])
    has_answer = np.array([bool(example.answers) for example in task["inner"]])
    rows = []
    for folder in sorted(path.parent for path in run.glob("heads/*/*/head.json")):
        head, _ = load_fitted(folder)
        spans = score_inner(task, head.inner, table).example_scores.spans
        inner_scores = (spans.no_answer, spans.answered[:, 1], has_answer)
        for name, rule in RULES.items():
            threshold = rule(*inner_scores)
            facts = {"run": run.name, "head": head.spec, "seed": head.seed, "rule": name, "threshold": threshold}
            rows.append(
                {
                    **facts,
                    "inner": _f1(*inner_scores, threshold).mean(),
                    "held_out": _held_out(inner_scores, articles, rule),
                }
            )
    return rows


def _held_out(inner_scores: tuple[Floats, ...], articles: NDArray[np.str_], rule: Callable[..., float]) -> float:
    scores = np.zeros(len(articles))
    for article in np.unique(articles):
        held_out = articles == article
        threshold = rule(*(values[~held_out] for values in inner_scores))
        scores[held_out] = _f1(*(values[held_out] for values in inner_scores), threshold)
    return float(scores.mean())


def _f1(no_answer: Floats, answered: Floats, has_answer: NDArray[np.bool_], threshold: float) -> Floats:
    return 100 * np.where(no_answer <= threshold, answered, ~has_answer)


if __name__ == "__main__":
    main()
