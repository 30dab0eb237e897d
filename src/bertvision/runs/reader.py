"""Read a run folder into one record, from which the report is made.

Only the leaderboard is required. A run made by ``bertvision fit STORE --out RUN`` has no recipe and no encoder, and
its store is outside; missing parts stay empty.
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
from bertvision.core.records import FIRST_CONTROL, Board, PairedTest, Reliability, Row, SeedSummary
from bertvision.core.row_title import row_title
from bertvision.core.run_log import COMMAND, RunLog
from bertvision.evaluation.analyses.answers import MEANS, Answers, grade_answers
from bertvision.evaluation.analyses.result import KINDS, Finding, Plot
from bertvision.evaluation.comparison import PredictorScores
from bertvision.evaluation.example_scores import score_answers
from bertvision.runs.folder import ANSWER_SPANS, ANSWERS, read_document, remake_hint, store_folder
from bertvision.tasks.task import Task

FINDINGS = "analysis"
"""The folder of a run's findings."""

STORE_FINDINGS = ("layers", "depth", "ablation", "learning-curve")
"""Names of findings that depend on the store only."""

TRIAL_FINDINGS = ("search-history", "search-importance")
"""Name prefixes of findings on a search over heads, which depend on the store only."""

TUNING_FINDINGS = "search-tunings"
"""Name prefix of findings on a search over tunings, which depend on the data only; all other findings depend on the
leaderboard."""

ByRow = Mapping[tuple[str, int | None], Mapping[str, Any]]
"""Documents by name and seed of a row."""


@dataclass(frozen=True)
class Line:
    """The leaderboard rows of one predictor: a head with all its seeds, the encoder, or an ensemble."""

    name: str
    kind: str  # head, control, encoder or ensemble
    rows: tuple[Row, ...]  # best on inner first
    interval: tuple[float, float] | None = None  # confidence interval of the metric's mean over seeds

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(row.seed for row in self.rows if row.seed is not None))

    def values(self, score: str, where: str = "scores") -> list[float]:
        """A score per seed; NaN where it was not measured."""
        by_row: Sequence[Mapping[str, float]] = [getattr(row, where) for row in self.rows]
        return [float(scores.get(score, math.nan)) for scores in by_row]

    def mean(self, score: str, where: str = "scores") -> float:
        values = self.values(score, where)
        return sum(values) / len(values)

    @property
    def seconds(self) -> float:
        """Mean training time of one seed."""
        return sum(row.seconds for row in self.rows) / len(self.rows)


