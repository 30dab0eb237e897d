"""Finalise a run: predictions, ensembles, leaderboard, advice, saved model and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bertvision.core.files import write_json
from bertvision.core.leaderboard_text import board_document
from bertvision.core.progress import log_line
from bertvision.core.records import FIRST_CONTROL, Board, Row
from bertvision.core.row_title import row_title
from bertvision.core.run_log import log_command
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.analyses.label_errors import comparable_members, label_errors
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.ensemble import How, ensemble, weighted_ensemble
from bertvision.evaluation.leaderboard import advise, baseline, build_leaderboard
from bertvision.evaluation.recommendation import EVERY_HEAD
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.heads.quick import control_heads
from bertvision.model import Model
from bertvision.report.page import write_page
from bertvision.report.search import write_search_page
from bertvision.runs.folder import (
    ANSWER_SPANS,
    ANSWERS,
    best_tuning,
    run_encoder,
    run_heads,
    run_states,
    states_folder,
)
from bertvision.runs.reader import FINDINGS, Run, gather, run_of, with_findings
from bertvision.store.states import States
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import FittedHead, head_document
from bertvision.training.live_states import task_of_states
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.file_analyses import file_findings, save_findings


@dataclass(frozen=True)
class RunResult:
    """The result of a run: its leaderboard, as a record and as the document on disk."""

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


def conclude(
    folder: Path,
    fitted: Sequence[FittedHead] | None = None,
    states: States | None = None,
    task: Task | None = None,
    control: str | None = None,
    prefer: str = "best",
    encoder: Encoder | None = None,
) -> RunResult:
    """Score everything in a run, and write leaderboard, best model, findings and report.

    Arguments that are None are read from the folder. The other heads are tested against ``control``.
    """
    states = run_states(folder) if states is None else states
    task = task_of_states(states) if task is None else task
    heads = run_heads(folder, states) if fitted is None else fitted
    scored = score_all(heads, states, task)
    board = build_leaderboard(scored, task, control or _controls(scored, task)[0], prefer)
    document = _write_results(scored, board, task, folder)
    encoder = run_encoder(folder, states) if encoder is None else encoder
    if encoder is not None:
        recommended = next(row for row in board.rows if row_title(row) == board.recommended)
        save_row_model(recommended, encoder, heads, task, folder / "model")
        log_line(f"model: {folder / 'model'} ({board.recommended}, the recommended row)")
    log_command(folder)
    answers, places = {}, {}
    for row in scored:
        key = row.predictions.name, row.predictions.seed
        answers[key] = row.result.answers
        if task.kind == "span":
            places[key] = row.result.places
    documents = [head_document(head) for head in heads]
    run = run_of(folder, task, board, document, states.manifest, documents, answers, places)
    doubts = _label_errors(scored, task)
    if doubts is not None and doubts.rows:
        log_line(f"analyse: {doubts.title} ({folder / FINDINGS / f'{doubts.name}.csv'})")
    _publish(run, [] if doubts is None else [doubts])
    return RunResult(folder, board, document)


def _label_errors(scored: Sequence[ScoredPredictions], task: Task) -> Finding | None:
    """Likely label errors, from the predictions on the validation split, which are in memory."""
    heads = [row.predictions.inner for row in scored if row.predictions.kind == "head"]
    return label_errors(task, comparable_members([member for member in heads if member is not None]))


def _publish(run: Run, made: Sequence[Finding] = ()) -> Path:
    """Write new findings, those from the run's files, and the report; other findings stay as they are."""
    findings = [*made, *_file_findings(run)]
    save_findings(run.folder, run, findings)
    return write_page([with_findings(run, findings)], run.folder / "report.html")


def _file_findings(run: Run) -> list[Finding]:
    # An existing cost analysis stays: it may have measured inference times.
    has_cost = any(finding.name == "cost" for finding in run.findings)
    return [finding for finding in file_findings(run) if not (finding.name == "cost" and has_cost)]


def update_report(folder: Path) -> Path:
    """Write ``RUN/report.html`` of a finished run, or of a search over tunings."""
    best = best_tuning(folder)
    if best is not None:
        return write_search_page(folder, best)
    task = read_task(states_folder(folder) / "task")
    log_command(folder)
    return _publish(gather(folder, task))


