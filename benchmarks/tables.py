"""Fill the tables in README.md and docs/results/ from results/*.csv.

python benchmarks/tables.py

A table is replaced between its markers ``<!-- name -->`` and ``<!-- /name -->``.
"""

from __future__ import annotations

import csv
import itertools
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, pstdev

from adapters_picture import KINDS, by_method, key_of

RESULTS = Path("results")
RECIPES = Path("src/bertvision/workflows/recipes")
RUNS = {
    "demo": ("generated questions (`make demo`)", "f1"),
    "squad2": ("SQuAD 2.0, 23 articles", "f1"),
    "mrpc": ("MRPC", "accuracy"),
    "airline": ("airline tweets, 3 classes", "accuracy"),
}
Row = dict[str, str]


def main() -> None:
    fill(Path("README.md"), {"results": results_table})
    fill(
        Path("docs/results/heads.md"),
        {
            "heads_cost": heads_cost_table,
            "ranking": ranking_table,
            "heads_labels": labels_table,
            "depth": depth_table,
            "context_conv": context_conv_table,
        },
    )
    fill(Path("docs/results/thresholds.md"), {"thresholds": thresholds_table})
    fill(Path("docs/results/label-errors.md"), {"label_errors": label_errors_table})
    fill(Path("docs/results/defaults.md"), {"tune_rates": tune_table, "fit_defaults": fit_table})
    fill(
        Path("docs/results/adapters.md"),
        {
            "adapters": adapters_table,
            "adapter_rates": adapter_rates_table,
            "adapter_inference": adapter_inference_table,
        },
    )
    fill(
        Path("docs/results/stores.md"),
        {"store_choices": choices_table, "extraction": extraction_table, "memory": memory_table},
    )
    fill(
        Path("docs/results/tuning.md"),
        {
            "tune_cost": tune_cost_table,
            "from_store": from_store_table,
            "costs": costs_table,
            "waiting": waiting_table,
        },
    )


