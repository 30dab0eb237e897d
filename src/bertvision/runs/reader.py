"""The record of a run: the report is made from this and from nothing else.

Only the leaderboard must be there. A run made by ``bertvision fit STORE --out RUN`` has no recipe
and no encoder, and its store lies elsewhere; what is missing stays empty and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import folder_bytes, hash_json
from bertvision.core.records import CONTROL, Board, PairedTest, Predictions, Reliability, Row, SeedSummary
from bertvision.core.run_log import COMMAND, RunLog
from bertvision.evaluation.analyses.answers import MEANS, Answers, grade_answers
from bertvision.evaluation.analyses.result import KINDS, Finding, Plot
from bertvision.evaluation.comparison import PredictorScores
from bertvision.evaluation.example_scores import score_answers
from bertvision.runs.folder import ANSWER_SPANS, ANSWERS, read_document, remake_hint, store_folder
from bertvision.tasks.task import Task

FINDINGS = "analysis"
"""Where a run's findings are."""

STORE_FINDINGS = ("layers", "depth", "ablation", "learning-curve")
"""Findings that belong to a store, or to the encoder that made it."""

TRIAL_FINDINGS = ("search-history", "search-importance")
"""How the names of findings begin that belong to a store and a study of heads on it."""

TUNING_FINDINGS = "search-tunings"
"""The same of a study of tunings: of these each has a store of its own, and all have the data. All other findings
belong to a leaderboard."""

ByRow = Mapping[tuple[str, int | None], Mapping[str, Any]]
"""By name and seed of a row."""


@dataclass(frozen=True)
class Line:
    """One predictor: a head with all its seeds, the encoder, or an ensemble."""

    name: str
    kind: str  # head, control, encoder or ensemble
    rows: tuple[Row, ...]  # best on inner first, as on the board
    interval: tuple[float, float] | None = None  # of the mean over seeds of the metric

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(row.seed for row in self.rows if row.seed is not None))

    def values(self, score: str, where: str = "scores") -> list[float]:
        """A score of every seed; no number where it was not measured."""
        told: Sequence[Mapping[str, float]] = [getattr(row, where) for row in self.rows]
        return [float(scores.get(score, math.nan)) for scores in told]

    def mean(self, score: str, where: str = "scores") -> float:
        values = self.values(score, where)
        return sum(values) / len(values)

    @property
    def seconds(self) -> float:
        """Of one seed."""
        return sum(row.seconds for row in self.rows) / len(self.rows)


def row_title(row: Row | Predictions) -> str:
    """A row's name; of several seeds also which. Files of what it said are called so, too."""
    return row.name if row.seed is None else f"{row.name}@{row.seed}"


