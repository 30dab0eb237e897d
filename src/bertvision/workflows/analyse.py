"""Every analysis of a run by name: from its files, from its states, or by fitting heads anew."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import Predictions
from bertvision.core.registry import unknown_name
from bertvision.evaluation.analyses.catalogue import ANALYSES, FILES, STATES, supports_second_best
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.second_best import second_best
from bertvision.evaluation.scoring import example_outputs, score_predictions
from bertvision.report.analyses import missing_analyses
from bertvision.runs.folder import best_tuning, run_heads, states_folder
from bertvision.runs.reader import group_rows, row_title
from bertvision.store.states import States
from bertvision.tasks.span_decoding import decode, n_best
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import is_live
from bertvision.training.predict import predict, predict_own
from bertvision.workflows.file_analyses import (
    FROM_FILES,
    cost_finding,
    file_findings,
    keep,
    missing_answers_text,
    pair_agreement,
)
from bertvision.workflows.refit_analyses import (
    DOCUMENTED,
    NO_ADAPTERS,
    AnalysisRequest,
    document_and_finding,
    layers,
    learning_curve_finding,
    load_matching_run,
)

KEPT = 20
"""Candidates of spans among which the second is looked for."""


def study(work: AnalysisRequest, names: Sequence[str] | None = None) -> tuple[list[Finding], dict[str, str]]:
    """Make and keep findings; also why those that were asked for, but do not apply, are missing.

    Without names: all that neither fit heads nor run the encoder.
    """
    wanted = selected_analyses(names)
    for name in wanted:
        if name not in ANALYSES:
            raise BadInput(unknown_name("analysis", name, [*ANALYSES, "all"]))
    _check_beside(work, wanted)
    mute = [row for row in work.run.board.rows if (row.name, row.seed) not in work.run.answers]
    if mute:
        log_line(f"analyse: {missing_answers_text(work.run, mute)}")
    made, missing = [], {}
    for name in dict.fromkeys(wanted):
        if name == "agreement" and work.pair is not None:
            finding: Finding | None = _pair_agreement(work, work.pair)
        elif ANALYSES[name][0] == FILES:
            finding = next(iter(file_findings(work.run, [name])), None)
        else:
            finding = MAKERS[name](work)
        if finding is None:
            missing[name] = _reason(work, name)
        else:
            keep(work.folder, work.run, [finding])
            made.append(finding)
    return made, missing


def _check_beside(work: AnalysisRequest, wanted: Sequence[str]) -> None:
    """Other runs are limited ones for a learning curve, or the one that the second row of a pair is of."""
    curve, count = "learning-curve" in wanted, len(work.beside)
    if not count or (curve and work.pair is None):
        return
    if work.pair is None:
        raise BadInput(
            "--beside goes with --pair A B, row A of RUN and row B of the run beside, or with --what learning-curve; "
            "add one of them, or leave it out"
        )
    if curve:
        raise BadInput(
            "--beside means other runs for --pair than for learning-curve; ask for one at a time with --what"
        )
    if count > 1:
        raise BadInput(f"--pair A B takes row B from one run, --beside names {count}; name one")
    if work.beside[0].resolve() == work.folder.resolve():
        raise BadInput(f"--beside {work.beside[0]} is RUN itself; leave it out to compare two of its rows")


def selected_analyses(names: Iterable[str] | None) -> list[str]:
    """What is to be made where these were asked for."""
    wanted = list(names or [name for name, (needs, _) in ANALYSES.items() if needs in (FILES, STATES)])
    return list(ANALYSES) if "all" in wanted else wanted


def _reason(work: AnalysisRequest, name: str) -> str:
    """Why there is nothing to find, and what to do where something can be done."""
    why = ANALYSES[name][1]
    if name == "ablation":
        why = NO_ADAPTERS.format(work.folder / "encoder")
    elif name == "second-best" and work.run.task.kind == "classify":
        why = "of two labels the second is always the other one"
    return f"does not apply to {work.run.task.name}: {why}"


def _pair_agreement(work: AnalysisRequest, pair: Sequence[str]) -> Finding:
    if not work.beside:
        return pair_agreement(work.run, pair)
    return pair_agreement(work.run, pair, work.beside[0], load_matching_run(work.beside[0], work.run.task))


def _second_best(work: AnalysisRequest) -> Finding | None:
    """The encoder and every head's best seed, their answers ranked anew."""
    task = work.run.task
    if not supports_second_best(task):
        return None
    wanted = {row_title(line.rows[0]) for line in group_rows(work.run.board)}
    predictions = predict(_heads_of(work, wanted), work.states["dev"])
    if work.states.manifest["own"] is not None:
        predictions.append(predict_own(work.states["dev"]))
    ranked = {}
    for one in predictions:
        ranked[row_title(one)] = ranked_answers(task, one, score_predictions(task, one).result.threshold)
    return second_best(task, "dev", ranked)


