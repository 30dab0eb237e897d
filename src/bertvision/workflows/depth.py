"""Score against encoder depth: one head on states 0..k for every k, and a model with a truncated encoder.

One pass over the states fits the heads of all depths. The depth to truncate at is chosen on ``inner``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.core.progress import log_line
from bertvision.core.registry import Spec, parse_spec
from bertvision.encoders.loading import ENCODER_FILE, load_encoder
from bertvision.encoders.partial import truncate_encoder
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.heads.base import build_head, canonical_spec
from bertvision.model import Model
from bertvision.report.charts import line_chart, write_svg
from bertvision.runs.folder import run_states
from bertvision.runs.prepare import fit_into
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.benchmark import median_encoder_seconds
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import encoder_hash, split_windows
from bertvision.training.live_states import task_of_states
from bertvision.training.predict import predict


@dataclass(frozen=True)
class Depth:
    """A head on states 0..depth, and its scores, for every seed."""

    depth: int
    scored: tuple[ScoredPredictions, ...]
    fitted: tuple[FittedHead, ...]

    def mean(self, metric: str, inner: bool) -> float:
        """Mean over seeds, on inner or on dev."""
        splits = [seed.inner if inner else seed.result for seed in self.scored]
        return fmean(split.scores[metric] for split in splits if split is not None)


def depth_frontier(
    folder: Path, head: str, seeds: Sequence[int], config: FitConfig, within: float | None = None
) -> dict[str, Any]:
    """Score every depth and write ``RUN/depth``; ``within`` also saves the shallowest model that is close enough."""
    if within is not None and not 0 <= within < math.inf:
        raise BadInput(f"--within: got {within:g}, expected points of the score, 0 or more")
    states = run_states(folder)
    task, spec, out = task_of_states(states), canonical_spec(head), folder / "depth"
    frontier = _fit_depths(out, states, task, spec, seeds, config)
    inner = [depth.mean(task.metric, True) for depth in frontier]
    chosen = None if within is None else choose_depth(inner, within)
    rows: list[dict[str, Any]] = []
    for depth, inner_score in zip(frontier, inner, strict=True):
        row = {
            "depth": depth.depth,
            "dev": depth.mean(task.metric, False),
            "inner": inner_score,
            "dev_by_seed": [seed.result.scores[task.metric] for seed in depth.scored],
            "parameters": depth.fitted[0].parameters,
        }
        rows.append(row)
    document: dict[str, Any] = {
        "task": task.name,
        "metric": task.metric,
        "head": spec,
        "seeds": list(seeds),
        "rows": rows,
        "within": within,
        "chosen": chosen,
    }
    if chosen is not None:
        document["cut"] = _save_truncated(folder, states, task, frontier[chosen])
    write_json(out / "depth.json", document)
    curves = {split: [(row["depth"], row[split]) for row in rows] for split in ("dev", "inner")}
    write_svg(line_chart(curves, "encoder layers used", task.metric), out / "depth.svg")
    return document


def choose_depth(inner: Sequence[float], within: float) -> int:
    """The least depth whose score on inner is at most ``within`` below the best."""
    return next(depth for depth, score in enumerate(inner) if score >= max(inner) - within)


def _fit_depths(
    out: Path, states: States, task: Task, spec: str, seeds: Sequence[int], config: FitConfig
) -> list[Depth]:
    """Fit the head at every depth, all from one pass over the states, and score it."""
    if states.layers != tuple(range(states.layers[-1] + 1)):
        raise BadInput(
            f"depth: expected states 0, 1, ... without gaps in the store, got {states.layers}; extract all layers"
        )
    name, options = parse_spec(spec).name, parse_spec(spec).options
    if "layers" in options:
        raise BadInput(f"head {spec}: depth sets the layers itself; leave layers= out")
    specs = []
    for depth in range(len(states.layers)):
        specs.append(canonical_spec(str(Spec(name, {**options, "layers": f"first{depth + 1}"}))))
    fitted = fit_into(out, states, specs, seeds, config)
    group_by_spec: dict[str, list[tuple[ScoredPredictions, FittedHead]]] = {spec: [] for spec in specs}
    for head, predictions in zip(fitted, predict(fitted, states["dev"]), strict=True):
        group_by_spec[head.spec].append((score_predictions(task, predictions), head))
    depths = []
    for depth, pairs in enumerate(group_by_spec.values()):
        scored, heads = zip(*pairs, strict=True)
        depths.append(Depth(depth, scored, heads))
    return depths


def _save_truncated(folder: Path, states: States, task: Task, depth: Depth) -> dict[str, Any]:
    """Save a model whose encoder ends at the chosen depth in ``RUN/depth/model``, and measure the speed-up."""
    path = folder / "encoder"
    if not (path / ENCODER_FILE).exists():
        raise BadInput(f"--within: no encoder in {path}, so no model can be saved; leave --within out")
    encoder = load_encoder(str(path))
    if encoder_hash(encoder) != states.manifest["fingerprint"]["encoder"]:
        raise BadInput(
            f"--within: the hidden states were not extracted with the encoder in {path}; "
            "extract and fit again, or leave --within out"
        )
    short = truncate_encoder(encoder, max(1, depth.depth))
    best = max(zip(depth.fitted, depth.scored, strict=True), key=lambda pair: pair[1].selection_score(task.metric))[0]
    target = folder / "depth" / "model"
    Model(short, _move_to_truncated(best, depth.depth), task).save_pretrained(target)
    whole_seconds, seconds = median_encoder_seconds([encoder, short], split_windows(task, "dev", encoder))
    log_line(f"depth: saved a model of {depth.depth} layers in {target}; time ratio {seconds / whole_seconds:.2f}")
    return {
        "model": str(target),
        "layers": short.layers - 1,
        "of": encoder.layers - 1,
        "parameters": short.parameters,
        "whole_parameters": encoder.parameters,
        "time_ratio": seconds / whole_seconds,
    }


def _move_to_truncated(fitted: FittedHead, depth: int) -> FittedHead:
    """The same head on all states of the truncated encoder instead of the first states of the whole one."""
    parsed = parse_spec(fitted.spec)
    spec = Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "layers"})
    head = build_head(spec, replace(fitted.head.shape, layers=depth + 1))
    head.load_state_dict(fitted.head.state_dict())
    return replace(fitted, spec=head.spec, head=head.eval(), states=tuple(range(depth + 1)))
