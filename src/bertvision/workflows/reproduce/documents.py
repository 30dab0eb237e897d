"""Reproduce a table or figure: a JSON document of our numbers, the published ones, and the tests of claims."""

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
from bertvision.workflows.reproduce.claims import OPEN, STAR, Measured, combine_verdicts, measure, metric_of, verdict
from bertvision.workflows.reproduce.experiments import Experiments, Failed, Missing, NoData, NotAtScale
from bertvision.workflows.reproduce.figures import write_pictures
from bertvision.workflows.reproduce.published import Check, Claim, claims, claims_of, published_notes, published_of
from bertvision.workflows.reproduce.rows import RowResult, board_row, count_on_shape, count_row, curve_row, tuned_row
from bertvision.workflows.reproduce.specs import (
    MAX_PREFIX,
    NO_ANSWER_ROW,
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
"""Fields of data sets that do not influence results: descriptions, and sizes for plans."""
MIN_ROWS = 5
"""Fewest rows for a rank correlation of our scores with the published ones."""
DONE, SOME_DATA, NO_DATA, FAILED = "done", "some data missing", NoData.word, "some rows failed"
PUBLISHED_ONLY = "published only: of a model or a data set that is not part of this"
TIME_METRICS = {"inference", "inference_ratio"}
"""Metrics that are measured for all rows together, in turns."""
TIMED_EXAMPLES, TIMING_ROUNDS = 16, 9
TRIMMED_ROUNDS = 1
"""Rounds left out at either end: the second and eighth of nine enclose the median with 96 % probability."""

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
"""The function that makes a row, by its kind; means are taken afterwards."""


def reproduce(items: Sequence[Item], experiments: Experiments) -> list[dict[str, Any]]:
    """Run every item; shared runs are made once, with the heads of all items."""
    rows = [experiments.shared.substitute_heads(row) for item in items for row in item.rows]
    experiments.heads_to_fit = heads_by_run(rows)
    documents, errors = [], []
    for item in items:
        log_line(f"reproduce: {item.name} ({item.title})")
        try:
            documents.append(_reproduce_item(item, experiments))
        except (BadInput, ArithmeticError, MemoryError) as error:
            if len(items) == 1:
                raise
            log_line(f"reproduce: {item.name} failed: {error}")
            errors.append(f"{item.name}: {error}")
    if errors:
        folder = experiments.out / "items"
        raise BadInput(f"{len(errors)} of {len(items)} failed, the others are in {folder}; the first is {errors[0]}")
    return documents


def _reproduce_item(item: Item, experiments: Experiments) -> dict[str, Any]:
    results = make_rows(experiments, item)
    rows = _plain_rows(item, results)
    scale = experiments.shared.scale
    by_name = {result.name: result for result in results}
    tests = [(claim, test) for claim in claims_of(item.name) for test in claim.tests if test.item == item.name]
    document = {
        "item": item.name,
        "title": item.title,
        "source": item.source,
        "kind": item.kind,
        "scale": scale,
        "encoder": experiments.encoder or ", ".join(dict.fromkeys(experiments.shared.encoders.values())),
        "status": _status(results),
        "note": item.note,
        "notes_on_published": published_notes(item.name),
        "metrics": list(item.metrics),
        "rows": rows,
        "made_from": origin(item, experiments.shared, experiments.encoder, experiments.settings),
        "pictures": write_pictures(item, rows, experiments.out / "items"),
        "rank_correlations": rank_correlations(item, results),
        "tests": [_run_test(claim, test, by_name, scale) for claim, test in tests],
    }
    write_json(experiments.out / "items" / f"{item.name}.json", document)
    return document


def make_rows(experiments: Experiments, item: Item) -> list[RowResult]:
    """All rows of a table; a row that cannot be made has the reason in ``missing``."""
    results: list[RowResult] = []
    for row in item.rows:
        if isinstance(row, MeanRow):
            results.append(mean_row(row, results, published_of(item.name)))
        else:
            results.append(make_row(experiments, row))
    return _add_times(experiments, item, results)


def make_row(experiments: Experiments, row: RowSpec) -> RowResult:
    """One row; if it cannot be made, the reason, and its parameters all the same."""
    try:
        if row.only not in (None, experiments.shared.scale):
            raise NotAtScale(f"this row is for {row.only} scale")
        made = MAKERS[type(row)](experiments, experiments.shared.substitute_heads(row))
    except Missing as missing:
        made = RowResult(row.name, missing=missing)
    if not isinstance(row, BoardRow) or row.predictor.startswith(MAX_PREFIX) or row.predictor == NO_ANSWER_ROW:
        return made
    spec = head_of(row.predictor, row.shape)
    percent = 100.0 if spec is None else count_on_shape(row, spec)["percent"]
    return replace(made, values={**made.values, "percent": percent})


def mean_row(row: MeanRow, results: Sequence[RowResult], printed: Mapping[str, Mapping[str, float]]) -> RowResult:
    """The mean of each task's metric over the matching rows above, and the paper's mean over the same rows."""
    ours, theirs = [], []
    for result in results:
        if fnmatchcase(result.name, row.mean) and result.task and not result.missing:
            metric = result.task.metric
            ours.append(result.values[metric])
            if metric in printed.get(result.name, {}):
                theirs.append(printed[result.name][metric])
    if not ours:
        return RowResult(row.name, missing=NoData("none of these rows has any"))
    values = {"mean": fmean(ours), "of": float(len(ours))}
    if len(theirs) == len(ours):
        values["paper_mean_of_these"] = fmean(theirs)
    return RowResult(row.name, values)


def _add_times(experiments: Experiments, item: Item, results: list[RowResult]) -> list[RowResult]:
    """Add seconds per 1,000 examples, and their ratio to the first row with the interval of its median."""
    tuned: dict[str, RowResult] = {}  # the first row of each encoder's folder
    for row, result in zip(item.rows, results, strict=True):
        if isinstance(row, TunedRow) and result.answers:
            tuned.setdefault(result.folder, result)
    if not TIME_METRICS & set(item.metrics) or not tuned:
        return results
    first = next(result.folder for result in results if result.folder in tuned)
    seconds = _time_encoders(experiments, [first, *sorted(set(tuned) - {first})], tuned[first])
    timed = []
    for result in results:
        if result.folder in seconds:
            ratios = [own / base for own, base in zip(seconds[result.folder], seconds[first], strict=True)]
            low, *_, high = sorted(ratios)[TRIMMED_ROUNDS:-TRIMMED_ROUNDS]
            values = {"inference": median(seconds[result.folder]), "inference_ratio": median(ratios)}
            intervals = {**result.intervals, "inference_ratio": (low, high)}
            result = replace(result, values={**result.values, **values}, intervals=intervals)
        timed.append(result)
    return timed


def _time_encoders(experiments: Experiments, folders: Sequence[str], first: RowResult) -> dict[str, list[float]]:
    """Seconds per 1,000 examples of every round, by folder; measured once for the same tuned encoders."""
    made_from = hash_json([read_json_or_empty(Path(folder) / "own.json") for folder in folders])
    path = experiments.out / "times" / f"{made_from}.json"
    cached = read_json_or_empty(path)
    if not cached:
        assert first.task is not None
        models = [native_model(load_encoder(str(Path(folder) / "encoder")), first.task) for folder in folders]
        examples = first.task["dev"][:TIMED_EXAMPLES]
        rounds = interleaved_seconds([partial(model.outputs, examples) for model in models], TIMING_ROUNDS)
        for folder, seconds in zip(folders, rounds, strict=True):
            cached[folder] = [1000 * second / len(examples) for second in seconds]
        write_json(path, cached)
    return {folder: list(map(float, cached[folder])) for folder in folders}


def origin(item: Item, shared: Shared, encoder: str | None = None, settings: Sequence[str] = ()) -> str:
    """Hash of everything that determines the rows: recipe, sources, data, seeds and encoders."""
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
    """Whether all rows of this scale were made."""
    missing = [result.missing for result in results if not isinstance(result.missing, NotAtScale)]
    if any(isinstance(reason, Failed) for reason in missing):
        return FAILED
    count = sum(reason is not None for reason in missing)
    return DONE if not count else NO_DATA if count == len(missing) else SOME_DATA


def _plain_rows(item: Item, results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """Our rows in the recipe's order, then published rows without a counterpart."""
    printed = published_of(item.name)
    rows: list[dict[str, Any]] = []
    for result in results:
        intervals = {key: list(ends) for key, ends in result.intervals.items() if all(map(math.isfinite, ends))}
        row = {
            "row": result.name,
            "ours": {key: value for key, value in result.values.items() if math.isfinite(value)},
            "intervals": intervals,
            "published": printed.pop(result.name, {}),
            "missing": "" if result.missing is None else str(result.missing),
        }
        rows.append(row)
    for name, values in printed.items():
        rows.append({"row": name, "ours": {}, "intervals": {}, "published": values, "missing": PUBLISHED_ONLY})
    return rows


def rank_correlations(item: Item, results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """Spearman correlation of our scores with the published ones over the rows of a leaderboard, for each run.

    Across runs it would only show that more tuning, or an easier task, gives a higher score.
    """
    if item.kind != "leaderboard":
        return []
    printed = published_of(item.name)
    metric = next((key for key in item.metrics if key in ("f1", "accuracy")), item.metrics[0])
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row, result in zip(item.rows, results, strict=True):
        if isinstance(row, BoardRow) and metric in result.values and metric in printed.get(result.name, {}):
            pair = printed[result.name][metric], result.values[metric]
            pairs.setdefault(row.run_key.rstrip("/"), []).append(pair)
    correlations = []
    for run, scores in pairs.items():
        if len(scores) >= MIN_ROWS:
            rho = spearmanr(*zip(*scores, strict=True))
            correlations.append({"run": run, "metric": metric, "rows": len(scores), "spearmanr": rho})
    return correlations


def _run_test(claim: Claim, test: Check, rows: Mapping[str, RowResult], scale: str) -> dict[str, Any]:
    """A test of a claim on our rows, as plain data."""
    measured = Measured(why=test.because) if test.not_at == scale else measure(test, rows)
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
    """All documents of a folder, by item."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {document["item"]: document for document in documents}


def is_current(
    document: Mapping[str, Any], shared: Shared | None = None, encoder: str | None = None, settings: Sequence[str] = ()
) -> bool:
    """Whether the recipe, with these settings, still is the one that the document was made from.

    Without settings: the recipe as it is, at the scale of the document.
    """
    item, shared = all_items().get(document["item"]), shared or shared_at(document["scale"])
    return item is not None and document.get("made_from") == origin(item, shared, encoder, settings)


def only_current(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Documents that verdicts may be based on."""
    return [document for document in documents if is_current(document)]


def current_documents(experiments: Experiments) -> list[dict[str, Any]]:
    """Documents in the folder of the experiments that the same settings would make again."""
    settings = experiments.shared, experiments.encoder, experiments.settings
    documents = read_documents(experiments.out / "items").values()
    return [document for document in documents if is_current(document, *settings)]


def claim_verdicts(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The verdict on every claim over all its tests; tests of tables that were not run are open."""
    done = [{**test, "item": document["item"]} for document in documents for test in document["tests"]]
    verdicts = []
    for claim in claims():
        tests = [test for test in done if test["claim"] == claim.id]
        decided = [str(test["verdict"]) for test in tests] + [OPEN] * (len(claim.tests) - len(tests))
        facts = {"id": claim.id, "text": claim.text, "source": claim.source, "of": len(claim.tests)}
        verdicts.append({**facts, "verdict": combine_verdicts(decided), "tests": tests})
    return verdicts
