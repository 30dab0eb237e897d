"""Analyses that fit heads or run the encoder: by layer, by depth, by share of the data, without adapters.

Fitted heads are saved in ``RUN/analysis/``; the same call resumes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import atomic_open, write_json
from bertvision.core.progress import log_line, progress
from bertvision.core.registry import Spec, parse_spec
from bertvision.core.summaries import APART
from bertvision.encoders.adapters import adapters_of, disabled_adapters
from bertvision.encoders.loading import ENCODER_FILE, Encoder, load_encoder
from bertvision.encoders.methods import injected
from bertvision.evaluation.analyses.adapter_ablation import ablation_finding, percent_lost
from bertvision.evaluation.analyses.answers import gold_text
from bertvision.evaluation.analyses.learning_curves import ENCODER_LIMITED, Step, by_depth, by_layer, learning_curve
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.scoring import SplitScores, score_inner, score_predictions, score_split
from bertvision.heads.base import canonical_spec
from bertvision.model import native_model
from bertvision.report.charts import draw, write_svg
from bertvision.runs.folder import run_states, states_folder
from bertvision.runs.prepare import fit_into
from bertvision.runs.reader import FINDINGS, Run, gather, group_rows
from bertvision.store.states import States, Subset
from bertvision.tasks.splits import stable_hash
from bertvision.tasks.task import Task, read_task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.live_states import task_of_states
from bertvision.training.predict import predict
from bertvision.workflows.depth import depth_frontier

SHARES = (0.1, 0.3, 1.0)
SPLIT = "dev"
NONE = (0, 0)
"""Key of the scores with all adapters, among spans (first layer, last layer) without them."""
NO_ADAPTERS = "there is no encoder with adapters in {}; make one: bertvision run ... --method adapters"


@dataclass
class AnalysisRequest:
    """A run to analyse, and the settings of the heads that are fitted for it."""

    folder: Path
    head: str | None = None  # for depth and learning curve; None: the best on inner
    seeds: Sequence[int] = (0,)
    config: FitConfig = field(default_factory=FitConfig)
    shares: Sequence[float] = SHARES
    beside: Sequence[Path] = ()  # learning curve: runs with encoders tuned on less data; pair: run of the second row
    pair: Sequence[str] | None = None  # agreement: two rows
    within: float | None = None  # depth: points below the best score at which the saved model is truncated

    @cached_property
    def run(self) -> Run:
        return gather(self.folder, read_task(states_folder(self.folder) / "task"))

    @cached_property
    def states(self) -> States:
        return run_states(self.folder)

    @property
    def head_spec(self) -> str:
        """The head to fit: the requested one, or the best on inner."""
        best = self.run.board.best_head if self.head is None else self.head
        if not best:
            raise BadInput(f"{self.folder} has no best head; name one with --head SPEC")
        return canonical_spec(best)

    @property
    def encoder_scores(self) -> dict[str, float]:
        """The encoder's own score, for a horizontal line in plots."""
        metric = self.run.board.metric
        return {row.name: row.scores[metric] for row in self.run.board.rows if row.kind == "encoder"}


def layers(request: AnalysisRequest) -> Finding:
    """A linear probe on each state alone; all are fitted from one pass per epoch."""
    read = ",read=difference+product" if request.states.pairs == APART else ""
    specs = [canonical_spec(f"probe:layers={index}{read}") for index in range(len(request.states.layers))]
    fitted = fit_into(request.folder / FINDINGS / "heads", request.states, specs, request.seeds, request.config)
    steps = []
    for layer, spec in zip(request.states.layers, specs, strict=True):
        steps.append(_make_step("probe", layer, request, [head for head in fitted if head.spec == spec]))
    return by_layer(steps, request.run.board.metric, request.encoder_scores)


