"""A run under study, and what is learned by fitting heads anew: by layer, by depth, by share of the data.

The heads are kept in ``RUN/analysis/``, so that the same call goes on where it was stopped.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import atomic_open, write_json
from bertvision.core.progress import log_line, progress
from bertvision.core.records import Example
from bertvision.core.registry import Spec, parse_spec
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
"""The span of layers with no adapter switched off."""
NO_ADAPTERS = "there is no encoder with adapters in {}; make one: bertvision run ... --method adapters"


@dataclass
class AnalysisRequest:
    """A run under study, and how its heads are to be fitted where they have to be."""

    folder: Path
    head: str | None = None  # what depth and learning curve fit; None: the best on inner
    seeds: Sequence[int] = (0,)
    config: FitConfig = field(default_factory=FitConfig)
    shares: Sequence[float] = SHARES
    beside: Sequence[Path] = ()  # learning curve: runs whose encoders saw a share of the data; pair: that of the second
    pair: Sequence[str] | None = None  # agreement: two rows
    within: float | None = None  # depth: points of the score below the best at which a model is cut

    @cached_property
    def run(self) -> Run:
        return gather(self.folder, read_task(states_folder(self.folder) / "task"))

    @cached_property
    def states(self) -> States:
        return run_states(self.folder)

    @property
    def chosen(self) -> str:
        """The head to fit: as asked for, or the best on inner."""
        best = self.run.board.best_head if self.head is None else self.head
        if not best:
            raise BadInput(f"{self.folder} has no best head; name one with --head SPEC")
        return canonical_spec(best)

    @property
    def rules(self) -> dict[str, float]:
        """The encoder's own score, to draw a line at."""
        metric = self.run.board.metric
        return {row.name: row.scores[metric] for row in self.run.board.rows if row.kind == "encoder"}


def layers(work: AnalysisRequest) -> Finding:
    """A linear probe on each state alone, all from one read an epoch."""
    specs = [canonical_spec(f"probe:layers={index}") for index in range(len(work.states.layers))]
    fitted = fit_into(work.folder / FINDINGS / "heads", work.states, specs, work.seeds, work.config)
    steps = [
        _step("probe", layer, work, [head for head in fitted if head.spec == spec])
        for layer, spec in zip(work.states.layers, specs, strict=True)
    ]
    return by_layer(steps, work.run.board.metric, work.rules)


def document_and_finding(work: AnalysisRequest, name: str) -> tuple[dict[str, Any] | None, Finding | None]:
    """What depth or ablation writes into a folder of its own, and the finding, for a run with a leaderboard."""
    make, to_finding = DOCUMENTED[name]
    document = make(work)
    if document is None or not (work.folder / "leaderboard.json").exists():
        return document, None
    return document, to_finding(work, document)


def _depth(work: AnalysisRequest) -> dict[str, Any]:
    # A head that is asked for is not quietly made another.
    head = _all_layers(work.chosen) if work.head is None else work.head
    return depth_frontier(work.folder, head, work.seeds, work.config, work.within)


def _all_layers(spec: str) -> str:
    """Depths choose the layers themselves."""
    parsed = parse_spec(spec)
    return str(Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "layers"}))


def _depth_finding(work: AnalysisRequest, document: Mapping[str, Any]) -> Finding:
    """A frontier as a finding, the encoder's own score beside it."""
    steps = [
        Step(document["head"], row["depth"], tuple(row["dev_by_seed"]), (row["inner"],)) for row in document["rows"]
    ]
    return by_depth(steps, document["head"], document["metric"], work.rules)


def learning_curve_finding(work: AnalysisRequest) -> Finding:
    """The head on nested shares of the training examples, and the runs beside, whose encoders were limited too."""
    task = task_of_states(work.states)
    # Where nothing is limited both lines end: the run itself. Before all fits, so that one that cannot be is refused.
    beside = dict.fromkeys([*work.beside, work.folder]) if work.beside else ()
    steps = [_limited_run(folder, task) for folder in beside]
    for share in sorted(set(work.shares)):
        if not 0 < share <= 1:
            raise BadInput(f"--shares: got {share:g}, expected numbers above 0 and at most 1, e.g. 0.1,0.3,1")
        count = subset_size(task, share)
        log_line(f"learning curve: {count:,} of {len(task['train']):,} examples")
        heads = []
        for seed in work.seeds:
            heads += fit_on_subset(work.folder, work.states, task, work.chosen, share, seed, work.config)
        steps.append(_step(f"head limited: {work.chosen}", 100 * share, work, heads, count))
    return learning_curve(sorted(steps, key=lambda step: (step.series, step.at)), task.metric, work.rules)


def fit_on_subset(
    folder: Path, states: States, task: Task, spec: str, share: float, seed: int, config: FitConfig
) -> list[FittedHead]:
    """One seed on its own draw, kept in a folder of its own: the same share of another draw is another fit."""
    count = subset_size(task, share)
    shown = states if count == len(task["train"]) else Subset(states, draw_subset(task, count, seed))
    return fit_into(folder / FINDINGS / "shares" / f"{share:g}" / f"draw{seed}", shown, [spec], [seed], config)


def subset_size(task: Task, share: float) -> int:
    """Examples in a share of the training data."""
    return max(1, round(share * len(task["train"])))


