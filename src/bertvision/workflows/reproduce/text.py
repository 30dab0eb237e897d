"""Tables and verdicts as text for a terminal, and all of them as one page of Markdown, docs/reproduction.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.records import align_columns
from bertvision.workflows.reproduce.claims import FAILS, HOLDS, OPEN, is_too_wide
from bertvision.workflows.reproduce.documents import claim_verdicts, is_current, only_current
from bertvision.workflows.reproduce.estimate import plan
from bertvision.workflows.reproduce.published import published
from bertvision.workflows.reproduce.specs import RECIPES, Item, all_items, metric_title, shared_at

COUNTS = {"parameters", "trained", "wrong", "second_right", "right", "of", "rises_after"}
"""Metrics that have no digits after the point."""
TOO_WIDE = " (too few examples for this margin: it could not hold)"
RULES = {"more": ">", "as-good": ">=", "about": "about", "not-more": "not >"}
TALLY = {HOLDS: "hold", FAILS: "do not", OPEN: "are not decided"}
TIMED = ("shared", "item")
SLOWEST = 3
"""Items whose seconds the page tells."""
PICTURES = "../results/reproduce"
"""Where they are, seen from the page."""
EARLIER = " **Made before the recipe, or the data below it, was last changed; not made again yet.**"


def item_text(document: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Ours beside published, then a line for every claim that the table has a say in."""
    made = f"{document['scale']}, {document['encoder']}; {document['status']}"
    lines = [f"{document['item']}: {document['title']} [{made}]"]
    lines += [*align_columns(item_cells(document)), *missing_lines(document)]
    lines += [_order_text(order) for order in document["rank_correlations"]]
    if document["pictures"]:
        lines.append(f"pictures: {', '.join(document['pictures'])}")
    if document["note"]:
        lines.append(f"note: {document['note']}")
    lines += document["notes_on_published"]
    concerned = {test["claim"] for test in document["tests"]}
    for claim in verdicts:
        if claim["id"] in concerned:
            waiting = claim["of"] - len(claim["tests"])
            more = f"; {waiting} of {claim['of']} tests belong to tables not run yet" if waiting else ""
            lines.append(f"claim {claim['id']}: {claim['verdict']}: {claim['text']}{more}")
            lines += [f"  {_test_text(test)}" for test in claim["tests"]]
    return "\n".join(lines)


def _order_text(order: Mapping[str, Any]) -> str:
    """How far our order of the rows is the published one."""
    rows = f"{order['rows']} rows of {order['run']}"
    return f"rank correlation with the published {order['metric']} over {rows}: {order['spearmanr']:.2f}"


def item_cells(document: Mapping[str, Any]) -> list[list[str]]:
    """A header and a line per row; of each metric ours (with its interval) and the published number."""
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
    shown = [column for column in range(len(header)) if column == 0 or any(line[column] != "-" for line in lines[1:])]
    return [[line[column] for column in shown] for line in lines]


