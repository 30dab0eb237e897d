"""Save the results of finished runs as data, and print their leaderboards as tables.

python benchmarks/collect.py NAME=RUN [NAME=RUN ...] [--only board depth curve learning ablation search]

From RUN/leaderboard.json results/NAME.csv, a row a predictor; from RUN/depth/depth.json
results/NAME_depth.csv, a row a depth; from RUN/curve.json results/NAME_curve.csv, a row a checkpoint, and
its picture; from RUN/analysis/learning-curve.json results/NAME_learning.csv, a row a share of the data,
and its picture; from RUN/ablation results/NAME_ablation.csv and .svg, a row a span of layers; from
RUN/search/result.json results/NAME_search.csv, the winner, the defaults and every trial; each where it is there.
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
    parser.add_argument("--only", nargs="+", choices=KEEPERS, default=list(KEEPERS))
    options = parser.parse_args()
    for argument in options.runs:
        name, _, place = argument.partition("=")
        for what in options.only:
            KEEPERS[what](name, Path(place))


def keep_board(name: str, folder: Path) -> None:
    if (folder / "leaderboard.json").exists():
        board = read(folder / "leaderboard.json")
        write(Path("results") / f"{name}.csv", board, read(folder / "encoder" / "bertvision.json"))
        print(f"\n{name}: {board['task']}, {board['split']}\n{markdown(board)}")


def keep_depth(name: str, folder: Path) -> None:
    path = folder / "depth" / "depth.json"
    if path.exists():
        found = read(path)
        known = {key: found[key] for key in ("task", "metric", "head", "within", "chosen")}
        ratio = found.get("cut", {}).get("time_ratio")
        rows = []
        for row in found["rows"]:
            spread = {"low": min(row["dev_by_seed"]), "high": max(row["dev_by_seed"])}
            cut = {"time_ratio": ratio if row["depth"] == found["chosen"] else None}
            plain = {key: value for key, value in row.items() if key != "dev_by_seed"}
            rows.append({**known, "seeds": len(found["seeds"]), **plain, **spread, **cut})
        write_rows(Path("results") / f"{name}_depth.csv", rows)


def keep_curve(name: str, folder: Path) -> None:
    path = folder / "curve.json"
    if path.exists():
        found = read(path)
        known = {key: found[key] for key in ("task", "metric", "schedule")}
        rows = []
        for row in found["rows"]:
            scores = {**row["scores"], **{f"inner_{key}": value for key, value in row["inner"].items()}}
            rows.append({**known, **{key: row[key] for key in ("epochs", "steps", "seconds")}, **scores})
        write_rows(Path("results") / f"{name}_curve.csv", rows)
        shutil.copy(path.with_suffix(".svg"), Path("results") / f"{name}_curve.svg")


def keep_learning(name: str, folder: Path) -> None:
    path = folder / "analysis" / "learning-curve.json"
    if path.exists():
        write_rows(Path("results") / f"{name}_learning.csv", read(path)["rows"])
        shutil.copy(path.with_suffix(".svg"), Path("results") / f"{name}_learning.svg")


def keep_ablation(name: str, folder: Path) -> None:
    path = folder / "ablation" / "ablation.csv"
    if path.exists():
        for kind in (".csv", ".svg"):
            shutil.copy(path.with_suffix(kind), Path("results") / f"{name}_ablation{kind}")


def keep_search(name: str, folder: Path) -> None:
    """Winner and defaults have a dev score, trials only one on inner."""
    path = folder / "search" / "result.json"
    if path.exists():
        found = read(path)
        # Of a search over tunings the trials are those on the best one, in its own run.
        place = folder / "search" / "tuned" / Path(found["run"]).name if "run" in found else folder
        history = place / "analysis" / f"search-history-{found['tag']}.json"
        gain = found["difference"] or {}
        told = [("winner", found["winner"]), *(("default", one) for one in found["defaults"])]
        rows = [
            {"what": what, "trial": "", "head": one["spec"], "settings": _settings(one["fit"]), "state": "complete"}
            | {"inner": one["inner"], "dev": one["dev"], "seeds": len(found["seeds"])}
            | {f"gain_{key}": gain.get(key, "") if what == "winner" else "" for key in ("difference", "low", "high")}
            for what, one in told
        ]
        empty = dict.fromkeys(rows[0], "")
        trials = [{key: row[key] for key in row if key in empty} for row in read(history)["rows"]]
        rows += [{**empty, **row, "what": "trial", "seeds": 1} for row in trials]
        write_rows(Path("results") / f"{name}_search.csv", rows)


KEEPERS = {
    "board": keep_board,
    "depth": keep_depth,
    "curve": keep_curve,
    "learning": keep_learning,
    "ablation": keep_ablation,
    "search": keep_search,
}


def _settings(fit: dict[str, Any]) -> str:
    return ", ".join(f"fit.{key}={value:g}" for key, value in fit.items())


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


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
            interval = [round(end, 4) for end in row.get("interval") or ()] or ["", ""]
            found = {f"{at}_{key}": round(score, 4) for at, key, score in elsewhere(row)}
            more = [found.get(key, "") for key in other]
            writer.writerow([*made.values(), *own, *scores, *interval, inner, *more, row.get("seconds", "")])


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
