"""Tables and verdicts as text for a terminal, and all of them as one page of Markdown, docs/results/reproduction.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.text_table import align_columns
from bertvision.workflows.reproduce.claims import FAILS, HOLDS, OPEN, is_too_wide
from bertvision.workflows.reproduce.defaults import RECIPES
from bertvision.workflows.reproduce.documents import claim_verdicts, is_current, only_current
from bertvision.workflows.reproduce.estimate import plan
from bertvision.workflows.reproduce.published import published
from bertvision.workflows.reproduce.specs import Item, all_items, metric_title, shared_at

COUNTS = {"parameters", "trained", "wrong", "second_right", "right", "of", "rises_after"}
"""Metrics without decimals."""
TOO_WIDE = " (too few examples for this margin: it could not hold)"
RULE_SIGNS = {"more": ">", "as-good": ">=", "about": "about", "not-more": "not >"}
SHORT_VERDICTS = {HOLDS: "agree", FAILS: "contradict", OPEN: "open"}
SEPARATORS = (" / ", ": ", ", ")
"""Between the two parts of a row's name, where a table is a grid of both."""
TIMED = ("shared", "item")
NUM_SLOWEST = 3
"""Number of slowest items that the page names."""
PICTURES = "../../results/reproduce"
"""Path of the pictures, relative to the page."""
OUTDATED = " **Outdated: made before the recipe or its data last changed.**"


