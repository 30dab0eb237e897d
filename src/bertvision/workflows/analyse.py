"""Analyses of a run by name: from its files, from its states, or from heads fitted for them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import Predictions
from bertvision.core.registry import unknown_name
from bertvision.core.row_title import row_title
from bertvision.evaluation.analyses.catalogue import ANALYSES, FILES, STATES, supports_second_best
from bertvision.evaluation.analyses.label_errors import comparable_members, label_errors
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.second_best import second_best
from bertvision.evaluation.scoring import example_outputs, score_predictions
from bertvision.report.analyses import missing_analyses
from bertvision.runs.folder import best_tuning, run_heads, states_folder
from bertvision.runs.reader import group_rows
from bertvision.store.states import States
from bertvision.tasks.span_decoding import decode, n_best
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import is_live
from bertvision.training.predict import predict, predict_own, predict_validation
from bertvision.workflows.file_analyses import (
    FROM_FILES,
    cost_finding,
    file_findings,
    missing_answers_text,
    pair_agreement,
    save_findings,
)
from bertvision.workflows.refit_analyses import (
    NO_ADAPTERS,
    AnalysisRequest,
    document_and_finding,
    layers,
    learning_curve_finding,
    load_matching_run,
)

NUM_CANDIDATES = 20
"""Candidate spans per question among which the second best is chosen."""


def run_analyses(request: AnalysisRequest, names: Sequence[str] | None = None) -> tuple[list[Finding], dict[str, str]]:
    """Make and save findings; the second result says why requested analyses do not apply, by name.

    Without names: all analyses that neither fit heads nor run the encoder.
    """
    names = selected_analyses(names)
    for name in names:
        if name not in ANALYSES:
            raise BadInput(unknown_name("analysis", name, [*ANALYSES, "all"]))
    _check_other_runs(request, names)
    unanswered = [row for row in request.run.board.rows if (row.name, row.seed) not in request.run.answers]
    if unanswered:
        log_line(f"analyse: {missing_answers_text(request.run, unanswered)}")
    findings, missing = [], {}
    for name in dict.fromkeys(names):
        if name == "agreement" and request.pair is not None:
            finding: Finding | None = _pair_agreement(request, request.pair)
        elif ANALYSES[name][0] == FILES:
            finding = next(iter(file_findings(request.run, [name])), None)
        else:
            finding = MAKERS[name](request)
        if finding is not None:
            save_findings(request.folder, request.run, [finding])
            findings.append(finding)
            continue
        missing[name] = f"does not apply to {request.run.task.name}: {_why_not(request, name)}"
    return findings, missing


def _why_not(request: AnalysisRequest, name: str) -> str:
    """Why an analysis does not apply to a run."""
    if name == "ablation":
        return NO_ADAPTERS.format(request.folder / "encoder")
    if name == "second-best" and request.run.task.kind == "classify":
        return "of two labels the second best is always the other one"
    if name == "labels":
        return "answers are spans; only labels and values are judged"
    return ANALYSES[name][1]


def _check_other_runs(request: AnalysisRequest, names: Sequence[str]) -> None:
    """Other runs are those of a learning curve, or the one run with the second row of a pair."""
    curve, count = "learning-curve" in names, len(request.beside)
    if not count or (curve and request.pair is None):
        return
    if request.pair is None:
        raise BadInput(
            "--beside goes with --pair A B (row A of RUN, row B of the other run) or with --what learning-curve; "
            "add one of them, or leave --beside out"
        )
    if curve:
        raise BadInput(
            "--beside names different runs for --pair and for learning-curve; ask for one at a time with --what"
        )
    if count > 1:
        raise BadInput(f"--pair A B takes row B from one run, --beside names {count}; name one")
    if request.beside[0].resolve() == request.folder.resolve():
        raise BadInput(f"--beside {request.beside[0]} is RUN itself; leave --beside out to compare two of its rows")


def selected_analyses(names: Iterable[str] | None) -> list[str]:
    """Names of the analyses to make: by default those from files and states, for "all" every one."""
    if not names:
        return [name for name, (needs, _) in ANALYSES.items() if needs in (FILES, STATES)]
    names = list(names)
    return list(ANALYSES) if "all" in names else names


def _pair_agreement(request: AnalysisRequest, pair: Sequence[str]) -> Finding:
    if not request.beside:
        return pair_agreement(request.run, pair)
    return pair_agreement(request.run, pair, request.beside[0], load_matching_run(request.beside[0], request.run.task))


def _second_best(request: AnalysisRequest) -> Finding | None:
    """Second-best answers of the encoder and of every head's best seed."""
    task = request.run.task
    if not supports_second_best(task):
        return None
    best_seeds = {row_title(line.rows[0]) for line in group_rows(request.run.board)}
    predictions = predict(_heads_by_title(request, best_seeds), request.states["dev"])
    if request.states.manifest["own"] is not None:
        predictions.append(predict_own(request.states["dev"]))
    ranked = {}
    for row in predictions:
        ranked[row_title(row)] = ranked_answers(task, row, score_predictions(task, row).result.threshold)
    return second_best(task, "dev", ranked)