def group_rows(board: Board) -> list[Line]:
    """Group rows by predictor; best mean on inner first, predictors without inner scores last."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in board.rows:
        groups.setdefault((row.kind, row.spec if row.kind == "head" else row.name), []).append(row)
    intervals = {summary.name: summary.interval for summary in board.summary}
    predictors = []
    for (kind, name), rows in groups.items():
        shown_kind = "control" if (kind, name) == ("head", board.control) else kind
        predictors.append(Line(name, shown_kind, tuple(rows), intervals.get(name)))

    def order(predictor: Line) -> float:
        score = predictor.mean(board.metric, "inner")
        return math.inf if math.isnan(score) else -score

    return sorted(predictors, key=order)


def best_head(lines: Sequence[Line]) -> Line | None:
    """The best head on inner."""
    return next((line for line in lines if line.kind in ("head", "control")), None)


@dataclass(frozen=True)
class FitSummary:
    """How a head was fitted with one seed."""

    spec: str
    seed: int
    best_epoch: int
    history: tuple[Mapping[str, float], ...]
    seconds: float
    states: tuple[str, ...]  # the state of each weight: its number, or "pooled"
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """Everything that the report shows of a run."""

    folder: Path  # as given
    task: Task
    board: Board
    baseline: tuple[str, Mapping[str, float]] | None
    advice: str
    heads: tuple[FitSummary, ...]
    answers: ByRow  # (name, seed) -> example id -> answer
    manifest: Mapping[str, Any]
    encoder: Mapping[str, Any]  # name, record
    adapted: bool  # whether the run's encoder has adapters and a native head, so that they can be ablated
    sizes: Mapping[str, int]  # bytes written by each step
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
        raise BadInput(f"{path} is missing; make it with: bertvision {_leaderboard_command(folder)}")
    board = read_board(path, document)
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
    """The record of a run, from its results and the other files of its folder.

    ``document`` is ``leaderboard.json``, ``heads`` are the ``head.json`` of the fitted heads.
    """
    baseline = document.get("baseline")
    encoder = read_document(folder / "encoder" / "bertvision.json", "tune again") or {}
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
        # The encoder that made the states; the one in the run may have been tuned again since.
        encoder=manifest.get("encoder") or encoder,
        adapted=bool(encoder.get("own")) and str(encoder.get("small", {}).get("put_in")).startswith("adapters"),
        sizes={"tune": folder_bytes(folder / "encoder"), "fit": folder_bytes(folder / "heads")},
        recipe=recipe.read_text(encoding="utf-8") if recipe.exists() else "",
        day=_day(folder, folder / "leaderboard.json"),
        findings=read_findings(folder, lambda name: finding_origin(name, board, manifest)),
        log=tuple(RunLog(folder).read()),
    )


def with_findings(run: Run, made: Iterable[Finding]) -> Run:
    """The run with new findings added, in the order in which they would be read from the folder."""
    by_file = {f"{finding.name}.json": finding for finding in (*run.findings, *made)}
    return replace(run, findings=tuple(by_file[name] for name in sorted(by_file)))


def _leaderboard_command(folder: Path) -> str:
    """The command that makes a missing leaderboard; after a search there may be a store but no heads."""
    if any(folder.glob("heads/**/head.json")):
        return f"evaluate {folder}"
    recipe = folder / "recipe.toml"
    return f"run {recipe} --out {folder}" if recipe.exists() else f"fit {store_folder(folder)} --out {folder}"


def finding_origin(name: str, board: Board, manifest: Mapping[str, Any]) -> str:
    """What a finding depends on, as a string: the data, the store, or the rows of the leaderboard."""
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
    """The findings of a folder that are up to date: made from ``origin(name)``."""
    advice = f"delete it and run: bertvision analyse {folder}"
    findings = []
    for path in sorted((folder / FINDINGS).glob("*.json")):
        document = read_document(path, advice)
        if document and document.get("made_from") == origin(document.get("name", "")):
            findings.append(_finding(path, document))
    return tuple(findings)


def _finding(path: Path, document: Mapping[str, Any]) -> Finding:
    try:
        plots = tuple(Plot(**{**plot, "names": tuple(plot["names"])}) for plot in document["plots"])
        unknown_name = [plot.kind for plot in plots if plot.kind not in KINDS]
        if unknown_name:
            raise KeyError(f"plot of kind {unknown_name[0]}")
        texts = {key: document[key] for key in ("name", "title", "about", "columns")}
        return Finding(**texts, rows=tuple(document["rows"]), plots=plots, examples=tuple(document["examples"]))
    except (KeyError, TypeError) as error:
        advice = "delete it and run: bertvision analyse RUN"
        raise BadInput(f"{path} is not a finding: {shorten(error)}; {advice}") from error


def read_board(path: Path, document: Mapping[str, Any]) -> Board:
    """The leaderboard; fields that older files do not have stay empty."""
    try:
        return Board(
            task=document["task"],
            split=document["split"],
            metric=document["metric"],
            rows=tuple(Row(**row) for row in document["rows"]),
            summary=tuple(SeedSummary(**summary) for summary in document.get("lines", [])),
            best_head=document.get("best_head"),
            comparisons=tuple(PairedTest(**test) for test in document.get("comparisons", [])),
            reliability=tuple(Reliability(**entry) for entry in document.get("reliability", [])),
            resampling_info=document.get("basis", {}),
            control=document.get("control", FIRST_CONTROL),
            recommended=document.get("recommended"),
            selection=document.get("selection", {}),
        )
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a leaderboard: {error}; {remake_hint(path.parent)}") from error


def _check_answers(folder: Path, board: Board, task: Task, answers: ByRow) -> None:
    """Rows with answers must have one for every example."""
    examples = task[board.split]
    for row in board.rows:
        by_id = answers.get((row.name, row.seed))
        missing = [] if by_id is None else [example.id for example in examples if example.id not in by_id]
        if missing:
            problem = f"has no answer to {len(missing):,} of {len(examples):,} examples, the first {missing[0]!r}"
            raise BadInput(f"{_row_file(folder, ANSWERS, row)} {problem}; {remake_hint(folder)}")


def _by_row(folder: Path, part: str, rows: tuple[Row, ...]) -> ByRow:
    """The documents of a folder, which map example ids to answers or spans, by row."""
    by_row = {}
    for row in rows:
        path = _row_file(folder, part, row)
        document = read_document(path, remake_hint(folder))
        if document is None:
            continue
        if not isinstance(document, dict):
            kind = type(document).__name__
            raise BadInput(f"{path} holds a {kind}, expected a mapping from ids; {remake_hint(folder)}")
        by_row[row.name, row.seed] = document
    return by_row


def _row_file(folder: Path, part: str, row: Row) -> Path:
    return folder / part / f"{row_title(row)}.json"


def _heads(
    documents: Iterable[Mapping[str, Any]], rows: tuple[Row, ...], manifest: Mapping[str, Any]
) -> tuple[FitSummary, ...]:
    """Heads in the order of the leaderboard; heads that are not on it are left out."""
    by_name = {(document["spec"], document["seed"]): document for document in documents}
    stored = manifest.get("layers", [])
    heads = []
    for row in rows:
        document = by_name.get((row.spec, row.seed)) if row.kind == "head" else None
        if document is None:
            continue
        weights = tuple(document.get("layer_weights") or ())
        heads.append(
            FitSummary(
                spec=document["spec"],
                seed=document["seed"],
                best_epoch=document["best_epoch"],
                history=tuple(document["history"]),
                seconds=document["seconds"],
                states=_state_names(document.get("layers", []), document.get("states") or stored, len(weights)),
                weights=weights,
            )
        )
    return tuple(heads)


def _state_names(layers: Sequence[int], stored: Sequence[int], count: int) -> tuple[str, ...]:
    """Names of the weighted states; a head's layers are indices into the stored states, after the pooled CLS if any."""
    numbers = [str(stored[layer]) if layer < len(stored) else str(layer) for layer in layers]
    return tuple((["pooled", *numbers] if count != len(numbers) else numbers)[:count])


def _day(folder: Path, board: Path) -> str:
    """The date of the last step in the log, else of the leaderboard file."""
    entries = [entry for entry in RunLog(folder).read() if entry.get("step") != COMMAND]
    times = [str(entry["time"]) for entry in entries if "time" in entry]
    return times[-1][:10] if times else date.fromtimestamp(board.stat().st_mtime).isoformat()


def predictor_scores(run: Run, row: Row, name: str) -> PredictorScores:
    """The example scores of a row; ``name`` identifies it in comparisons across runs."""
    scores = score_answers(run.task, run.board.split, run.answers[row.name, row.seed])
    return PredictorScores(name, row.kind, row.seed, row.scores[run.board.metric], scores)


def row_answers(run: Run, row: Row, name: str) -> Answers | None:
    """The graded answers of a row; None for regression, or if they were not saved."""
    answers = run.answers.get((row.name, row.seed))
    if run.task.kind not in MEANS or not answers:
        return None
    return grade_answers(run.task, run.board.split, name, row.kind, answers, run.places.get((row.name, row.seed)))