def _heads_of(work: AnalysisRequest, titles: Container[str]) -> list[FittedHead]:
    """The run's heads of these names (spec@seed)."""
    return [head for head in run_heads(work.folder, work.states) if f"{head.spec}@{head.seed}" in titles]


def ranked_answers(task: Task, predictions: Predictions, threshold: float | None) -> list[list[str]]:
    """For every example of the split its answers, the likeliest first, no answer among them where it may be given."""
    examples = task[predictions.split]
    if task.kind == "classify":
        # (examples, labels)
        values = example_outputs(predictions.logits, predictions.table, len(examples), task.merge_label)
        return [[task.labels[label] for label in row] for row in (-values).argsort(1, kind="stable").tolist()]
    decoded = decode(predictions.logits, predictions.table, len(examples))
    limit = threshold if task.no_answer else None
    return [
        [str(entry["answer"]) for entry in n_best(spans, example.pair or "", limit, KEPT)]
        for spans, example in zip(decoded, examples, strict=True)
    ]


def _cost(work: AnalysisRequest) -> Finding | None:
    """As from the files, and what each head takes over dev, measured."""
    lines = group_rows(work.run.board)
    rows = [line.rows[0] for line in lines]
    heads = _heads_of(work, {name for row in rows for name in (row_title(row), *row.members)})
    return cost_finding(work.run, lines, head_seconds(heads, work.states))


def head_seconds(heads: Sequence[FittedHead], states: States) -> dict[str, float]:
    """Seconds of every head (spec@seed) over the states of dev, reading them not counted."""
    import torch

    seconds = dict.fromkeys((f"{head.spec}@{head.seed}" for head in heads), 0.0)
    with torch.inference_mode():
        for batch in states["dev"].batches(32):
            for head in heads:
                timer = Timer()
                head.head.forward_batch(batch)
                seconds[f"{head.spec}@{head.seed}"] += timer.seconds
    return seconds


def _documented(work: AnalysisRequest, name: str) -> Finding | None:
    return document_and_finding(work, name)[1]


MAKERS: Mapping[str, Callable[[AnalysisRequest], Finding | None]] = {
    "second-best": _second_best,
    "cost": _cost,
    "layers": layers,
    "learning-curve": learning_curve_finding,
    **{name: partial(_documented, name=name) for name in DOCUMENTED},
}


assert set(ANALYSES) == set(FROM_FILES) | set(MAKERS)


def complete(folder: Path) -> None:
    """Make those that this leaderboard lacks.

    A live run has no stored states, and those of another may be damaged or gone; a report comes out nevertheless, and
    lists what it lacks.
    """
    if best_tuning(folder) is not None:  # a search over tunings, which has no leaderboard to complete
        return
    work = AnalysisRequest(folder)
    names = [analysis.name for analysis in missing_analyses(work.run) if analysis.needs == STATES]
    if not names:
        return
    listed = ", ".join(names)
    try:
        if not is_live(states_folder(folder)):
            log_line(f"report: making {listed} from the stored states")
            study(work, names)
    except (BadInput, OSError) as error:
        log_line(f"report: not all of {listed} could be made: {error}")