def draw_subset(task: Task, count: int, seed: int) -> set[int]:
    """Numbers of ``count`` training examples by a hash, the same for every machine; a smaller draw is in a larger."""
    ranked = sorted(range(len(task["train"])), key=lambda at: stable_hash(f"{seed}\x00{task['train'][at].id}"))
    return set(ranked[:count])


def load_matching_run(folder: Path, whole: Task) -> Run:
    """A run that is judged on the very same: the same kind of answers, and the same examples in dev with their gold."""
    run = gather(folder, read_task(states_folder(folder) / "task"))
    if run.task.kind != whole.kind:
        raise BadInput(
            f"--beside {folder}: its task is of kind {run.task.kind}, that of this run {whole.kind}; expected the same "
            "kind: name a run of the same task"
        )
    mine, theirs = ({_judged_by(task, example) for example in task["dev"]} for task in (whole, run.task))
    if mine != theirs:
        raise BadInput(
            f"--beside {folder}: its dev has {len(theirs):,} examples, {len(mine & theirs):,} of them among the "
            f"{len(mine):,} of this run; expected the same ones: give both runs the same --dev, no larger than --limit"
        )
    return run


def _judged_by(task: Task, example: Example) -> tuple[str, ...]:
    """Ids alone may be numbers of rows, of whatever file."""
    return example.id, example.text, example.pair or "", gold_text(task, example)


def _limited_run(folder: Path, whole: Task) -> Step:
    """The best head on inner of a run whose encoder was tuned on fewer examples, and which has the same dev."""
    run = load_matching_run(folder, whole)
    line = next((line for line in group_rows(run.board) if line.kind in ("head", "control")), None)
    if line is None:
        raise BadInput(f"{folder} has no heads on its leaderboard; run: bertvision evaluate {folder}")
    count, dev = len(run.task["train"]), tuple(line.values(run.board.metric))
    if count > len(whole["train"]):
        raise BadInput(
            f"--beside {folder} learned from {count:,} examples, this run from {len(whole['train']):,}; expected a run "
            "on fewer: name the largest as RUN"
        )
    # Its inner is a share of its own, smaller data.
    return Step(ENCODER_LIMITED, 100 * count / len(whole["train"]), dev, inner=None, examples=count)


def _step(
    series: str, at: float, work: AnalysisRequest, heads: Sequence[FittedHead], examples: int | None = None
) -> Step:
    task = task_of_states(work.states)
    judged = [score_predictions(task, one) for one in predict(heads, work.states["dev"])]
    dev = tuple(one.result.scores[task.metric] for one in judged)
    return Step(series, at, dev, tuple(one.selection_score(task.metric) for one in judged), examples)


def _ablation(work: AnalysisRequest) -> dict[str, Any] | None:
    """Score of a run's encoder without the adapters of each span, in ``RUN/ablation``; None where it has none."""
    folder = work.folder
    task, path = read_task(states_folder(folder) / "task"), folder / "encoder"
    encoder = load_encoder(str(path)) if (path / ENCODER_FILE).exists() else None
    if encoder is None or adapters_of(encoder.model) is None:
        return None
    verdicts = scores_without_adapters(encoder, task)
    whole = verdicts.pop(NONE).scores[task.metric]
    if whole <= 0:
        what = f"the encoder of {folder} has {task.metric} {whole:g} on {SPLIT}, so that nothing can be lost"
        raise BadInput(f"{what}; tune one that scores above 0, with more --epochs or another --lr")
    rows = []
    for (first, last), verdict in verdicts.items():
        score = float(verdict.scores[task.metric])
        rows.append({"first": first, "last": last, "score": score, "decrease": percent_lost(whole, score)})
    document: dict[str, Any] = {
        "task": task.name,
        "split": SPLIT,
        "metric": task.metric,
        "layers": encoder.layers - 1,
        "method": injected(encoder.model),  # an encoder may have been tuned in another way since
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


DOCUMENTED: Mapping[str, tuple[Callable[..., dict[str, Any] | None], Callable[..., Finding]]] = {
    "depth": (_depth, _depth_finding),
    "ablation": (_ablation, lambda _, document: ablation_finding(document)),
}
"""Analyses with a document of their own, and how a finding is made of it."""


def scores_without_adapters(encoder: Encoder, task: Task) -> dict[tuple[int, int], SplitScores]:
    """The encoder's own head on dev without the adapters from one layer to another; NONE is with all of them."""
    model, threshold, layers = native_model(encoder, task), 0.0, encoder.layers - 1
    if model.threshold is not None:  # the one that inner gives with all adapters at work
        threshold = float(score_inner(task, *model.outputs(task["inner"])).threshold or 0.0)
    verdicts = {NONE: score_split(task, SPLIT, *model.outputs(task[SPLIT]), threshold)}
    for first, last in progress(spans(layers), "ablate", total=layers * (layers + 1) // 2, unit="span"):
        with disabled_adapters(encoder.model, first, last):
            verdicts[first, last] = score_split(task, SPLIT, *model.outputs(task[SPLIT]), threshold)
    return verdicts


def spans(layers: int) -> Iterator[tuple[int, int]]:
    """Every first and last layer, counted from 1."""
    return ((first, last) for first in range(1, layers + 1) for last in range(first, layers + 1))