def document_and_finding(request: AnalysisRequest, name: str) -> tuple[dict[str, Any] | None, Finding | None]:
    """The document that depth or ablation writes, and its finding if the run has a leaderboard."""
    document = _ablation(request) if name == "ablation" else _depth(request)
    if document is None or not (request.folder / "leaderboard.json").exists():
        return document, None
    if name == "ablation":
        return document, ablation_finding(document)
    steps = []
    for row in document["rows"]:
        steps.append(Step(document["head"], row["depth"], tuple(row["dev_by_seed"]), (row["inner"],)))
    return document, by_depth(steps, document["head"], document["metric"], request.encoder_scores)


def _depth(request: AnalysisRequest) -> dict[str, Any]:
    if request.head is not None:  # a requested head is not changed: layers= in it is an error
        head = request.head
    else:
        parsed = parse_spec(request.head_spec)
        head = str(Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "layers"}))
    return depth_frontier(request.folder, head, request.seeds, request.config, request.within)


def learning_curve_finding(request: AnalysisRequest) -> Finding:
    """The head on nested shares of the training examples, and other runs with encoders tuned on less data."""
    task = task_of_states(request.states)
    # Both curves end in the run itself. Other runs are checked before any head is fitted.
    folders = dict.fromkeys([*request.beside, request.folder]) if request.beside else ()
    steps = [_limited_run_step(folder, task) for folder in folders]
    for share in sorted(set(request.shares)):
        if not 0 < share <= 1:
            raise BadInput(f"--shares: got {share:g}, expected numbers above 0 and at most 1, e.g. 0.1,0.3,1")
        count = subset_size(task, share)
        log_line(f"learning curve: {count:,} of {len(task['train']):,} examples")
        heads = []
        for seed in request.seeds:
            heads += fit_on_subset(request.folder, request.states, task, request.head_spec, share, seed, request.config)
        steps.append(_make_step(f"head limited: {request.head_spec}", 100 * share, request, heads, count))
    return learning_curve(sorted(steps, key=lambda step: (step.series, step.at)), task.metric, request.encoder_scores)


def fit_on_subset(
    folder: Path, states: States, task: Task, spec: str, share: float, seed: int, config: FitConfig
) -> list[FittedHead]:
    """Fit one seed on its own subset, in a folder per subset."""
    count = subset_size(task, share)
    subset = states if count == len(task["train"]) else Subset(states, draw_subset(task, count, seed))
    return fit_into(folder / FINDINGS / "shares" / f"{share:g}" / f"draw{seed}", subset, [spec], [seed], config)


def subset_size(task: Task, share: float) -> int:
    """Examples in a share of the training data."""
    return max(1, round(share * len(task["train"])))


def draw_subset(task: Task, count: int, seed: int) -> set[int]:
    """Indices of ``count`` training examples by hash: the same on every machine, smaller subsets in larger."""
    train = task["train"]
    ranked = sorted(range(len(train)), key=lambda index: stable_hash(f"{seed}\x00{train[index].id}"))
    return set(ranked[:count])


def load_matching_run(folder: Path, whole: Task) -> Run:
    """Read a run that has the same kind of answers, and the same examples with the same gold answers in dev."""
    run = gather(folder, read_task(states_folder(folder) / "task"))
    if run.task.kind != whole.kind:
        raise BadInput(
            f"--beside {folder}: got a task of kind {run.task.kind}, expected the same kind as this run, {whole.kind}; "
            "name a run of the same task"
        )
    # Ids alone may be row numbers, which examples of any file have.
    mine, theirs = (
        {(example.id, example.text, example.pair or "", gold_text(task, example)) for example in task["dev"]}
        for task in (whole, run.task)
    )
    if mine != theirs:
        raise BadInput(
            f"--beside {folder}: its dev has {len(theirs):,} examples, {len(mine & theirs):,} of them among the "
            f"{len(mine):,} of this run; expected the same ones: give both runs the same --dev, no larger than --limit"
        )
    return run


