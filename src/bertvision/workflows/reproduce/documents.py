"""A table or figure as a document: ours beside published, and what our rows say about the claims."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, write_json
from bertvision.core.progress import log_line
from bertvision.evaluation.metrics.values import spearmanr
from bertvision.workflows.reproduce.claims import OPEN, STAR, Found, metric_of, together, verdict, weigh
from bertvision.workflows.reproduce.estimate import chain_below, sources_of
from bertvision.workflows.reproduce.experiments import Failed, NoData, NotHere, Workshop
from bertvision.workflows.reproduce.figures import write_pictures
from bertvision.workflows.reproduce.published import Check, Claim, claims, claims_of, published_of
from bertvision.workflows.reproduce.row_sources import Entry, heads_by_run, run_label
from bertvision.workflows.reproduce.rows import entries_of
from bertvision.workflows.reproduce.specs import DataSet, Item, Line, Shared, all_items, shared_at
from bertvision.workflows.reproduce.text import corrections

WORDS = ("about", "url", "windows", "learned", "tokens")
"""Of a data set: what is told of it, and sizes for plans. They change nothing that is made."""

ENOUGH = 5
"""Rows from which on the order of ours and the published ones is compared."""

DONE, PART, NO_DATA, FAILED = "done", "some data missing", NoData.word, "some rows failed"

PUBLISHED = "published only: of a model or a data set that is not part of this"


def origin(item: Item, shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()) -> str:
    """Of everything that decides the rows: the recipe's lines, what lies below them, data, seeds, encoders."""
    facts = [_line_facts(line, shared) for line in shared.lines_of(item)]
    fits = {"seeds": shared.seeds, "once": shared.once, "often": shared.often}
    return hash_json([item.kind, list(item.metrics), facts, fits, encoder, list(settings)])


def _line_facts(line: Line, shared: Shared) -> dict[str, Any]:
    below = [one for source in sources_of(line, shared) for one in chain_below(shared, source)]
    names = [line.data, *(source.data for source in below)]
    data = {name: _data_facts(shared.data[name]) for name in names if name is not None}
    encoders = {source.encoder: shared.encoders.get(source.encoder) for source in below}
    return {
        "line": hashed_fields(line),
        "below": [hashed_fields(one) for one in below],
        "data": data,
        "encoders": encoders,
    }


def _data_facts(data: DataSet) -> Mapping[str, Any]:
    return {key: value for key, value in hashed_fields(data).items() if key not in WORDS}


def reproduce(items: Sequence[Item], shop: Workshop) -> list[dict[str, Any]]:
    """Run every item; what several need is made once, with all the heads that any of them asks for."""
    shop.wanted = heads_by_run([shop.shared.narrowed(line) for item in items for line in item.lines])
    documents, failed = [], []
    for item in items:
        try:
            documents.append(_reproduced(item, shop))
        except (BadInput, ArithmeticError, MemoryError) as error:
            if len(items) == 1:
                raise
            log_line(f"reproduce: {item.name} failed: {error}")
            failed.append(f"{item.name}: {error}")
    if failed:
        where = shop.out / "items"
        raise BadInput(f"{len(failed)} of {len(items)} failed, the others are in {where}; the first is {failed[0]}")
    return documents


def _reproduced(item: Item, shop: Workshop) -> dict[str, Any]:
    log_line(f"reproduce: {item.name} ({item.title})")
    entries = entries_of(shop, item)
    rows = _rows(item, entries)
    document = {
        "item": item.name,
        "title": item.title,
        "source": item.source,
        "kind": item.kind,
        "scale": shop.shared.scale,
        "encoder": shop.encoder or ", ".join(dict.fromkeys(shop.shared.encoders.values())),
        "status": _status(entries),
        "note": item.note,
        "notes_on_published": corrections(item.name),
        "metrics": list(item.metrics),
        "rows": rows,
        "made_from": origin(item, shop.shared, shop.encoder, shop.settings),
        "pictures": write_pictures(item, rows, shop.out / "items"),
        "rank_correlations": rank_correlations(item, entries),
        "tests": _tests(item.name, entries, shop.shared.scale),
    }
    write_json(shop.out / "items" / f"{item.name}.json", document)
    return document


def _status(entries: Sequence[Entry]) -> str:
    """What is for another scale only is not missed."""
    asked = [one.missing for one in entries if not isinstance(one.missing, NotHere)]
    if any(isinstance(missing, Failed) for missing in asked):
        return FAILED
    without = sum(missing is not None for missing in asked)
    return DONE if not without else NO_DATA if without == len(asked) else PART


