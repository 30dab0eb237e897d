"""Save the results of finished runs as data, and print their leaderboards as tables.

python benchmarks/collect.py NAME=RUN [NAME=RUN ...] [--only board depth curve learning ablation search]

Writes these files, each if RUN has its source:

results/NAME.csv            one row per predictor, from leaderboard.json
results/NAME_depth.csv      one row per depth, from depth/depth.json
results/NAME_curve.csv      one row per checkpoint, from curve.json, with its chart
results/NAME_learning.csv   one row per share of the data, from analysis/learning-curve.json, with its chart
results/NAME_ablation.csv   one row per span of layers, from ablation/, with its chart
results/NAME_search.csv     the winner, the defaults and every trial, from search/result.json
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--only", nargs="+", choices=SAVERS, default=list(SAVERS))
    options = parser.parse_args()
    for argument in options.runs:
        name, _, folder = argument.partition("=")
        for what in options.only:
            SAVERS[what](name, Path(folder))


def save_leaderboard(name: str, folder: Path) -> None:
    if (folder / "leaderboard.json").exists():
        board = read(folder / "leaderboard.json")
        write_leaderboard(Path("results") / f"{name}.csv", board, read(folder / "encoder" / "bertvision.json"))
        print(f"\n{name}: {board['task']}, {board['split']}\n{markdown(board)}")


def save_depth(name: str, folder: Path) -> None:
    path = folder / "depth" / "depth.json"
    if path.exists():
        document = read(path)
        constants = {key: document[key] for key in ("task", "metric", "head", "within", "chosen")}
        ratio = document.get("cut", {}).get("time_ratio")
        rows = []
        for row in document["rows"]:
            spread = {"low": min(row["dev_by_seed"]), "high": max(row["dev_by_seed"])}
            cut = {"time_ratio": ratio if row["depth"] == document["chosen"] else None}
            fields = {key: value for key, value in row.items() if key != "dev_by_seed"}
            rows.append({**constants, "seeds": len(document["seeds"]), **fields, **spread, **cut})
        write_rows(Path("results") / f"{name}_depth.csv", rows)


def save_curve(name: str, folder: Path) -> None:
    path = folder / "curve.json"
    if path.exists():
        document = read(path)
        constants = {key: document[key] for key in ("task", "metric", "schedule")}
        rows = []
        for row in document["rows"]:
            scores = {**row["scores"], **{f"inner_{key}": value for key, value in row["inner"].items()}}
            rows.append({**constants, **{key: row[key] for key in ("epochs", "steps", "seconds")}, **scores})
        write_rows(Path("results") / f"{name}_curve.csv", rows)
        shutil.copy(path.with_suffix(".svg"), Path("results") / f"{name}_curve.svg")


def save_learning_curve(name: str, folder: Path) -> None:
    path = folder / "analysis" / "learning-curve.json"
    if path.exists():
        write_rows(Path("results") / f"{name}_learning.csv", read(path)["rows"])
        shutil.copy(path.with_suffix(".svg"), Path("results") / f"{name}_learning.svg")


def save_ablation(name: str, folder: Path) -> None:
    path = folder / "ablation" / "ablation.csv"
    if path.exists():
        for kind in (".csv", ".svg"):
            shutil.copy(path.with_suffix(kind), Path("results") / f"{name}_ablation{kind}")


def save_search(name: str, folder: Path) -> None:
    """The winner and the defaults have scores on inner and dev, trials on inner only."""
    path = folder / "search" / "result.json"
    if path.exists():
        document = read(path)
        # A search over tunings has the trials of its best tuning, in that tuning's run.
        tuned_folder = folder / "search" / "tuned" / Path(document["run"]).name if "run" in document else folder
        history = tuned_folder / "analysis" / f"search-history-{document['tag']}.json"
        gain = document["difference"] or {}
        candidates = [("winner", document["winner"]), *(("default", candidate) for candidate in document["defaults"])]
        rows = [
            {
                "what": what,
                "trial": "",
                "head": candidate["spec"],
                "settings": _settings(candidate["fit"]),
                "state": "complete",
            }
            | {"inner": candidate["inner"], "dev": candidate["dev"], "seeds": len(document["seeds"])}
            | {f"gain_{key}": gain.get(key, "") if what == "winner" else "" for key in ("difference", "low", "high")}
            for what, candidate in candidates
        ]
        empty = dict.fromkeys(rows[0], "")
        trials = [{key: row[key] for key in row if key in empty} for row in read(history)["rows"]]
        rows += [{**empty, **row, "what": "trial", "seeds": 1} for row in trials]
        write_rows(Path("results") / f"{name}_search.csv", rows)


SAVERS = {
    "board": save_leaderboard,
    "depth": save_depth,
    "curve": save_curve,
    "learning": save_learning_curve,
    "ablation": save_ablation,
    "search": save_search,
}


def _settings(fit: dict[str, Any]) -> str:
    return ", ".join(f"fit.{key}={value:g}" for key, value in fit.items())


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_leaderboard(path: Path, board: dict[str, Any], encoder: dict[str, Any]) -> None:
    """All rows, with the tuning settings of their encoder."""
    tune = encoder["record"]["tune"]
    tuning = {
        "encoder": encoder["name"],
        "tune_epochs": tune["epochs"],
        "tune_lr": tune["lr"],
        "tune_batch": tune["batch"],
    }
    baseline = {"name": board["baseline"]["name"], "kind": "baseline", "scores": board["baseline"]["scores"]}
    names = list(board["rows"][0]["scores"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        ends = ["low", "high"]  # of the metric's 95 % interval
        other_columns = sorted(
            {f"{threshold}_{key}" for row in board["rows"] for threshold, key, _ in scores_at_other_thresholds(row)}
        )
        columns = ["name", "kind", "seed", "parameters", "percent", *names, *ends, "inner", *other_columns, "seconds"]
        writer.writerow([*tuning, *columns])
        for row in [*board["rows"], baseline]:
            identity = [row.get(key, "") for key in ("name", "kind", "seed", "parameters", "percent")]
            scores = [round(row["scores"][key], 4) for key in names]
            inner = row.get("inner", {}).get(board["metric"], "")
            interval = [round(end, 4) for end in row.get("interval") or ()] or ["", ""]
            threshold_scores = {
                f"{threshold}_{key}": round(score, 4) for threshold, key, score in scores_at_other_thresholds(row)
            }
            others = [threshold_scores.get(key, "") for key in other_columns]
            writer.writerow([*tuning.values(), *identity, *scores, *interval, inner, *others, row.get("seconds", "")])


def scores_at_other_thresholds(row: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Scores at threshold 0 and at the oracle's threshold, if the task has a no-answer threshold."""
    thresholds = row.get("thresholds") or {}
    return [
        (threshold, key, score)
        for threshold in ("zero", "oracle")
        for key, score in thresholds.get(threshold, {}).items()
    ]


def markdown(board: dict[str, Any]) -> str:
    """Means over seeds, best on inner first."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in board["rows"]:
        groups[row["name"]].append(row)
    metrics = [key for key in board["rows"][0]["scores"] if not key.endswith("total")]
    lines = [
        "| predictor | seeds | parameters | " + " | ".join(metrics) + " | inner |",
        "|---" * (len(metrics) + 4) + "|",
    ]
    metric = board["metric"]
    for name, rows in sorted(groups.items(), key=lambda item: -mean(row["inner"][metric] for row in item[1])):
        scores = [f"{mean(row['scores'][key] for row in rows):.2f}" for key in metrics]
        inner = f"{mean(row['inner'][metric] for row in rows):.2f}"
        cells = [f"`{name}`", str(len(rows)), f"{rows[0]['parameters']:,}", *scores, inner]
        lines.append("| " + " | ".join(cells) + " |")
    baseline = board["baseline"]
    lines.append(
        f"| {baseline['name']} | | | " + " | ".join(f"{baseline['scores'][key]:.2f}" for key in metrics) + " | |"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