def fill(path: Path, tables: dict[str, Callable[[], str]]) -> None:
    """Replace the tables between the markers of a file."""
    text = path.read_text(encoding="utf-8")
    for name, table in tables.items():
        pattern = rf"<!-- {name} -->.*?<!-- /{name} -->"
        text = re.sub(pattern, f"<!-- {name} -->\n{table()}\n<!-- /{name} -->", text, flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")


def read(name: str) -> list[Row]:
    path = RESULTS / f"{name}.csv"
    return read_csv(path) if path.exists() else []


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table, or an empty text if there are no lines."""
    if not lines:
        return ""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def results_table() -> str:
    """One line per run: baseline, encoder, control, best head on inner, best ensemble on inner."""
    head = ["task", "metric", "baseline", "encoder alone", "control", "selected head", "its name", "selected ensemble"]
    lines = []
    for name, (title, metric) in RUNS.items():
        rows = read(name)
        if not rows:
            continue
        kinds: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            kinds["control" if row["name"] == "probe:layers=last1" else row["kind"]].append(row)
        heads: dict[str, list[Row]] = defaultdict(list)
        for row in kinds["head"]:
            heads[row["name"]].append(row)
        best = max(heads, key=lambda spec: mean(float(row["inner"]) for row in heads[spec]))
        ensemble = max(kinds["ensemble"], key=lambda row: float(row["inner"]))
        scores = [score(kinds[kind], metric) for kind in ("baseline", "encoder", "control")]
        lines.append([title, metric, *scores, score(heads[best], metric), f"`{best}`", score([ensemble], metric)])
    return markdown(head, lines)


def score(rows: Sequence[Row], metric: str) -> str:
    """Mean over seeds, with the range if there are several."""
    return _mean_and_range([float(row[metric]) for row in rows])


def tune_table() -> str:
    lines = [
        [row["task"], row["lr"], row["batch"], row["steps"], row["metric"], row["score"], _number(row["has_answer_f1"])]
        for row in sorted(read("tune_rates"), key=lambda row: (row["task"], float(row["lr"])))
    ]
    return markdown(["task", "learning rate", "batch", "steps", "metric", "inner", "F1 on answerable"], lines)


def fit_table() -> str:
    """One line per setting, one column per run: mean over heads and seeds of the best epoch's score on inner."""
    cells: dict[tuple[float, int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read("fit_defaults"):
        cells[float(row["lr"]), int(row["batch"]), int(row["epochs"])][row["run"]].append(float(row["inner"]))
    runs = sorted({run for scores_by_run in cells.values() for run in scores_by_run})
    complete = {key: scores_by_run for key, scores_by_run in cells.items() if len(scores_by_run) == len(runs)}
    lines = []
    for (lr, batch, epochs), scores_by_run in sorted(complete.items()):
        means = [mean(scores_by_run[run]) for run in runs]
        lines.append([f"{lr:g}", str(batch), str(epochs), *(f"{value:.2f}" for value in [*means, mean(means)])])
    return markdown(["learning rate", "batch", "epochs", *runs, "mean"], lines)


AMOUNTS = {"spans": "first stage", "more": "second stage"}
"""The two SQuAD leaderboards of all heads, by how far their encoder was tuned."""

AT = {"f1": "threshold of inner", "oracle_best_f1": "best threshold on dev"}


def ranking_table() -> str:
    """The published F1 of each head after 0.3 and 1 epochs and ours, each with its rank; then rank correlations."""
    published = _published_heads()
    columns = {
        "paper, 0.3 epochs": [scores.get("3/10e") for _, _, scores in published],
        "paper, 1 epoch": [scores.get("1e") for _, _, scores in published],
    }
    for amount, at in itertools.product(AMOUNTS, AT):
        ours = _means(read(f"heads_squad_{amount}"), at)
        if ours:
            columns[f"{AMOUNTS[amount]}, {AT[at]}"] = [ours.get(spec) for _, spec, _ in published]
    ranked = [[_with_rank(value, column) for value in column] for column in columns.values()]
    lines = [[f"`{spec}`", model, *cells] for (model, spec, _), *cells in zip(published, *ranked, strict=True)]
    correlations = [
        f"{first} and {second}: {_rank_correlation(columns[first], columns[second])}"
        for first, second in itertools.combinations(columns, 2)
        if first.startswith("paper") or (first.endswith(AT["f1"]) and second.endswith(AT["f1"]))
    ]
    table = markdown(["head", "in the paper", *columns], lines)
    return f"{table}\n\nRank correlation (Spearman):\n\n" + "\n".join(f"- {line}" for line in correlations)


def _published_heads() -> list[tuple[str, str, dict[str, float]]]:
    """The paper's name of each span head, our spec for it, and its F1 by how long the encoder was tuned."""
    recipe = tomllib.loads((RECIPES / "reproduce" / "bv-all-heads.toml").read_text(encoding="utf-8"))
    rows = [row for row in read_csv(RECIPES / "published.csv") if row["item"] == "bv-all-heads"]
    values = {row["row"]: float(row["value"]) for row in rows if row["metric"] == "f1"}
    published: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in recipe["rows"]:
        if "predictor" in row and row["name"] in values:
            model, _, tuned = row["name"].rpartition(", ")
            published[model, row["predictor"]][tuned] = values[row["name"]]
    return [(model, spec, scores) for (model, spec), scores in published.items()]


def labels_table() -> str:
    """Dev accuracy of every head on the two label tasks, best mean on inner of MRPC first."""
    boards = {name: read(f"heads_{name}") for name in ("mrpc", "airline")}
    specs = [row["name"] for rows in boards.values() for row in rows if row["kind"] in ("head", "encoder")]
    order = _means(boards["mrpc"], "inner")
    lines = []
    for spec in sorted(dict.fromkeys(specs), key=lambda spec_name: -order.get(spec_name, 0)):
        cells = [[row for row in rows if row["name"] == spec] for rows in boards.values()]
        lines.append(
            [f"`{spec}`", *(score(rows_of_spec, "accuracy") if rows_of_spec else "" for rows_of_spec in cells)]
        )
    return markdown(["predictor", *(RUNS[name][0] for name in boards)], lines)


def _means(rows: Sequence[Row], key: str) -> dict[str, float]:
    """By head, over seeds."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["kind"] in ("head", "encoder"):
            scores[row["name"]].append(float(row[key]))
    return {name: mean(values) for name, values in scores.items()}


def _with_rank(value: float | None, column: Sequence[float | None]) -> str:
    if value is None:
        return ""
    return f"{value:.1f} ({1 + sum(other > value for other in column if other is not None)})"


def _rank_correlation(first: Sequence[float | None], second: Sequence[float | None]) -> str:
    from scipy.stats import spearmanr

    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    return f"{spearmanr(*zip(*pairs, strict=True)).statistic:+.2f} over {len(pairs)}" if len(pairs) > 2 else "no data"


DEPTHS = {"mrpc": "MRPC", "sst2": "SST-2", "sst2_cls": "SST-2 by `[CLS]`", "squad2": "SQuAD 2.0"}


def depth_table() -> str:
    """One line per depth, two columns per task; the depth selected on inner is bold."""
    rows_by_task = {title: {row["depth"]: row for row in read(f"{name}_depth")} for name, title in DEPTHS.items()}
    rows_by_task = {title: rows for title, rows in rows_by_task.items() if rows}
    head = ["layers used", *(f"{title}, {split}" for title in rows_by_task for split in ("inner", "dev"))]
    depths = sorted({int(depth) for rows in rows_by_task.values() for depth in rows})
    cells = [[cell for rows in rows_by_task.values() for cell in _depth_cells(rows[str(depth)])] for depth in depths]
    return markdown(head, [[str(depth), *line] for depth, line in zip(depths, cells, strict=True)])


def _depth_cells(row: Row) -> list[str]:
    inner, dev = f"{float(row['inner']):.1f}", f"{float(row['dev']):.1f}"
    spread = f" ({float(row['low']):.1f} to {float(row['high']):.1f})"
    return [f"**{inner}**" if row["depth"] == row["chosen"] else inner, dev + spread]


def context_conv_table() -> str:
    """One line per spec, one column per run and learning rate: mean over seeds of the best epoch's score on inner."""
    cells: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read("context_conv"):
        cells[row["head"]][row["run"], row["lr"]].append(float(row["inner"]))
    columns = sorted({key for scores_by_column in cells.values() for key in scores_by_column})
    lines = []
    for spec, scores_by_column in cells.items():
        means = [mean(scores_by_column[key]) for key in columns if key in scores_by_column]
        lines.append([f"`{spec}`", *(_mean_and_range(scores_by_column[key]) for key in columns), f"{mean(means):.2f}"])
    return markdown(["head", *(f"{run}, learning rate {lr}" for run, lr in columns), "mean"], lines)


def thresholds_table() -> str:
    """One line per run and rule: means over heads."""
    rows, lines = read("thresholds"), []
    for run, rule in dict.fromkeys((row["run"], row["rule"]) for row in rows):
        selected = [row for row in rows if (row["run"], row["rule"]) == (run, rule)]
        values = {key: [float(row[key]) for row in selected] for key in ("threshold", "inner", "held_out")}
        spread = f"{mean(values['threshold']):.2f} ± {pstdev(values['threshold']):.2f}"
        scores = [f"{mean(values[key]):.1f}" for key in ("inner", "held_out")]
        lines.append([run, str(len(selected)), rule, spread, *scores])
    return markdown(
        ["run", "heads", "threshold", "its mean and spread", "F1 where fitted", "F1 on held-out articles"], lines
    )


IN_THE_PAPER = {
    "full": "full fine-tuning",
    "adapters:size=64,share=layer,norms=false": "Houlsby",
    "adapters:size=64,share=none": "not shared",
    "adapters:size=64,share=3,norms=false": "three-shared",
}
"""Names of methods in Mohebbi & Rajaei."""


def adapters_table() -> str:
    """One line per task and method: trained parameters, scores of the predictors selected on inner, and the paper's."""
    rows = read("adapters")
    published = {
        row["row"]: row["value"]
        for row in read_csv(RECIPES / "published.csv")
        if row["item"] == "mohebbi-table-2" and row["metric"] in ("accuracy", "f1")
    }
    lines = []
    for task in sorted({row["task"] for row in rows}):
        task_rows = [row for row in rows if row["task"] == task]
        trained = {key_of(row): f"{int(row['trained']):,}" for row in task_rows}
        for (method, epochs), group in by_method(task_rows).items():
            scores = [_mean_and_range(group[kind]) for kind in KINDS]
            facts = [epochs, trained[method, epochs], str(len(group["encoder"]))]
            paper_name = IN_THE_PAPER.get(method.split(" at ")[0])
            lines.append([task, f"`{method}`", *facts, *scores, published.get(f"{task} / {paper_name}", "")])
    score_columns = ("alone", "last layer refitted", "best head", "best ensemble", "paper")
    return markdown(["task", "method", "epochs", "trained", "seeds", *score_columns], lines)


def adapter_rates_table() -> str:
    """One line per trial: the encoder alone on inner."""
    alone = [row for row in read("adapter_rates") if row["kind"] == "encoder"]
    lines = [
        [row["task"], f"`{row['method']}`", row["lr"], f"{float(row['inner']):.1f}"]
        for row in sorted(alone, key=lambda row: (row["method"], float(row["lr"])))
    ]
    return markdown(["task", "method", "learning rate", "F1 on inner"], lines)


def adapter_inference_table() -> str:
    """One line per encoder and injected modules, one column per batch size."""
    cells: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in read("adapter_inference"):
        cells[row["encoder"], row["inside"]][row["batch"]] = row["ratio"]
    batches = list(dict.fromkeys(batch for ratios in cells.values() for batch in ratios))
    lines = [
        [encoder, f"`{injected}`", *(ratios[batch] for batch in batches)]
        for (encoder, injected), ratios in cells.items()
    ]
    return markdown(["encoder", "inside", *(f"batch {batch}" for batch in batches)], lines)


LABEL_TASKS = {"sst2": "SST-2", "airline": "airline sentiment"}
RANKINGS = {"labels.json": "`analysis/labels.json`", "regression": "logistic regression", "chance": "chance"}


def label_errors_table() -> str:
    """One line per task and way of listing rows: means over draws, in percent, with the range."""
    rows, lines = read("label_errors"), []
    for task, way in dict.fromkeys((row["task"], row["way"]) for row in rows):
        selected = [row for row in rows if (row["task"], row["way"]) == (task, way)]
        keys = ("precision_20", "precision_50", "precision_100", "precision", "recall")
        cells = [_percents([row[key] for row in selected]) for key in keys]
        listed = " and ".join(row["listed"] for row in selected)
        lines.append([LABEL_TASKS[task], RANKINGS[way], listed, *cells])
    columns = ("first 20", "first 50", "first 100", "all listed", "changed rows that are listed")
    return markdown(["task", "ranked by", "rows listed", *columns], lines)


def _percents(shares: Sequence[str]) -> str:
    """Mean and range of shares in percent; empty if one is unknown."""
    if not all(shares):
        return ""
    percents = [round(100 * float(share)) for share in shares]
    spread = "" if min(percents) == max(percents) else f" ({min(percents)} to {max(percents)})"
    return f"{100 * mean(map(float, shares)):.0f}{spread}"


def heads_cost_table() -> str:
    return markdown(["measured", "relative to", "time ratio"], _cells("heads_cost", "what", "against", "ratio"))


def tune_cost_table() -> str:
    head = ["encoder", "method", "trained", "time of a full step"]
    lines = [
        [row["encoder"], f"`{row['method']}`", f"{int(row['trained']):,}", row["ratio"]] for row in read("tune_cost")
    ]
    return markdown(head, lines)


def waiting_table() -> str:
    head = ["next to", "idle threads spin", "method", "seconds per step", "relative to sleeping"]
    lines = [
        [row["beside"], row["wait"], f"`{row['method']}`", f"{float(row['seconds']):.2f}", row["by_asleep"]]
        for row in read("waiting")
    ]
    return markdown(head, lines)


def from_store_table() -> str:
    """One line per way of tuning: means over seeds, and the ratio of seconds of the two ways, which ran in turns."""
    rows = [row for row in read("from_store") if row["seed"]]
    seconds = {(row["way"], row["seed"]): float(row["seconds"]) for row in rows}
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        selected = [row for row in rows if row["way"] == way]
        scores = [_mean_and_range([float(row[split]) for row in selected]) for split in ("inner", "dev")]
        ratios = [seconds[way, row["seed"]] / seconds["ordinary", row["seed"]] for row in selected]
        lines.append([way, selected[0]["epochs"], str(len(selected)), f"{mean(ratios):.2f}", *scores])
    return markdown(["way", "epochs", "seeds", "time of ordinary freezing", "inner F1", "dev F1"], lines)


def costs_table() -> str:
    head = [
        "run",
        "method",
        "trained",
        "s per 1,000",
        "peak MB",
        "saved MB",
        "inference, s per 1,000",
        "score",
        "efficiency",
    ]
    lines = []
    for row in read("costs"):
        sizes = [f"{float(row[key]) / 1e6:,.1f}" for key in ("peak_bytes", "saved_bytes")]
        rates = [f"{float(row[key]):.1f}" for key in ("inference_per_1000", "score")]
        identity = [row["encoder"], f"`{row['method']}`", f"{int(row['trained']):,}"]
        efficiency = f"{float(row['efficiency']):.2f}"
        lines.append([*identity, f"{float(row['seconds_per_1000']):.1f}", *sizes, *rates, efficiency])
    return markdown(head, lines)


def choices_table() -> str:
    """One line per run and choice, one column per head: its score difference when refitted, and unchanged answers."""
    rows = read("store_choices")
    heads = list(dict.fromkeys(row["head"] for row in rows))
    lines = []
    for run, choice in dict.fromkeys((row["run"], row["choice"]) for row in rows):
        rows_by_head = {row["head"]: row for row in rows if (row["run"], row["choice"]) == (run, choice)}
        size = f"{float(next(iter(rows_by_head.values()))['bytes_a_token']):,.0f}"
        lines.append([run, choice, size, *(_choice_cell(rows_by_head[head]) for head in heads)])
    return markdown(["run", "store", "bytes per stored token", *(f"`{head}`" for head in heads)], lines)


def _choice_cell(row: Row) -> str:
    """The score, or its difference from f32's with the interval, and the share of unchanged answers."""
    if not row["low"]:
        return f"{float(row['score']):.1f}"
    unchanged = f"; {float(row['same_percent']):.1f} % same" if row["same_percent"] else ""
    return f"{float(row['minus_f32']):+.2f} ({float(row['low']):+.2f} to {float(row['high']):+.2f}){unchanged}"


def extraction_table() -> str:
    """One line per setting, one column per comparison."""
    cells: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for row in read("extraction"):
        subject = "" if row["what"] == "extraction" else f"{row['what']} / "
        cells[row["encoder"], row["lengths"], row["threads"]][subject + row["against"]] = row["ratio"]
    columns = list(dict.fromkeys(name for ratios in cells.values() for name in ratios))
    lines = [[*setting, *(ratios.get(name, "") for name in columns)] for setting, ratios in cells.items()]
    return markdown(["encoder", "lengths", "threads", *columns], lines)


def memory_table() -> str:
    head = ["texts", "store, MB", "limit, MB", "peak after extraction, MB", "peak after fitting, MB"]
    return markdown(head, _cells("memory", "texts", "store_mb", "limit_mb", "extract_peak_mb", "fit_peak_mb"))


def _cells(name: str, *keys: str) -> list[list[str]]:
    return [[row[key] for key in keys] for row in read(name)]


def _mean_and_range(values: Sequence[float]) -> str:
    return f"{mean(values):.1f}" + (f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else "")


def _number(text: str) -> str:
    return "" if text == "nan" else text


if __name__ == "__main__":
    main()