def group_rows(board: Board) -> list[Line]:
    """Best mean on inner first; what has no inner score comes last."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in board.rows:
        groups.setdefault((row.kind, row.spec if row.kind == "head" else row.name), []).append(row)
    ends = {line.name: line.interval for line in board.summary}
    lines = [Line(name, _kind(kind, name), tuple(rows), ends.get(name)) for (kind, name), rows in groups.items()]

    def rank(line: Line) -> float:
        score = line.mean(board.metric, "inner")
        return math.inf if math.isnan(score) else -score

    return sorted(lines, key=rank)


def _kind(kind: str, name: str) -> str:
    return "control" if (kind, name) == ("head", CONTROL) else kind


def best_head(lines: Sequence[Line]) -> Line | None:
    """The head that the advice names."""
    return next((line for line in lines if line.kind in ("head", "control")), None)


@dataclass(frozen=True)
class FitSummary:
    """How one head was fitted with one seed."""

    spec: str
    seed: int
    best_epoch: int
    history: tuple[Mapping[str, float], ...]
    seconds: float
    states: tuple[str, ...]  # what each weight belongs to: the number of a state, or "pooled"
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """Everything the report tells of."""

    folder: Path  # as it was given
    task: Task
    board: Board
    baseline: tuple[str, Mapping[str, float]] | None
    advice: str
    heads: tuple[FitSummary, ...]
    answers: ByRow  # (name, seed) -> example id -> answer
    manifest: Mapping[str, Any]
    encoder: Mapping[str, Any]  # name, record
    adapted: bool  # whether the run's own encoder has adapters and a head that shows what they are worth
    sizes: Mapping[str, int]  # bytes of what each step left in the run
    recipe: str
    day: str
    findings: tuple[Finding, ...] = ()
    places: ByRow = field(default_factory=dict)  # id -> start, end
    log: tuple[Mapping[str, Any], ...] = ()  # steps and commands, oldest first


def gather(folder: Path, task: Task) -> Run:
    """Read a run folder."""
    path = folder / "leaderboard.json"
    document = read_document(path)
    if document is None:
        raise BadInput(f"{path} is missing; make it with: bertvision {_way_to_board(folder)}")
    board = _board(path, document)
    manifest = read_document(store_folder(folder) / "manifest.json", "delete the store and extract again") or {}
    heads = [
        read_document(head, "delete its folder and fit that head again")
        for head in sorted(folder.glob("heads/**/head.json"))
    ]
    answers, places = (_by_row(folder, part, board.rows) for part in (ANSWERS, ANSWER_SPANS))
    _check_answers(folder, board, task, answers)
    return run_of(folder, task, board, document, manifest, [head for head in heads if head], answers, places)


def run_of(
    folder: Path,
    task: Task,
    board: Board,
    document: Mapping[str, Any],
    manifest: Mapping[str, Any],
    heads: Iterable[Mapping[str, Any]],
    answers: ByRow,
    places: ByRow,
) -> Run:
    """The record of a run, from its results and what else its folder holds.

    ``document`` is that of the leaderboard, ``heads`` are documents of fitted heads.
    """
    baseline = document.get("baseline")
    own = read_document(folder / "encoder" / "bertvision.json", "tune again") or {}
    recipe = folder / "recipe.toml"
    return Run(
        folder=folder,
        task=task,
        board=board,
        baseline=(baseline["name"], baseline["scores"]) if baseline else None,
        advice=document.get("advice", ""),
        heads=_heads(heads, board.rows, manifest),
        answers=answers,
        places=places,
        manifest=manifest,
        # The one that made the states; the run's own may have been tuned again since.
        encoder=manifest.get("encoder") or own,
        adapted=bool(own.get("own")) and str(own.get("small", {}).get("put_in")).startswith("adapters"),
        sizes={step: folder_bytes(folder / place) for step, place in (("tune", "encoder"), ("fit", "heads"))},
        recipe=recipe.read_text(encoding="utf-8") if recipe.exists() else "",
        day=_day(folder, folder / "leaderboard.json"),
        findings=read_findings(folder, lambda name: finding_origin(name, board, manifest)),
        log=tuple(RunLog(folder).read()),
    )


def with_findings(run: Run, made: Iterable[Finding]) -> Run:
    """The run with findings that were just made, in the order in which a folder's are read."""
    by_file = {f"{finding.name}.json": finding for finding in (*run.findings, *made)}
    return replace(run, findings=tuple(by_file[name] for name in sorted(by_file)))


def _way_to_board(folder: Path) -> str:
    """A search that began with a task has tuned and extracted, and left no heads."""
    if any(folder.glob("heads/**/head.json")):
        return f"evaluate {folder}"
    recipe = folder / "recipe.toml"
    return f"run {recipe} --out {folder}" if recipe.exists() else f"fit {store_folder(folder)} --out {folder}"


def finding_origin(name: str, board: Board, manifest: Mapping[str, Any]) -> str:
    """What a finding was made from: the data, the store, or everything that the leaderboard says of its rows."""
    if name.startswith(TUNING_FINDINGS):
        return data_origin(manifest)
    if name in STORE_FINDINGS or name.startswith(TRIAL_FINDINGS):
        return store_origin(manifest)
    return f"board {hash_json([[row.name, row.seed, dict(row.scores)] for row in board.rows])}"


def store_origin(manifest: Mapping[str, Any]) -> str:
    return f"store {manifest.get('id')}"


def data_origin(manifest: Mapping[str, Any]) -> str:
    return f"data {manifest.get('fingerprint', {}).get('data')}"


def read_findings(folder: Path, origin: Callable[[str], str]) -> tuple[Finding, ...]:
    """The findings of a folder that were made from what those of their name are to be made from."""
    again = f"delete it and run: bertvision analyse {folder}"
    findings = []
    for path in sorted((folder / FINDINGS).glob("*.json")):
        document = read_document(path, again)
        if document and document.get("made_from") == origin(document.get("name", "")):
            findings.append(_finding(path, document))
    return tuple(findings)


def _finding(path: Path, document: Mapping[str, Any]) -> Finding:
    try:
        plots = tuple(Plot(**{**plot, "names": tuple(plot["names"])}) for plot in document["plots"])
        strange = [plot.kind for plot in plots if plot.kind not in KINDS]
        if strange:
            raise KeyError(f"plot of kind {strange[0]}")
        told = {key: document[key] for key in ("name", "title", "about", "columns")}
        return Finding(**told, rows=tuple(document["rows"]), plots=plots, examples=tuple(document["examples"]))
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is no finding: {shorten(error)}; delete it and run: bertvision analyse RUN") from error


