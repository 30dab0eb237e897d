"""How many of the listed label errors are errors, measured on labels that were changed on purpose.

python benchmarks/label_errors.py DATA

Changes 5 % of the labels of 2,000 rows, runs ``bertvision run`` with a frozen encoder and default settings on them, and
compares ``analysis/labels.json`` with the changed rows. For comparison, the same rows are ranked by a logistic
regression on embeddings. Real labels are not free of errors either, so a listed row that was not changed may be wrong.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bertvision.core.progress import log_line
from bertvision.tasks.splits import stable_hash
from quality_methods import encode_minilm, run_process, write_rows
from quality_tasks import REGIMES, TASKS, LabelledText, hash_order

TASK_NAMES = ("sst2", "airline")
SHARE = 0.05
DEV_ROWS = 300  # no label of dev is changed or judged; the command needs some
FIRST = (20, 50, 100)
RESULT = Path("results/label_errors.csv")
COLUMNS = ("task", "draw", "rows", "changed", "way", "listed", *(f"precision_{count}" for count in FIRST))
COLUMNS += ("precision", "recall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the files named in quality_tasks.py")
    parser.add_argument("--draws", type=int, default=REGIMES["2000"].draws)
    options = parser.parse_args()
    results = []
    for name in TASK_NAMES:
        rows, dev = TASKS[name].read(options.data)
        for draw in range(options.draws):
            results += measure(name, draw, REGIMES["2000"].draw(TASKS[name], rows, draw), hash_order(dev, "small"))
            write(results)


def measure(name: str, draw: int, rows: Sequence[LabelledText], dev: Sequence[LabelledText]) -> list[dict[str, object]]:
    """One line per way of ranking the rows."""
    noisy, changed = change_labels(rows, f"{name} {draw}")
    with tempfile.TemporaryDirectory() as folder:
        listed = listed_rows(noisy, dev[:DEV_ROWS], Path(folder))
    ranked = rank_by_regression(noisy)
    facts = {"task": name, "draw": draw, "rows": len(noisy), "changed": len(changed)}
    chance: dict[str, object] = {key: f"{len(changed) / len(noisy):.3f}" for key in COLUMNS if "precision" in key}
    lines = [
        {**facts, "way": "labels.json", **scores(listed, changed)},
        {**facts, "way": "regression", **scores(ranked[: len(listed)], changed)},
        {**facts, "way": "chance", "listed": len(listed), **chance, "recall": f"{len(listed) / len(noisy):.3f}"},
    ]
    for line in lines:
        log_line(", ".join(f"{key} {value}" for key, value in line.items()))
    return lines


def change_labels(rows: Sequence[LabelledText], salt: str) -> tuple[list[LabelledText], set[int]]:
    """The rows with some labels replaced by another one, and the indices of these rows."""
    labels = sorted({row.label for row in rows})
    order = sorted(range(len(rows)), key=lambda index: stable_hash(f"change {salt}:{rows[index].id}"))
    changed = set(order[: round(SHARE * len(rows))])
    noisy = list(rows)
    for index in changed:
        others = [label for label in labels if label != rows[index].label]
        number = int(stable_hash(f"label {salt}:{rows[index].id}"), 16)
        noisy[index] = replace(rows[index], label=others[number % len(others)])
    return noisy, changed


def listed_rows(rows: Sequence[LabelledText], dev: Sequence[LabelledText], scratch: Path) -> list[int]:
    """Indices of the rows in ``labels.json``, most doubtful first."""
    files = [str(write_rows(scratch / f"{name}.jsonl", part)) for name, part in (("train", rows), ("dev", dev))]
    command = [sys.executable, "-m", "bertvision", "run", "text", "--train", files[0], "--dev", files[1]]
    run_process([*command, "--epochs", "0", "--out", str(scratch / "run")], scratch / "run.log")
    finding = json.loads((scratch / "run" / "analysis" / "labels.json").read_text(encoding="utf-8"))
    return [int(row["id"].rpartition(":")[2]) - 1 for row in finding["rows"]]


def rank_by_regression(rows: Sequence[LabelledText]) -> list[int]:
    """All rows by how much more probable another label is than theirs, by cross-validated logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    features, names = encode_minilm([row.text for row in rows]), [row.label for row in rows]
    labels = np.unique(names, return_inverse=True)[1]
    probabilities = cross_val_predict(LogisticRegression(max_iter=1000), features, labels, method="predict_proba")
    given = probabilities[np.arange(len(rows)), labels]
    probabilities[np.arange(len(rows)), labels] = -1
    return np.argsort(given - probabilities.max(1), kind="stable").tolist()


def scores(listed: Sequence[int], changed: set[int]) -> dict[str, object]:
    """Precision among the first rows and among all, and the share of the changed rows that are listed."""
    hits = [index in changed for index in listed]
    cells: dict[str, object] = {"listed": len(hits)}
    for count in FIRST:
        cells[f"precision_{count}"] = f"{np.mean(hits[:count]):.3f}" if len(hits) >= count else ""
    return cells | {"precision": f"{np.mean(hits):.3f}" if hits else "", "recall": f"{sum(hits) / len(changed):.3f}"}


def write(results: Sequence[dict[str, object]]) -> None:
    with RESULT.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(results)


if __name__ == "__main__":
    main()