def _rows(item: Item, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Ours in the recipe's order, then published rows that we have no counterpart for."""
    printed = published_of(item.name)
    rows = [
        {
            "row": one.row,
            "ours": {key: value for key, value in one.values.items() if math.isfinite(value)},
            "intervals": {key: list(ends) for key, ends in one.ends.items() if all(map(math.isfinite, ends))},
            "published": printed.pop(one.row, {}),
            "missing": "" if one.missing is None else str(one.missing),
        }
        for one in entries
    ]
    rest = [
        {"row": row, "ours": {}, "intervals": {}, "published": told, "missing": PUBLISHED}
        for row, told in printed.items()
    ]
    return [*rows, *rest]


def rank_correlations(item: Item, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Spearman's correlation of our scores with the published ones over a leaderboard's rows, by run.

    Between runs it would only tell that more tuning, or an easier task, gives a higher score.
    """
    if item.kind != "leaderboard":
        return []
    printed = published_of(item.name)
    metric = next((key for key in item.metrics if key in ("f1", "accuracy")), item.metrics[0])
    pairs: dict[str, list[tuple[float, float]]] = {}
    for line, one in zip(item.lines, entries, strict=True):
        if metric in one.values and metric in printed.get(one.row, {}):
            pairs.setdefault(run_label(line), []).append((printed[one.row][metric], one.values[metric]))
    return [
        {"run": run.rstrip("/"), "metric": metric, "rows": len(some), "spearmanr": spearmanr(*zip(*some, strict=True))}
        for run, some in pairs.items()
        if len(some) >= ENOUGH
    ]


def _tests(item: str, entries: Sequence[Entry], scale: str) -> list[dict[str, Any]]:
    by_row = {one.row: one for one in entries}
    tests = [(claim, test) for claim in claims_of(item) for test in claim.tests if test.item == item]
    return [_tested(claim, test, by_row, scale) for claim, test in tests]


def _tested(claim: Claim, test: Check, entries: Mapping[str, Entry], scale: str) -> dict[str, Any]:
    found = Found(why=test.because) if test.not_at == scale else weigh(test, entries)
    ends = {key: known(getattr(found, key)) for key in ("difference", "low", "high")}
    told = {"why": found.why, "note": found.note}
    asked = {key: getattr(test, key) for key in ("a", "b", "number", "says", "margin", "metric", "of", "among")}
    first = entries.get(test.a)
    own = "each task's metric" if STAR in test.a else "the task's metric"
    asked["metric"] = metric_of(test, first.task if first else None) or own
    decided = verdict(found, test.says, test.margin, looks=len(claim.tests))
    return {"claim": claim.id, **asked, **ends, **told, "verdict": decided}


def known(value: float | None) -> float | None:
    """JSON has no word for what is no number."""
    return value if value is not None and math.isfinite(value) else None


def read_documents(folder: Path) -> dict[str, dict[str, Any]]:
    """All that were written, by item."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {document["item"]: document for document in found}


def is_current(document: Mapping[str, Any]) -> bool:
    """Whether it would be made the same way now, with the encoders and settings of its scale."""
    return _made_so(document, shared_at(document["scale"]))


def _made_so(
    document: Mapping[str, Any], shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()
) -> bool:
    item = all_items().get(document["item"])
    return item is not None and document.get("made_from") == origin(item, shared, encoder, settings)


def only_current(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What verdicts may rest on."""
    return [document for document in documents if is_current(document)]


def current_documents(shop: Workshop) -> list[dict[str, Any]]:
    """Of all that lie in the workshop's folder those that it would make the same way now."""
    found = read_documents(shop.out / "items").values()
    return [document for document in found if _made_so(document, shop.shared, shop.encoder, shop.settings)]


def claim_verdicts(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every claim over all its tests; one whose table was not run yet is open."""
    done = [{**test, "item": document["item"]} for document in documents for test in document["tests"]]
    found = []
    for claim in claims():
        mine = [test for test in done if test["claim"] == claim.id]
        verdicts = [str(test["verdict"]) for test in mine] + [OPEN] * (len(claim.tests) - len(mine))
        facts = {"id": claim.id, "text": claim.text, "source": claim.source, "of": len(claim.tests)}
        found.append({**facts, "verdict": together(verdicts), "tests": mine})
    return found
