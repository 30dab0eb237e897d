"""A table or figure as a document: ours beside published, and what our rows say about the claims."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty, write_json
from bertvision.core.progress import log_line
from bertvision.encoders.loading import load_encoder
from bertvision.evaluation.metrics.values import spearmanr
from bertvision.model import native_model
from bertvision.training.benchmark import interleaved_seconds
from bertvision.workflows.reproduce.analysis_rows import ablation_row, analysis_row, epoch_row, subset_row
from bertvision.workflows.reproduce.claims import OPEN, STAR, Measured, metric_of, together, verdict, weigh
from bertvision.workflows.reproduce.experiments import Experiments, Failed, Missing, NoData, NotAtScale
from bertvision.workflows.reproduce.figures import write_pictures
from bertvision.workflows.reproduce.published import Check, Claim, claims, claims_of, published_notes, published_of
from bertvision.workflows.reproduce.rows import RowResult, board_row, count_on_shape, count_row, curve_row, tuned_row
from bertvision.workflows.reproduce.specs import (
    MIX,
    NOBODY,
    AblationRow,
    AnalysisRow,
    BoardRow,
    CountRow,
    CurveRow,
    EpochRow,
    Item,
    MeanRow,
    RowSpec,
    Shared,
    SubsetRow,
    TunedRow,
    all_items,
    head_of,
    heads_by_run,
    shared_at,
)

NOT_HASHED = ("about", "url", "windows", "learned", "tokens")
"""Of a data set: words, and sizes for plans. They change nothing that is made."""
MIN_ROWS = 5
"""Rows from which on the order of ours and the published ones is compared."""
DONE, PART, NO_DATA, FAILED = "done", "some data missing", NoData.word, "some rows failed"
PUBLISHED = "published only: of a model or a data set that is not part of this"
TIMED = {"inference", "inference_ratio"}
"""Metrics that are measured in turns, after all rows are made."""
EXAMPLES, ROUNDS = 16, 9
OUTER = 1
"""Rounds left out at either end: of nine the second and the eighth enclose the median with 96 %."""

MAKERS: Mapping[type[RowSpec], Callable[[Experiments, Any], RowResult]] = {
    CountRow: count_row,
    CurveRow: curve_row,
    TunedRow: tuned_row,
    AblationRow: ablation_row,
    AnalysisRow: analysis_row,
    EpochRow: epoch_row,
    SubsetRow: subset_row,
    BoardRow: board_row,
}
"""What makes a row, by its kind; a mean is taken over rows that are made."""


def reproduce(items: Sequence[Item], experiments: Experiments) -> list[dict[str, Any]]:
    """Run every item; what several need is made once, with all the heads that any of them asks for."""
    experiments.wanted = heads_by_run([experiments.shared.substituted(row) for item in items for row in item.rows])
    documents, failed = [], []
    for item in items:
        try:
            documents.append(_reproduce_item(item, experiments))
        except (BadInput, ArithmeticError, MemoryError) as error:
            if len(items) == 1:
                raise
            log_line(f"reproduce: {item.name} failed: {error}")
            failed.append(f"{item.name}: {error}")
    if failed:
        folder = experiments.out / "items"
        raise BadInput(f"{len(failed)} of {len(items)} failed, the others are in {folder}; the first is {failed[0]}")
    return documents


def _reproduce_item(item: Item, experiments: Experiments) -> dict[str, Any]:
    log_line(f"reproduce: {item.name} ({item.title})")
    results = make_rows(experiments, item)
    rows = _plain_rows(item, results)
    document = {
        "item": item.name,
        "title": item.title,
        "source": item.source,
        "kind": item.kind,
        "scale": experiments.shared.scale,
        "encoder": experiments.encoder or ", ".join(dict.fromkeys(experiments.shared.encoders.values())),
        "status": _status(results),
        "note": item.note,
        "notes_on_published": published_notes(item.name),
        "metrics": list(item.metrics),
        "rows": rows,
        "made_from": origin(item, experiments.shared, experiments.encoder, experiments.settings),
        "pictures": write_pictures(item, rows, experiments.out / "items"),
        "rank_correlations": rank_correlations(item, results),
        "tests": _tests(item.name, results, experiments.shared.scale),
    }
    write_json(experiments.out / "items" / f"{item.name}.json", document)
    return document


def make_rows(experiments: Experiments, item: Item) -> list[RowResult]:
    """All rows of a table; a row that cannot be made says why."""
    results: list[RowResult] = []
    for row in item.rows:
        if isinstance(row, MeanRow):
            results.append(mean_row(row, results, published_of(item.name)))
        else:
            results.append(make_row(experiments, row))
    return _with_times(experiments, item, results)


def make_row(experiments: Experiments, row: RowSpec) -> RowResult:
    """One row; where it cannot be made, what is known all the same."""
    try:
        if row.only not in (None, experiments.shared.scale):
            raise NotAtScale(f"this row is for {row.only} scale")
        made = MAKERS[type(row)](experiments, experiments.shared.substituted(row))
    except Missing as missing:
        made = RowResult(row.name, missing=missing)
    if not isinstance(row, BoardRow) or row.predictor.startswith(MIX) or row.predictor == NOBODY:
        return made
    spec = head_of(row.predictor)
    percent = 100.0 if spec is None else count_on_shape(row, spec)["percent"]
    return replace(made, values={**made.values, "percent": percent})


def mean_row(row: MeanRow, results: Sequence[RowResult], printed: Mapping[str, Mapping[str, float]]) -> RowResult:
    """The mean of the tasks' metrics over the rows above that match, and the paper's over the same rows."""
    ours, theirs = [], []
    for one in results:
        if fnmatchcase(one.name, row.mean) and one.task and not one.missing:
            metric = one.task.metric
            ours.append(one.values[metric])
            if metric in printed.get(one.name, {}):
                theirs.append(printed[one.name][metric])
    if not ours:
        return RowResult(row.name, missing=NoData("none of these rows has any"))
    values = {"mean": fmean(ours), "of": float(len(ours))}
    if len(theirs) == len(ours):
        values["paper_mean_of_these"] = fmean(theirs)
    return RowResult(row.name, values)


def _with_times(experiments: Experiments, item: Item, results: list[RowResult]) -> list[RowResult]:
    """Seconds for 1,000 examples, and the ratio to the first row with the interval of its median over rounds."""
    tuned: dict[str, RowResult] = {}  # by folder, the first row of each
    for row, one in zip(item.rows, results, strict=True):
        if isinstance(row, TunedRow) and one.answers:
            tuned.setdefault(one.folder, one)
    if not TIMED & set(item.metrics) or not tuned:
        return results
    first = next(one.folder for one in results if one.folder in tuned)
    seconds = _seconds_of(experiments, [first, *sorted(set(tuned) - {first})], tuned[first])
    timed = []
    for one in results:
        if one.folder in seconds:
            ratios = [mine / theirs for mine, theirs in zip(seconds[one.folder], seconds[first], strict=True)]
            low, *_, high = sorted(ratios)[OUTER:-OUTER]
            values = {"inference": median(seconds[one.folder]), "inference_ratio": median(ratios)}
            intervals = {**one.intervals, "inference_ratio": (low, high)}
            one = replace(one, values={**one.values, **values}, intervals=intervals)
        timed.append(one)
    return timed


def _seconds_of(experiments: Experiments, folders: Sequence[str], first: RowResult) -> dict[str, list[float]]:
    """Of every round, measured once for the same encoders as they were tuned."""
    made_from = hash_json([read_json_or_empty(Path(folder) / "own.json") for folder in folders])
    path = experiments.out / "times" / f"{made_from}.json"
    kept = read_json_or_empty(path)
    if not kept:
        assert first.task is not None
        models = [native_model(load_encoder(str(Path(folder) / "encoder")), first.task) for folder in folders]
        examples = first.task["dev"][:EXAMPLES]
        rounds = interleaved_seconds([partial(model.outputs, examples) for model in models], ROUNDS)
        for folder, seconds in zip(folders, rounds, strict=True):
            kept[folder] = [1000 * one / len(examples) for one in seconds]
        write_json(path, kept)
    return {folder: list(map(float, kept[folder])) for folder in folders}


def origin(item: Item, shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()) -> str:
    """Hash of everything that decides the rows: the recipe's rows, what lies below them, data, seeds, encoders."""
    facts = []
    for row in shared.rows_of(item):
        source = shared.source_of(row)
        below = [] if source is None else list(shared.source_chain(source))
        data = {}
        for name in (row.data, *(source.data for source in below)):
            if name is not None:
                fields = hashed_fields(shared.data[name])
                data[name] = {key: value for key, value in fields.items() if key not in NOT_HASHED}
        encoders = {source.encoder: shared.encoders.get(source.encoder) for source in below}
        sources = [hashed_fields(source) for source in below]
        facts.append({"line": row.facts(), "below": sources, "data": data, "encoders": encoders})
    seeds = {"seeds": shared.seeds, "once": shared.single_seed, "often": shared.extra_seeds}
    return hash_json([item.kind, list(item.metrics), facts, seeds, encoder, list(settings)])