def _cell(metric: str, value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and metric in COUNTS and float(value).is_integer() else number(value)


def number(value: float | None) -> str:
    """As many digits as help: whole from a thousand on, three for small ones."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{'+' if value >= 0 else '-'}{number(abs(value))}"


def missing_lines(document: Mapping[str, Any]) -> list[str]:
    """What is not there, each reason once, with the number of rows after its word."""
    counts = Counter(row["missing"] for row in document["rows"] if row["missing"])
    return [reason.replace(": ", f" ({count} row{'s' if count > 1 else ''}): ", 1) for reason, count in counts.items()]


def _test_text(test: Mapping[str, Any]) -> str:
    """One test in a line."""
    other = number(test["number"]) if test["b"] is None else test["b"]
    within = f" (margin {test['margin']:g})" if test["margin"] else ""
    among = "" if test["among"] == "all" else f", {test['among']} questions"
    what = test["metric"] if test["of"] in ("score", "value") else test["of"]
    if test["low"] is None:
        result = f"no interval: {test['why']}"
    else:
        sure = "" if test["of"] == "value" else "95 % "
        result = f"{signed(test['difference'])}, {sure}{signed(test['low'])} to {signed(test['high'])}"
        result += f" ({test['note']})" if test["note"] else ""
        result += TOO_WIDE if is_too_wide(test["low"], test["high"], test["says"], test["margin"]) else ""
    compared = f"{test['a']} {RULES[test['says']]} {other}{within} in {what}{among}"
    return f"{test['item']}: {compared}: {result}: {test['verdict']}"


def markdown_table(cells: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table; a bar inside of one would end it."""
    lines = [[cell.replace("|", "\\|") or " " for cell in line] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def page(documents: Mapping[str, Mapping[str, Any]], timed: Sequence[Mapping[str, str]]) -> str:
    """The whole page; items that have not been run say so. Timed are rows of ``results/reproduce_times.csv``."""
    items = all_items()
    verdicts = claim_verdicts(only_current(documents.values()))
    laptop = plan(list(items.values()), shared_at("laptop"))
    # Older than their recipes: shown, but no verdict rests on them.
    old = [document["item"] for document in documents.values() if not is_current(document)]
    earlier = "\nNot counted, because they were made before their recipes last changed, and not decided for that: "
    head = (
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
            earlier=f"{earlier}{', '.join(old)}." if old else "",
        )
    )
    sections = [_section(item, documents.get(item.name)) for item in items.values()]
    return "\n".join([head, "## Claims\n", _claims(verdicts), *sections]).rstrip() + "\n"


def _times(timed: Sequence[Mapping[str, str]]) -> str:
    """What is shared, and what the slowest items take after that."""
    seconds: dict[str, dict[str, float]] = {kind: {} for kind in TIMED}
    for row in timed:
        seconds[row["kind"]][row["name"]] = float(row["seconds"])
    if not all(seconds.values()):
        return ""
    shared, items = seconds.values()
    slowest = sorted(items, key=lambda name: -items[name])[:SLOWEST]
    return (
        "Measured with two threads (`python benchmarks/reproduce_times.py`, `results/reproduce_times.csv`):\n"
        f"{sum(shared.values()) / 60:,.0f} minutes for what is shared, now and then other work beside it, and after "
        f"that, each of {len(items)} by itself, at most\n{', '.join(f'{name} {items[name]:,.0f}' for name in slowest)} "
        "seconds.\n"
        "Where the file tells of no heads, others had fitted them; seconds of the processor stand there, too.\n"
    )


def tally(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How many claims, and how many of the comparisons that decide them, have which verdict."""
    claims = Counter(claim["verdict"] for claim in verdicts)
    tests = Counter(test["verdict"] for claim in verdicts for test in claim["tests"])
    of_claims, of_tests = (
        ", ".join(f"{count[one]} {word}" for one, word in TALLY.items()) for count in (claims, tests)
    )
    return f"Of the {len(verdicts)} claims {of_claims}; of their {tests.total()} comparisons {of_tests}."


def _claims(verdicts: Sequence[Mapping[str, Any]]) -> str:
    lines = [["", "claim", "verdict", "what was compared"]]
    for claim in verdicts:
        compared = [_test_text(test) for test in claim["tests"]]
        waiting = claim["of"] - len(claim["tests"])
        if waiting:
            compared.append(f"{waiting} not run yet")
        verdict = claim["verdict"] if claim["tests"] else "not run yet"
        text = f"{claim['text']} ({claim['source']})"
        lines.append([str(claim["id"]), text, f"**{verdict}**", "<br>".join(compared)])
    return markdown_table(lines) + "\n"


def _section(item: Item, document: Mapping[str, Any] | None) -> str:
    title = f"## {item.name}: {item.title}\n\n{item.source}."
    if document is None:
        return f"{title} Not run yet: `bertvision reproduce {item.name} --data FOLDER`.\n"
    made = f"{title} {document['scale'].capitalize()} scale, {document['encoder']}: {document['status']}."
    made += "" if is_current(document) else EARLIER
    made += "".join(f" {_order_text(order).capitalize()}." for order in document["rank_correlations"])
    lines = [made, "", markdown_table(item_cells(document)), "", *missing_lines(document)]
    lines += [f"![{item.title}]({PICTURES}/{name})\n" for name in document["pictures"]]
    return "\n".join([*lines, " ".join([document["note"], *document["notes_on_published"]])]).rstrip() + "\n"