def write_joint_report(folders: Sequence[Path], path: Path) -> Path:
    """Write one report on several finished runs; the runs themselves are only read."""
    runs = [gather(folder, read_task(states_folder(folder) / "task")) for folder in folders]
    return write_page([with_findings(run, _file_findings(run)) for run in runs], path)


def score_all(fitted: Sequence[FittedHead], store: States, task: Task) -> list[ScoredPredictions]:
    """Score every head, the encoder if it has its own head, and their ensembles."""
    scored = []
    for head, predictions in zip(fitted, predict(fitted, store["dev"]), strict=True):
        scored.append(score_predictions(task, predictions, head.inner_scores))
    if store.manifest["own"] is None:
        return [*scored, *_ensemble_of_heads(scored, task)]
    own = predict_own(store["dev"])
    ranked = [row.predictions for row in sorted(scored, key=lambda row: row.rank(task.metric))]
    # The encoder with the best head in every way; and with the best seed of every head, with fitted weights.
    hows: tuple[How, ...] = ("mean", "fitted") if task.kind == "regress" else ("max", "mean", "fitted")
    ensembles = [ensemble([own, ranked[0]], how) for how in hows]
    best_seeds = list({predictions.spec: predictions for predictions in reversed(ranked)}.values())
    if len(best_seeds) > 1:
        ensembles.append(ensemble([own, *best_seeds], "fitted", name="fitted(encoder + every head)"))
    return [*scored, *(score_predictions(task, predictions) for predictions in [own, *ensembles])]


def _ensemble_of_heads(scored: Sequence[ScoredPredictions], task: Task) -> list[ScoredPredictions]:
    """The ensemble of all heads, if there are several and all were validated on the same split."""
    losing = {*_controls(scored, task)[1:]}
    members = [row.predictions for row in scored if row.predictions.name not in losing]
    splits = {member.inner.split for member in members if member.inner is not None}
    if len({member.spec for member in members}) < 2 or len(splits) != 1:
        return []
    return [score_predictions(task, weighted_ensemble(members, EVERY_HEAD))]


def _controls(scored: Sequence[ScoredPredictions], task: Task) -> list[str]:
    """The linear heads on the last layer, the best on the validation split first; only the first is the control."""
    rows = [row for row in scored if row.predictions.name in control_heads(task.kind, apart=True)]
    rows.sort(key=lambda row: row.rank(task.metric))
    return list(dict.fromkeys(row.predictions.name for row in rows)) or [FIRST_CONTROL]


def _write_results(scored: Sequence[ScoredPredictions], board: Board, task: Task, folder: Path) -> dict[str, Any]:
    """Write answers in the format of the official scripts (id -> answer), their offsets, and the leaderboard."""
    for row in scored:
        name = f"{row_title(row.predictions)}.json"
        write_json(folder / ANSWERS / name, row.result.answers)
        if task.kind == "span":
            write_json(folder / ANSWER_SPANS / name, row.result.places)
    name, scores = baseline(task, board.split)
    advice = advise(board, (name, scores[board.metric]))
    document = {**board_document(board), "baseline": {"name": name, "scores": scores}, "advice": advice}
    write_json(folder / "leaderboard.json", document)
    return document


def save_row_model(row: Row, encoder: Encoder, fitted: Sequence[FittedHead], task: Task, path: Path) -> None:
    """Save a row of the leaderboard as a model."""
    by_title: dict[str, FittedHead | str] = {f"{head.spec}@{head.seed}": head for head in fitted}
    by_title["encoder"] = "encoder"
    single = "encoder" if row.kind == "encoder" else f"{row.name}@{row.seed}"
    members = [by_title[title] for title in row.members or (single,)]
    combine = cast(How, row.spec) if row.kind == "ensemble" else None
    temperatures = {part: calibration["temperature"] for part, calibration in row.calibration.items()}
    device = str(encoder.model.device)  # live states go on using the encoder where it is
    model = Model(encoder, members, task, combine, row.weights or None, row.threshold, temperatures, device)
    model.save_pretrained(path)
