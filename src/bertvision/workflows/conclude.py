"""From a run's fitted heads to its conclusions: predictions, ensembles, leaderboard, advice, saved model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from bertvision.core.files import write_json
from bertvision.core.progress import log_line
from bertvision.core.records import Board, Predictions, Row, board_document
from bertvision.core.run_log import note_command
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.baseline import baseline
from bertvision.evaluation.ensemble import How, ensemble
from bertvision.evaluation.leaderboard import advise, board_of
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.model import Model
from bertvision.report.page import write_page, write_report
from bertvision.report.search import write_searched
from bertvision.runs.folder import (
    ANSWERS,
    PLACES,
    best_tuning,
    run_encoder,
    run_heads,
    run_place,
    run_states,
)
from bertvision.runs.reader import Run, gather, row_title
from bertvision.store.states import States
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import states_task
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.file_analyses import file_findings, keep


@dataclass(frozen=True)
class RunResult:
    """What a run came to: its leaderboard, as a record and as the document on disk."""

    folder: Path
    board: Board
    document: dict[str, Any]

    @property
    def advice(self) -> str:
        return str(self.document["advice"])

    def __str__(self) -> str:
        base, metric = self.document["baseline"], self.board.metric
        floor = f"baseline ({base['name']}): {metric} {base['scores'][metric]:.2f}"
        return f"{self.board}\n{floor}\n{self.advice}"


def conclude(folder: Path, fitted: Sequence[FittedHead] | None = None) -> RunResult:
    """Judge everything in a run once, and write down what follows."""
    store = run_states(folder)
    task = states_task(store)
    heads = run_heads(folder, store) if fitted is None else fitted
    judged = score_all(heads, store, task)
    board = board_of(judged, task)
    document = _write_results(judged, board, task, folder)
    encoder = run_encoder(folder, store)
    if encoder is not None:
        save_row(board.rows[0], encoder, heads, task, folder / "model")
        log_line(f"model: {folder / 'model'} ({board.rows[0].name}, the best row on inner)")
    note_findings(folder, task)
    note_command(folder)
    write_report(folder, task)
    return RunResult(folder, board, document)


def note_findings(folder: Path, task: Task) -> None:
    """What the run's own files tell, written down anew; what needed more than that is left as it is."""
    run = gather(folder, task)
    keep(folder, run, _fresh(run))


def _fresh(run: Run) -> list[Finding]:
    """A cost that is there stays: with measured inference times it says more than the files do."""
    there = any(one.name == "cost" for one in run.findings)
    return [one for one in file_findings(run) if not (one.name == "cost" and there)]


def renew_report(folder: Path) -> Path:
    """``RUN/report.html`` of a finished run, with what its files tell; of a search over tunings, how that went."""
    best = best_tuning(folder)
    if best is not None:
        return write_searched(folder, best)
    task = read_task(run_place(folder) / "task")
    note_findings(folder, task)
    note_command(folder)
    return write_report(folder, task)


def renew_reports(folders: Sequence[Path], path: Path) -> Path:
    """Finished runs as one page, each with what its files tell now; the runs themselves are only read."""
    return write_page([_renewed(folder) for folder in folders], path)


def _renewed(folder: Path) -> Run:
    run = gather(folder, read_task(run_place(folder) / "task"))
    findings = {one.name: one for one in (*run.findings, *_fresh(run))}
    return replace(run, findings=tuple(findings.values()))


def score_all(fitted: Sequence[FittedHead], store: States, task: Task) -> list[ScoredPredictions]:
    """Every head, the encoder where it has a head of its own, and their ensembles."""
    heads = [score_predictions(task, one) for one in predict(fitted, store["dev"])]
    if store.manifest["own"] is None:
        return heads
    own = predict_own(store["dev"])
    ranked = sorted(heads, key=lambda one: one.rank(task.metric))
    mixed = _ensembles(own, [one.predictions for one in ranked], task)
    return [*heads, *(score_predictions(task, one) for one in [own, *mixed])]


def _ensembles(own: Predictions, ranked: Sequence[Predictions], task: Task) -> list[Predictions]:
    """The encoder with the best head, each way; and with the best seed of every head, weights fitted."""
    hows: tuple[How, ...] = ("mean", "fitted") if task.kind == "regress" else ("max", "mean", "fitted")
    mixed = [ensemble([own, ranked[0]], how) for how in hows]
    best_seeds = list({one.spec: one for one in reversed(ranked)}.values())
    if len(best_seeds) > 1:
        mixed.append(ensemble([own, *best_seeds], "fitted", name="fitted(encoder + every head)"))
    return mixed


def _write_results(judged: Sequence[ScoredPredictions], board: Board, task: Task, folder: Path) -> dict[str, Any]:
    """Answers as the official scripts take them (id -> answer), where they stand, and the leaderboard with advice."""
    for one in judged:
        name = f"{row_title(one.predictions)}.json"
        write_json(folder / ANSWERS / name, one.result.answers)
        if task.kind == "span":
            write_json(folder / PLACES / name, one.result.places)
    name, scores = baseline(task, board.split)
    document = {**board_document(board), "baseline": {"name": name, "scores": scores}, "advice": advise(board)}
    write_json(folder / "leaderboard.json", document)
    return document


def save_row(row: Row, encoder: Encoder, fitted: Sequence[FittedHead], task: Task, place: Path) -> None:
    """A row of a board as a model."""
    named: dict[str, FittedHead | str] = {f"{head.spec}@{head.seed}": head for head in fitted}
    named["encoder"] = "encoder"
    alone = "encoder" if row.kind == "encoder" else f"{row.name}@{row.seed}"
    members = [named[name] for name in row.members or (alone,)]
    combine = cast(How, row.spec) if row.kind == "ensemble" else None
    temperatures = {what: told["temperature"] for what, told in row.calibration.items()}
    model = Model(encoder, members, task, combine, row.weights or None, row.threshold, temperatures)
    model.save_pretrained(place)