def _board(path: Path, document: Mapping[str, Any]) -> Board:
    """The leaderboard; one that was written before it told how far it can be trusted lacks that, and no more."""
    try:
        return Board(
            task=document["task"],
            split=document["split"],
            metric=document["metric"],
            rows=tuple(Row(**row) for row in document["rows"]),
            summary=tuple(SeedSummary(**line) for line in document.get("lines", [])),
            best_head=document.get("best_head"),
            comparisons=tuple(PairedTest(**one) for one in document.get("comparisons", [])),
            reliability=tuple(Reliability(**one) for one in document.get("reliability", [])),
            resampling_info=document.get("basis", {}),
        )
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is no leaderboard: {error}; {remake_hint(path.parent)}") from error


def _check_answers(folder: Path, board: Board, task: Task, answers: ByRow) -> None:
    """Every row whose answers are there must have one to every example."""
    examples = task[board.split]
    for row in board.rows:
        given = answers.get((row.name, row.seed))
        missing = [] if given is None else [example.id for example in examples if example.id not in given]
        if missing:
            what = f"has no answer to {len(missing):,} of {len(examples):,} examples, the first {missing[0]!r}"
            raise BadInput(f"{_row_file(folder, ANSWERS, row)} {what}; {remake_hint(folder)}")


def _by_row(folder: Path, part: str, rows: tuple[Row, ...]) -> ByRow:
    """What a part of a run holds of the examples, for every row that it knows."""
    by_row = {}
    for row in rows:
        path = _row_file(folder, part, row)
        document = read_document(path, remake_hint(folder))
        if document is None:
            continue
        if not isinstance(document, dict):
            kind = type(document).__name__
            raise BadInput(f"{path} holds a {kind}, expected a mapping of ids; {remake_hint(folder)}")
        by_row[row.name, row.seed] = document
    return by_row


def _row_file(folder: Path, part: str, row: Row) -> Path:
    return folder / part / f"{row_title(row)}.json"


def _heads(
    documents: Iterable[Mapping[str, Any]], rows: tuple[Row, ...], manifest: Mapping[str, Any]
) -> tuple[FitSummary, ...]:
    """In the leaderboard's order; what was fitted earlier and is not on the leaderboard is left out."""
    by_name = {(facts["spec"], facts["seed"]): facts for facts in documents}
    stored = manifest.get("layers", [])
    heads = []
    for row in rows:
        facts = by_name.get((row.spec, row.seed)) if row.kind == "head" else None
        if facts is None:
            continue
        weights = tuple(facts.get("layer_weights") or ())
        heads.append(
            FitSummary(
                spec=facts["spec"],
                seed=facts["seed"],
                best_epoch=facts["best_epoch"],
                history=tuple(facts["history"]),
                seconds=facts["seconds"],
                states=_states(facts.get("layers", []), facts.get("states") or stored, len(weights)),
                weights=weights,
            )
        )
    return tuple(heads)


def _states(layers: Sequence[int], stored: Sequence[int], count: int) -> tuple[str, ...]:
    """Names of the weighted states; a head counts among the stored states, and may have the pooled CLS in front."""
    numbers = [str(stored[layer]) if layer < len(stored) else str(layer) for layer in layers]
    return tuple((["pooled", *numbers] if count != len(numbers) else numbers)[:count])


def _day(folder: Path, board: Path) -> str:
    """When the last step ended; without a log, when the leaderboard was written."""
    lines = [line for line in RunLog(folder).read() if line.get("step") != COMMAND]
    times = [str(line["time"]) for line in lines if "time" in line]
    return times[-1][:10] if times else date.fromtimestamp(board.stat().st_mtime).isoformat()


def predictor_scores(run: Run, row: Row, name: str) -> PredictorScores:
    """``name`` is what it is called in court, where rows of several runs may meet."""
    evidence = score_answers(run.task, run.board.split, run.answers[row.name, row.seed])
    return PredictorScores(name, row.kind, row.seed, row.scores[run.board.metric], evidence)


def row_answers(run: Run, row: Row, name: str) -> Answers | None:
    """What a row answered, right or wrong; None where answers are numbers, or were not written down."""
    answers = run.answers.get((row.name, row.seed))
    if run.task.kind not in MEANS or not answers:
        return None
    return grade_answers(run.task, run.board.split, name, row.kind, answers, run.places.get((row.name, row.seed)))