def item_text(document: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Our numbers and the published ones, then the verdict on every claim with a test on this table."""
    status = f"{document['scale']}, {document['encoder']}; {document['status']}"
    lines = [f"{document['item']}: {document['title']} [{status}]"]
    lines += align_columns(item_cells(document))
    missing = Counter(row["missing"] for row in document["rows"] if row["missing"])
    for reason, count in missing.items():
        lines.append(reason.replace(": ", f" ({count} row{'s' if count > 1 else ''}): ", 1))
    for order in document["rank_correlations"]:
        rows = f"{order['rows']} rows of {order['run']}"
        lines.append(f"rank correlation with the published {order['metric']} over {rows}: {order['spearmanr']:.2f}")
    if document["pictures"]:
        lines.append(f"pictures: {', '.join(document['pictures'])}")
    if document["note"]:
        lines.append(f"note: {document['note']}")
    lines += document["notes_on_published"]
    concerned = {test["claim"] for test in document["tests"]}
    for claim in verdicts:
        if claim["id"] in concerned:
            waiting = claim["of"] - len(claim["tests"])
            waiting_text = f"; {waiting} of {claim['of']} tests belong to tables not run yet" if waiting else ""
            lines.append(f"claim {claim['id']}: {claim['verdict']}: {claim['text']}{waiting_text}")
            lines += [f"  {_test_text(test)}" for test in claim["tests"]]
    return "\n".join(lines)


def item_cells(document: Mapping[str, Any]) -> list[list[str]]:
    """A header and a line per row; for each metric our number (with its interval) and the published one."""
    header = [""]
    for metric in document["metrics"]:
        header += [metric_title(metric), f"{metric_title(metric)}, published"]
    lines = [header]
    for row in document["rows"]:
        cells = [row["row"]]
        for metric in document["metrics"]:
            ours, ends = _cell(metric, row["ours"].get(metric)), row["intervals"].get(metric)
            cells.append(ours if ends is None else f"{ours} ({number(ends[0])} to {number(ends[1])})")
            cells.append(_cell(metric, row["published"].get(metric)))
        lines.append(cells)
    columns = [column for column in range(len(header)) if column == 0 or any(line[column] != "-" for line in lines[1:])]
    return [[line[column] for column in columns] for line in lines]


def _cell(metric: str, value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and metric in COUNTS and float(value).is_integer() else number(value)


def number(value: float | None) -> str:
    """Whole numbers from 1,000 on, two decimals from 1 on, else three significant digits."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{'+' if value >= 0 else '-'}{number(abs(value))}"


def _test_text(test: Mapping[str, Any]) -> str:
    """One test as a line of text."""
    other = number(test["number"]) if test["b"] is None else test["b"]
    margin = f" (margin {test['margin']:g})" if test["margin"] else ""
    among = "" if test["among"] == "all" else f", {test['among']} questions"
    quantity = test["metric"] if test["of"] in ("score", "value") else test["of"]
    if test["low"] is None:
        result = f"no interval: {test['why']}"
    else:
        level = "" if test["of"] == "value" else "95 % "
        result = f"{signed(test['difference'])}, {level}{signed(test['low'])} to {signed(test['high'])}"
        result += f" ({test['note']})" if test["note"] else ""
        result += TOO_WIDE if is_too_wide(test["low"], test["high"], test["says"], test["margin"]) else ""
    compared = f"{test['a']} {RULE_SIGNS[test['says']]} {other}{margin} in {quantity}{among}"
    return f"{test['item']}: {compared}: {result}: {test['verdict']}"


def markdown_table(cells: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table, with bars inside of cells escaped."""
    lines = [[cell.replace("|", "\\|") or " " for cell in line] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def page(documents: Mapping[str, Mapping[str, Any]], timed: Sequence[Mapping[str, str]]) -> str:
    """The whole page; ``timed`` are rows of ``results/reproduce_times.csv``."""
    items = all_items()
    verdicts = claim_verdicts(only_current(documents.values()))
    laptop = plan(list(items.values()), shared_at("laptop"))
    # Outdated documents are shown, but no verdict rests on them.
    outdated = [document["item"] for document in documents.values() if not is_current(document)]
    intro = (
        (RECIPES / "page.md")
        .read_text(encoding="utf-8")
        .format(
            count=len(items),
            misprints=sum(number.is_corrected for number in published()),
            done=len(documents),
            hours=laptop["hours"],
            shared=laptop["shared_hours"],
            times=_times(timed),
            tally=tally(verdicts),
            comparison_tally=_comparison_tally(verdicts),
            outdated=f"\nOutdated, and not counted: {', '.join(outdated)}." if outdated else "",
        )
    )
    printed: set[str] = set()  # sentences of notes, which several tables share
    sections = [_section(item, documents.get(item.name), printed) for item in items.values()]
    return "\n".join([intro, "## Claims\n", _claims(verdicts), *sections]).rstrip() + "\n"


def _times(timed: Sequence[Mapping[str, str]]) -> str:
    """Minutes of the shared work, and seconds of the slowest items after it."""
    seconds: dict[str, dict[str, float]] = {kind: {} for kind in TIMED}
    for row in timed:
        seconds[row["kind"]][row["name"]] = float(row["seconds"])
    if not all(seconds.values()):
        return ""
    shared, items = seconds.values()
    slowest = sorted(items, key=lambda name: -items[name])[:NUM_SLOWEST]
    return (
        f"Measured with two threads: {sum(shared.values()) / 60:,.0f} minutes for the shared work, and then at most "
        f"{items[slowest[0]]:,.0f} seconds\nfor one of {len(items)} tables and figures (slowest: "
        f"{', '.join(f'{name} {items[name]:,.0f} s' for name in slowest)}).\n"
    )


def tally(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have which verdict, as a sentence that follows the names of the papers."""
    counts = _counts_text(Counter(claim["verdict"] for claim in verdicts))
    return f"Of {len(verdicts)} claims made in these papers, {counts} at this scale."


def _comparison_tally(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How many comparisons of the claims have which verdict, as a sentence."""
    counts = Counter(test["verdict"] for claim in verdicts for test in claim["tests"])
    return f"Of their {counts.total()} comparisons, {_counts_text(counts)}."


def _counts_text(counts: Mapping[str, int]) -> str:
    return f"{counts[HOLDS]} hold, {counts[FAILS]} do not, and {counts[OPEN]} are undecided"


def _claims(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """A row per claim: how its comparisons came out, and those that contradict it in full."""
    cells = [["", "claim", "verdict", "comparisons"]]
    for claim in verdicts:
        tests = claim["tests"]
        counts = Counter(test["verdict"] for test in tests)
        compared = [
            ", ".join(f"{word}: {counts[verdict]}" for verdict, word in SHORT_VERDICTS.items() if counts[verdict])
        ]
        if tests:
            compared[0] += f" ({', '.join(dict.fromkeys(test['item'] for test in tests))})"
        compared += [_test_text(test) for test in tests if test["verdict"] == FAILS]
        waiting = claim["of"] - len(tests)
        if waiting:
            compared.append(f"{waiting} not run yet")
        verdict = claim["verdict"].removesuffix(" at this scale") if tests else "not run yet"
        text = f"{claim['text']} ({claim['source']})"
        cells.append([str(claim["id"]), text, f"**{verdict}**", "<br>".join(filter(None, compared))])
    return markdown_table(cells) + "\n"


def _section(item: Item, document: Mapping[str, Any] | None, printed: set[str]) -> str:
    """A table or figure: its pictures, or else its numbers; sentences of its note that are not printed yet."""
    title = f"## {item.name}: {item.title}\n\n{item.source}."
    if document is None:
        return f"{title} Not run yet: `bertvision reproduce {item.name} --data FOLDER`.\n"
    made = title if document["scale"] == "laptop" else f"{title} Scale: {document['scale']}."
    made += "" if is_current(document) else OUTDATED
    orders = document["rank_correlations"]
    if orders:
        of_runs = ", ".join(f"{order['spearmanr']:.2f} ({order['run']}, {order['rows']} rows)" for order in orders)
        made += f" Rank correlation with the published {orders[0]['metric']}: {of_runs}."
    if document["pictures"]:
        content = []
        for name in document["pictures"]:
            source = "published" if name.endswith("-published.svg") else "ours"
            content.append(f"![{item.title}, {source}]({PICTURES}/{name})")
    else:
        content = [markdown_table(grid_cells(document) or compact_cells(document))]
    counts = Counter(row["missing"].partition(":")[0] for row in document["rows"] if row["missing"])
    missing = [f"Rows left out: {', '.join(f'{count} {word}' for word, count in counts.items())}."] if counts else []
    sentences = [f"{sentence.rstrip('.')}." for sentence in document["note"].split(". ") if sentence]
    remarks = " ".join([*missing, *(sentence for sentence in sentences if sentence not in printed)])
    printed.update(sentences)
    return "\n".join([made, "", *content, "", remarks]).rstrip() + "\n"


def compact_cells(document: Mapping[str, Any]) -> list[list[str]]:
    """Rows that we have, in the metrics that the paper's table has."""
    rows = [row for row in document["rows"] if not row["missing"]]
    metrics = [metric for metric in document["metrics"] if any(metric in row["published"] for row in rows)]
    cells = [["", *map(metric_title, metrics)]]
    cells += [[row["row"], *(_compact_cell(row, metric) for metric in metrics)] for row in rows]
    return cells


def grid_cells(document: Mapping[str, Any]) -> list[list[str]] | None:
    """Rows named TASK / METHOD as a line per task and a column per method; None where rows are not named so.

    Each task has one metric: the last that the paper has of it.
    """
    rows = [row for row in document["rows"] if not row["missing"]]
    separator = next((sep for sep in SEPARATORS if all(sep in row["row"] for row in rows)), None)
    if separator is None:
        return None
    grid: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        task, _, method = row["row"].rpartition(separator)
        grid.setdefault(task, {})[method] = row
    methods = list(dict.fromkeys(method for of_task in grid.values() for method in of_task))
    metrics = {task: _grid_metric(document, list(of_task.values())) for task, of_task in grid.items()}
    common = metric_title(next(iter(metrics.values()))) if len(set(metrics.values())) == 1 else ""
    cells = [[common, *methods]]
    for task, of_task in grid.items():
        metric = metrics[task]
        line = [task if common else f"{task} ({metric_title(metric)})"]
        for method in methods:
            line.append(_compact_cell(of_task[method], metric) if method in of_task else "")
        cells.append(line)
    return cells


def _grid_metric(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The last metric that any of these rows has in the paper, else with us."""
    for source in ("published", "ours"):
        metrics = [metric for metric in document["metrics"] if any(metric in row[source] for row in rows)]
        if metrics:
            return str(metrics[-1])
    return str(document["metrics"][0])


def _compact_cell(row: Mapping[str, Any], metric: str) -> str:
    """Our number (low-high) / the published one; what is unknown is left out."""
    text, ends = _cell(metric, row["ours"].get(metric)), row["intervals"].get(metric)
    if ends is not None:
        dash = "-" if ends[0] >= 0 else " to "
        text += f" ({number(ends[0])}{dash}{number(ends[1])})"
    printed = row["published"].get(metric)
    if printed is not None:
        text += f" / {_cell(metric, printed)}"
    return "" if text == "-" else text
