"""Keep the leaderboards of finished runs as data, and print them as a table.

python benchmarks/collect.py NAME=RUN [NAME=RUN ...]

Writes one results/NAME.csv per run, a row a predictor, from RUN/leaderboard.json.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any


def main() -> None:
    for argument in sys.argv[1:]:
        name, _, folder = argument.partition("=")
        board = json.loads((Path(folder) / "leaderboard.json").read_text(encoding="utf-8"))
        encoder = json.loads((Path(folder) / "encoder" / "bertvision.json").read_text(encoding="utf-8"))
        write(Path("results") / f"{name}.csv", board, encoder)
        print(f"\n{name}: {board['task']}, {board['split']}\n{markdown(board)}")


def write(path: Path, board: dict[str, Any], encoder: dict[str, Any]) -> None:
    """All rows, with how their encoder was tuned."""
    tune = encoder["record"]["tune"]
    made = {
        "encoder": encoder["name"],
        "tune_epochs": tune["epochs"],
        "tune_lr": tune["lr"],
        "tune_batch": tune["batch"],
    }
    base = {"name": board["baseline"]["name"], "kind": "baseline", "scores": board["baseline"]["scores"]}
    names = list(board["rows"][0]["scores"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        ends = ["low", "high"]  # of the metric's 95 % interval
        other = sorted({f"{at}_{key}" for row in board["rows"] for at, key, _ in elsewhere(row)})
        known = ["name", "kind", "seed", "parameters", "percent", *names, *ends, "inner", *other, "seconds"]
        writer.writerow([*made, *known])
        for row in [*board["rows"], base]:
            own = [row.get(key, "") for key in ("name", "kind", "seed", "parameters", "percent")]
            scores = [round(row["scores"][key], 4) for key in names]
            inner = row.get("inner", {}).get(board["metric"], "")
            luck = [round(end, 4) for end in row.get("interval") or ()] or ["", ""]
            found = {f"{at}_{key}": round(score, 4) for at, key, score in elsewhere(row)}
            more = [found.get(key, "") for key in other]
            writer.writerow([*made.values(), *own, *scores, *luck, inner, *more, row.get("seconds", "")])


def elsewhere(row: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Scores at threshold 0 and at the oracle's, where a task has a no-answer threshold."""
    thresholds = row.get("thresholds") or {}
    return [(at, key, score) for at in ("zero", "oracle") for key, score in thresholds.get(at, {}).items()]


def markdown(board: dict[str, Any]) -> str:
    """Means over seeds, best on inner first."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in board["rows"]:
        groups[row["name"]].append(row)
    shown = [key for key in board["rows"][0]["scores"] if not key.endswith("total")]
    lines = ["| predictor | seeds | parameters | " + " | ".join(shown) + " | inner |", "|---" * (len(shown) + 4) + "|"]
    metric = board["metric"]
    for name, rows in sorted(groups.items(), key=lambda item: -mean(row["inner"][metric] for row in item[1])):
        scores = [f"{mean(row['scores'][key] for row in rows):.2f}" for key in shown]
        inner = f"{mean(row['inner'][metric] for row in rows):.2f}"
        cells = [f"`{name}`", str(len(rows)), f"{rows[0]['parameters']:,}", *scores, inner]
        lines.append("| " + " | ".join(cells) + " |")
    base = board["baseline"]
    lines.append(f"| {base['name']} | | | " + " | ".join(f"{base['scores'][key]:.2f}" for key in shown) + " | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