def _heads_by_title(request: AnalysisRequest, titles: Container[str]) -> list[FittedHead]:
    """The run's heads with these titles (spec@seed)."""
    return [head for head in run_heads(request.folder, request.states) if f"{head.spec}@{head.seed}" in titles]


def ranked_answers(task: Task, predictions: Predictions, threshold: float | None) -> list[list[str]]:
    """Answers to every example of the split, most likely first; "no answer" is one of them if the task has it."""
    examples = task[predictions.split]
    if task.kind == "classify":
        # (examples, labels)
        values = example_outputs(predictions.logits, predictions.table, len(examples), task.merge_label)
        return [[task.labels[label] for label in row] for row in (-values).argsort(1, kind="stable").tolist()]
    decoded = decode(predictions.logits, predictions.table, len(examples))
    limit = threshold if task.no_answer else None
    return [
        [str(entry["answer"]) for entry in n_best(spans, example.pair or "", limit, NUM_CANDIDATES)]
        for spans, example in zip(decoded, examples, strict=True)
    ]


def _labels(request: AnalysisRequest) -> Finding | None:
    """Likely label errors, from the predictions that the run's heads were selected by."""
    if request.run.task.kind == "span":
        return None
    heads = run_heads(request.folder, request.states)
    members = [predict_validation(head, request.states) for head in heads]
    return label_errors(request.run.task, comparable_members(members))


def _cost(request: AnalysisRequest) -> Finding | None:
    """The cost analysis, with the measured inference time of each head on dev."""
    lines = group_rows(request.run.board)
    rows = [line.rows[0] for line in lines]
    heads = _heads_by_title(request, {name for row in rows for name in (row_title(row), *row.members)})
    return cost_finding(request.run, lines, head_seconds(heads, request.states))


def head_seconds(heads: Sequence[FittedHead], states: States) -> dict[str, float]:
    """Seconds of every head (spec@seed) on the states of dev, without reading them."""
    import torch

    seconds = dict.fromkeys((f"{head.spec}@{head.seed}" for head in heads), 0.0)
    with torch.inference_mode():
        for batch in states["dev"].batches(32):
            for head in heads:
                timer = Timer()
                head.head.forward_batch(batch)
                seconds[f"{head.spec}@{head.seed}"] += timer.seconds
    return seconds


MAKERS: Mapping[str, Callable[[AnalysisRequest], Finding | None]] = {
    "second-best": _second_best,
    "labels": _labels,
    "cost": _cost,
    "layers": layers,
    "learning-curve": learning_curve_finding,
    "depth": lambda request: document_and_finding(request, "depth")[1],
    "ablation": lambda request: document_and_finding(request, "ablation")[1],
}


assert set(ANALYSES) == set(FROM_FILES) | set(MAKERS)


def add_missing_analyses(folder: Path) -> None:
    """Make the analyses from states that this leaderboard does not have yet.

    Failures are logged, not raised: stored states may be missing or damaged, and the report lists what is missing.
    """
    if best_tuning(folder) is not None:  # a search over tunings has no leaderboard of its own
        return
    request = AnalysisRequest(folder)
    names = [analysis.name for analysis in missing_analyses(request.run) if analysis.needs == STATES]
    if not names:
        return
    try:
        if not is_live(states_folder(folder)):  # a live run has no stored states
            log_line(f"report: making {', '.join(names)} from the stored states")
            run_analyses(request, names)
    except (BadInput, OSError) as error:
        log_line(f"report: cannot make all of {', '.join(names)}: {error}")
