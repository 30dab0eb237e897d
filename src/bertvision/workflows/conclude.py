"""From a run's fitted heads to its conclusions: predictions, ensembles, leaderboard, advice, saved model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from bertvision.core.errors import BadInput
from bertvision.core.records import Board, Predictions, Row
from bertvision.core.run_log import note_command
from bertvision.core.runtime import say, write_json
from bertvision.encoders.loading import RECORD, Encoder, load_encoder
from bertvision.evaluation.advice import advise
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.baseline import baseline
from bertvision.evaluation.ensemble import How, ensemble
from bertvision.evaluation.leaderboard import board_of
from bertvision.evaluation.scoring import Judged, judge_predictions
from bertvision.model import Model
from bertvision.report.page import write_page, write_report
from bertvision.report.search import write_searched
from bertvision.runs.lines import row_title
from bertvision.runs.reader import ANSWERS, PLACES, Run, best_tuning, gather, store_place
from bertvision.store.states import States
from bertvision.store.store import Store
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import FittedHead, load_fitted
from bertvision.training.inputs import encoder_hash
from bertvision.training.live_states import is_live, reopened, states_task
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


def run_place(folder: Path) -> Path:
    """Where a run's store is, or what a live run left in its place."""
    place = store_place(folder)
    best = best_tuning(folder)
    if best is not None:
        raise BadInput(f"{folder} holds a search over tunings, and no run of its own; take the best one's: {best}")
    if not place.exists():
        raise BadInput(f"{folder} is no run: it has no store; make one with bertvision run TASK ... --out {folder}")
    return place


def run_states(folder: Path) -> States:
    """The states that a run's heads were fitted on: its store or, after a live run, its encoder at work."""
    place = run_place(folder)
    return reopened(place, folder / "encoder") if is_live(place) else Store(place)


def run_heads(folder: Path, store: States) -> list[FittedHead]:
    """All heads of a run that were fitted on this store; older ones, of another, are passed over."""
    found = [load_fitted(path.parent) for path in sorted((folder / "heads").glob("*/seed*/head.json"))]
    heads = [head for head, made_from in found if made_from.startswith(f"{store.id}:")]
    if not heads:
        raise BadInput(
            f"{folder} has no heads fitted on its states; fit some: "
            f"bertvision fit {store_place(folder)} --head SPEC --out {folder}"
        )
    return heads


def conclude(folder: Path, fitted: Sequence[FittedHead] | None = None) -> RunResult:
    """Judge everything in a run once, and write down what follows."""
    store = run_states(folder)
    task = states_task(store)
    heads = run_heads(folder, store) if fitted is None else fitted
    judged = judge_all(heads, store, task)
    board = board_of(judged, task)
    document = _write_results(judged, board, task, folder)
    encoder = run_encoder(folder, store)
    if encoder is not None:
        save_row(board.rows[0], encoder, heads, task, folder / "model")
        say(f"model: {folder / 'model'} ({board.rows[0].name}, the best row on inner)")
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


def run_encoder(folder: Path, store: States) -> Encoder | None:
    """The run's encoder, if it is the one whose states the heads were fitted on."""
    place = folder / "encoder"
    if not (place / RECORD).exists():
        say(f"no model saved: there is no encoder in {place}")
        return None
    encoder = load_encoder(str(place))
    if encoder_hash(encoder) == store.manifest["fingerprint"]["encoder"]:
        return encoder
    say(f"no model saved: {place} is not the encoder that {store_place(folder)} was made with; extract again")
    return None


def judge_all(fitted: Sequence[FittedHead], store: States, task: Task) -> list[Judged]:
    """Every head, the encoder where it has a head of its own, and their ensembles."""
    heads = [judge_predictions(task, one) for one in predict(fitted, store["dev"])]
    if store.manifest["own"] is None:
        return heads
    own = predict_own(store["dev"])
    ranked = sorted(heads, key=lambda one: one.rank(task.metric))
    mixed = _ensembles(own, [one.predictions for one in ranked], task)
    return [*heads, *(judge_predictions(task, one) for one in [own, *mixed])]


def _ensembles(own: Predictions, ranked: Sequence[Predictions], task: Task) -> list[Predictions]:
    """The encoder with the best head, each way; and with the best seed of every head, weights fitted."""
    hows: tuple[How, ...] = ("mean", "fitted") if task.kind == "regress" else ("max", "mean", "fitted")
    mixed = [ensemble([own, ranked[0]], how) for how in hows]
    best_seeds = list({one.spec: one for one in reversed(ranked)}.values())
    if len(best_seeds) > 1:
        mixed.append(ensemble([own, *best_seeds], "fitted", name="fitted(encoder + every head)"))
    return mixed


def _write_results(judged: Sequence[Judged], board: Board, task: Task, folder: Path) -> dict[str, Any]:
    """Answers as the official scripts take them (id -> answer), where they stand, and the leaderboard with advice."""
    for one in judged:
        name = f"{row_title(one.predictions)}.json"
        write_json(folder / ANSWERS / name, one.verdict.answers)
        if task.kind == "span":
            write_json(folder / PLACES / name, one.verdict.places)
    name, scores = baseline(task, board.split)
    document = {**asdict(board), "baseline": {"name": name, "scores": scores}, "advice": advise(board)}
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