def _limited_run_step(folder: Path, whole: Task) -> Step:
    """The best head on inner of a run with the same dev whose encoder was tuned on fewer examples."""
    run = load_matching_run(folder, whole)
    line = next((line for line in group_rows(run.board) if line.kind in ("head", "control")), None)
    if line is None:
        raise BadInput(f"{folder} has no heads on its leaderboard; run: bertvision evaluate {folder}")
    count, dev = len(run.task["train"]), tuple(line.values(run.board.metric))
    if count > len(whole["train"]):
        raise BadInput(
            f"--beside {folder}: trained on {count:,} examples, this run on {len(whole['train']):,}; expected fewer: "
            "name the largest run as RUN"
        )
    # No inner score: its inner is split off its own, smaller data.
    return Step(ENCODER_LIMITED, 100 * count / len(whole["train"]), dev, inner=None, examples=count)


def _make_step(
    series: str, at: float, request: AnalysisRequest, heads: Sequence[FittedHead], examples: int | None = None
) -> Step:
    """A point of a curve: the scores of these heads on dev and inner."""
    task = task_of_states(request.states)
    scored = [score_predictions(task, predictions) for predictions in predict(heads, request.states["dev"])]
    dev = tuple(seed.result.scores[task.metric] for seed in scored)
    return Step(series, at, dev, tuple(seed.selection_score(task.metric) for seed in scored), examples)


def _ablation(request: AnalysisRequest) -> dict[str, Any] | None:
    """Score a run's encoder without the adapters of each span of layers; None if it has no adapters.

    Writes ``RUN/ablation``.
    """
    folder = request.folder
    task, path = read_task(states_folder(folder) / "task"), folder / "encoder"
    encoder = load_encoder(str(path)) if (path / ENCODER_FILE).exists() else None
    if encoder is None or adapters_of(encoder.model) is None:
        return None
    results = scores_without_adapters(encoder, task)
    whole = results.pop(NONE).scores[task.metric]
    if whole <= 0:
        raise BadInput(
            f"the encoder of {folder} has {task.metric} {whole:g} on {SPLIT}, expected more than 0, or nothing can be "
            "lost; tune it with more --epochs or another --lr"
        )
    rows = []
    for (first, last), result in results.items():
        score = float(result.scores[task.metric])
        rows.append({"first": first, "last": last, "score": score, "decrease": percent_lost(whole, score)})
    document: dict[str, Any] = {
        "task": task.name,
        "split": SPLIT,
        "metric": task.metric,
        "layers": encoder.layers - 1,
        "method": injected(encoder.model),  # not of the record: the encoder may have been tuned again by another method
        "score": whole,
        "rows": rows,
    }
    out = folder / "ablation"
    write_json(out / "ablation.json", document)
    with atomic_open(out / "ablation.csv") as file:
        table = csv.DictWriter(file, ["first", "last", "score", "decrease"])
        table.writeheader()
        table.writerows(rows)
    write_svg(draw(ablation_finding(document).plots[0]), out / "ablation.svg")
    return document


def scores_without_adapters(encoder: Encoder, task: Task) -> dict[tuple[int, int], SplitScores]:
    """Scores of the encoder's own head on dev, with the adapters of every span of layers switched off.

    The key is (first layer, last layer), counted from 1; NONE is with all adapters.
    """
    model, threshold, layers = native_model(encoder, task), 0.0, encoder.layers - 1
    if model.threshold is not None:  # refitted on inner, with all adapters
        threshold = float(score_inner(task, *model.outputs(task["inner"])).threshold or 0.0)
    results = {NONE: score_split(task, SPLIT, *model.outputs(task[SPLIT]), threshold)}
    for first, last in progress(spans(layers), "ablate", total=layers * (layers + 1) // 2, unit="span"):
        with disabled_adapters(encoder.model, first, last):
            results[first, last] = score_split(task, SPLIT, *model.outputs(task[SPLIT]), threshold)
    return results


def spans(layers: int) -> Iterator[tuple[int, int]]:
    """Every first and last layer, counted from 1."""
    return ((first, last) for first in range(1, layers + 1) for last in range(first, layers + 1))
