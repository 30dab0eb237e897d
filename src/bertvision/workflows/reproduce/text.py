"""Tables and verdicts as text for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.records import aligned
from bertvision.workflows.reproduce.claims import is_too_wide
from bertvision.workflows.reproduce.published import published

TITLES = {
    "percent": "percent of the paper's encoder",
    "trained": "trained parameters",
    "minutes": "minutes of tuning",
    "inference": "seconds for 1,000 examples",
    "inference_ratio": "time to answer, first row = 1",
    "inference_seconds": "seconds to answer",
    "has_answer_right": "% right where there is an answer",
    "no_answer_right": "% right where there is none",
    "missed_by_silence": "% of missed answers that were no answer",
    "right_length": "mean length where right",
    "wrong": "best answer wrong",
    "second_right": "second right",
    "share": "second right, %",
    "rescued_has_answer": "% of these with an answer",
    "right_has_answer": "% of right at once with an answer",
    "matthews_correlation": "Matthews correlation",
    "spearmanr": "Spearman correlation",
    "pearson": "Pearson correlation",
    "of": "mean of how many",
    "paper_mean_of_these": "the paper's mean of these",
    "decrease": "% of the score lost",
    "rises_after": "rises after state",
}
"""Of metrics whose name alone says too little: shares, say, are counted on the paper's shape, whatever was run."""
COUNTS = {"parameters", "trained", "wrong", "second_right", "right", "of", "rises_after"}
"""Metrics that have no digits after the point."""
FEW = 4
"""Names that a sentence holds."""
WIDE = " (too few examples for this margin: it could not hold)"
WORDS = {"more": ">", "as-good": ">=", "about": "about", "not-more": "not >"}


def item_text(document: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Ours beside published, then a line for every claim that the table has a say in."""
    head = f"{document['item']}: {document['title']} [{document['scale']}, {document['encoder']}; {document['status']}]"
    lines = [head, *aligned(item_cells(document)), *missing_lines(document)]
    lines += [order_words(order) for order in document["rank_correlations"]]
    lines += [f"pictures: {', '.join(document['pictures'])}"] if document["pictures"] else []
    lines += [f"note: {document['note']}"] if document["note"] else []
    lines += document["notes_on_published"]
    concerned = {test["claim"] for test in document["tests"]}
    return "\n".join([*lines, *(line for one in verdicts if one["id"] in concerned for line in claim_lines(one))])


def order_words(order: Mapping[str, Any]) -> str:
    """How far our order of the rows is the published one."""
    rows = f"{order['rows']} rows of {order['run']}"
    return f"rank correlation with the published {order['metric']} over {rows}: {order['spearmanr']:.2f}"


def title(metric: str) -> str:
    """A metric as tables and figures call it."""
    return TITLES.get(metric, metric)


def corrections(item: str) -> list[str]:
    """What is to be known of published numbers, each reason once; first those that are not what was printed."""
    mended: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}
    for one in published():
        if one.item == item and one.note:
            other = one.printed is not None and one.printed != one.value
            told = f"{one.row}, {one.metric}: {one.value:,.10g} for {one.printed:,.10g}" if other else one.row
            (mended if other else noted).setdefault(one.note, []).append(told)
    lines = [f"Published, corrected: {_few(some, 'numbers')} ({why})." for why, some in mended.items()]
    notes = {why: list(dict.fromkeys(some)) for why, some in noted.items() if why not in mended}
    return lines + [f"Published, {_few(some, 'rows')}: {why}." for why, some in notes.items()]


def _few(names: Sequence[str], what: str) -> str:
    return "; ".join(names) if len(names) <= FEW else f"{len(names)} {what}"


def item_cells(document: Mapping[str, Any]) -> list[list[str]]:
    """A header and a row a row; of each metric ours (with its interval) and the published number."""
    metrics = document["metrics"]
    header = ["", *(name for metric in metrics for name in (title(metric), f"{title(metric)}, published"))]
    rows = []
    for row in document["rows"]:
        cells = [row["row"]]
        for metric in metrics:
            cells += [_ours(row, metric), _told(metric, row["published"].get(metric))]
        rows.append(cells)
    kept = [place for place in range(len(header)) if place == 0 or any(row[place] != "-" for row in rows)]
    return [[line[place] for place in kept] for line in [header, *rows]]


def _ours(row: Mapping[str, Any], metric: str) -> str:
    ends = row["intervals"].get(metric)
    told = _told(metric, row["ours"].get(metric))
    return told if ends is None else f"{told} ({number(ends[0])} to {number(ends[1])})"


def _told(metric: str, value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and metric in COUNTS and float(value).is_integer() else number(value)


def number(value: float | None) -> str:
    """As many digits as help: whole from a thousand on, three for small ones."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def missing_lines(document: Mapping[str, Any]) -> list[str]:
    """What is not there, each reason once, by its word."""
    reasons: dict[str, list[str]] = {}
    for row in document["rows"]:
        if row["missing"]:
            reasons.setdefault(row["missing"], []).append(row["row"])
    told = {reason: f" ({len(rows)} row{'s' if len(rows) > 1 else ''}): " for reason, rows in reasons.items()}
    return [reason.replace(": ", count, 1) for reason, count in told.items()]


def claim_lines(claim: Mapping[str, Any]) -> list[str]:
    """The verdict, and what every test found."""
    waiting = claim["of"] - len(claim["tests"])
    more = f"; {waiting} of {claim['of']} tests belong to tables not run yet" if waiting else ""
    return [
        f"claim {claim['id']}: {claim['verdict']}: {claim['text']}{more}",
        *(f"  {check_words(t)}" for t in claim["tests"]),
    ]


def check_words(test: Mapping[str, Any]) -> str:
    """One test in a line."""
    other = number(test["number"]) if test["b"] is None else test["b"]
    within = f" (margin {test['margin']:g})" if test["margin"] else ""
    among = "" if test["among"] == "all" else f", {test['among']} questions"
    what = test["metric"] if test["of"] in ("score", "value") else test["of"]
    if test["low"] is None:
        told = f"no interval: {test['why']}"
    else:
        sure = "" if test["of"] == "value" else "95 % "
        told = f"{signed(test['difference'])}, {sure}{signed(test['low'])} to {signed(test['high'])}"
        told += f" ({test['note']})" if test["note"] else ""
        told += WIDE if is_too_wide(test["low"], test["high"], test["says"], test["margin"]) else ""
    compared = f"{test['a']} {WORDS[test['says']]} {other}{within} in {what}{among}"
    return f"{test['item']}: {compared}: {told}: {test['verdict']}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{'+' if value >= 0 else '-'}{number(abs(value))}"


def markdown_table(cells: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table; a bar inside of one would end it."""
    lines = [[cell.replace("|", "\\|") or " " for cell in line] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