def _status(results: Sequence[RowResult]) -> str:
    """What is for another scale only is not missed."""
    missing = [one.missing for one in results if not isinstance(one.missing, NotAtScale)]
    if any(isinstance(one, Failed) for one in missing):
        return FAILED
    without = sum(one is not None for one in missing)
    return DONE if not without else NO_DATA if without == len(missing) else PART


def _plain_rows(item: Item, results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """Ours in the recipe's order, then published rows that we have no counterpart for."""
    printed = published_of(item.name)
    rows: list[dict[str, Any]] = [
        {
            "row": one.name,
            "ours": {key: value for key, value in one.values.items() if math.isfinite(value)},
            "intervals": {key: list(ends) for key, ends in one.intervals.items() if all(map(math.isfinite, ends))},
            "published": printed.pop(one.name, {}),
            "missing": "" if one.missing is None else str(one.missing),
        }
        for one in results
    ]
    for name, values in printed.items():
        rows.append({"row": name, "ours": {}, "intervals": {}, "published": values, "missing": PUBLISHED})
    return rows


def rank_correlations(item: Item, results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """Spearman's correlation of our scores with the published ones over a leaderboard's rows, by run.

    Between runs it would only show that more tuning, or an easier task, gives a higher score.
    """
    if item.kind != "leaderboard":
        return []
    printed = published_of(item.name)
    metric = next((key for key in item.metrics if key in ("f1", "accuracy")), item.metrics[0])
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row, one in zip(item.rows, results, strict=True):
        if isinstance(row, BoardRow) and metric in one.values and metric in printed.get(one.name, {}):
            pairs.setdefault(row.label.rstrip("/"), []).append((printed[one.name][metric], one.values[metric]))
    return [
        {"run": run, "metric": metric, "rows": len(some), "spearmanr": spearmanr(*zip(*some, strict=True))}
        for run, some in pairs.items()
        if len(some) >= MIN_ROWS
    ]


def _tests(item: str, results: Sequence[RowResult], scale: str) -> list[dict[str, Any]]:
    rows = {one.name: one for one in results}
    return [_test(claim, test, rows, scale) for claim in claims_of(item) for test in claim.tests if test.item == item]


def _test(claim: Claim, test: Check, rows: Mapping[str, RowResult], scale: str) -> dict[str, Any]:
    measured = Measured(why=test.because) if test.not_at == scale else weigh(test, rows)
    document: dict[str, Any] = {"claim": claim.id}
    document |= {key: getattr(test, key) for key in ("a", "b", "number", "says", "margin", "metric", "of", "among")}
    first = rows.get(test.a)
    own = "each task's metric" if STAR in test.a else "the task's metric"
    document["metric"] = metric_of(test, first.task if first else None) or own
    for key in ("difference", "low", "high"):
        value = getattr(measured, key)
        document[key] = value if value is not None and math.isfinite(value) else None  # JSON has no nan
    decided = verdict(measured, test.says, test.margin, comparisons=len(claim.tests))
    return {**document, "why": measured.why, "note": measured.note, "verdict": decided}


def read_documents(folder: Path) -> dict[str, dict[str, Any]]:
    """All that were written, by item."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {document["item"]: document for document in documents}


def is_current(document: Mapping[str, Any]) -> bool:
    """Whether it would be made the same way now, with the encoders and settings of its scale."""
    return _is_made_by(document, shared_at(document["scale"]))


def _is_made_by(
    document: Mapping[str, Any], shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()
) -> bool:
    item = all_items().get(document["item"])
    return item is not None and document.get("made_from") == origin(item, shared, encoder, settings)


def only_current(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What verdicts may rest on."""
    return [document for document in documents if is_current(document)]


def current_documents(experiments: Experiments) -> list[dict[str, Any]]:
    """Of all in the experiments' folder those that would be made the same way now."""
    made_by = experiments.shared, experiments.encoder, experiments.settings
    return [one for one in read_documents(experiments.out / "items").values() if _is_made_by(one, *made_by)]


def claim_verdicts(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every claim over all its tests; one whose table was not run yet is open."""
    done = [{**test, "item": document["item"]} for document in documents for test in document["tests"]]
    verdicts = []
    for claim in claims():
        tests = [test for test in done if test["claim"] == claim.id]
        decided = [str(test["verdict"]) for test in tests] + [OPEN] * (len(claim.tests) - len(tests))
        facts = {"id": claim.id, "text": claim.text, "source": claim.source, "of": len(claim.tests)}
        verdicts.append({**facts, "verdict": together(decided), "tests": tests})
    return verdicts
