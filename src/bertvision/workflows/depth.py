"""How much of the encoder is needed: one head over states 0..k for every k, and a model cut where that is enough.

All layers are at hand, so one pass over the states fits them all. Where to cut is chosen on ``inner``.
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
    """A head over states 0..depth, all its seeds."""

    depth: int
    judged: tuple[ScoredPredictions, ...]
    fitted: tuple[FittedHead, ...]

    def mean(self, metric: str, inner: bool) -> float:
        verdicts = [one.inner if inner else one.result for one in self.judged]
        return fmean(verdict.scores[metric] for verdict in verdicts if verdict is not None)


def depth_frontier(
    folder: Path, head: str, seeds: Sequence[int], config: FitConfig, within: float | None = None
) -> dict[str, Any]:
    """Score by depth, in ``RUN/depth``; with ``within`` a model cut at the least depth that close to the best."""
    if within is not None and not 0 <= within < math.inf:
        raise BadInput(f"--within: got {within:g}, expected points of the score, 0 or more")
    states = run_states(folder)
    task, spec, out = task_of_states(states), canonical_spec(head), folder / "depth"
    frontier = _fitted_depths(out, states, task, spec, seeds, config)
    chosen = None if within is None else choose_depth([d.mean(task.metric, True) for d in frontier], within)
    document: dict[str, Any] = {
        "task": task.name,
        "metric": task.metric,
        "head": spec,
        "seeds": list(seeds),
        "rows": [_row(one, task.metric) for one in frontier],
        "within": within,
        "chosen": chosen,
    }
    if chosen is not None:
        document["cut"] = _save_cut(folder, states, task, frontier[chosen])
    write_json(out / "depth.json", document)
    write_svg(depth_picture(document), out / "depth.svg")
    return document


def choose_depth(inner: Sequence[float], within: float) -> int:
    """The least depth whose score on inner is at most ``within`` below the best."""
    return next(depth for depth, score in enumerate(inner) if score >= max(inner) - within)


def depth_picture(document: dict[str, Any]) -> Any:
    series = {
        "dev": [(row["depth"], row["dev"]) for row in document["rows"]],
        "inner": [(row["depth"], row["inner"]) for row in document["rows"]],
    }
    return line_chart(series, "encoder layers used", document["metric"])


def _fitted_depths(
    out: Path, states: States, task: Task, spec: str, seeds: Sequence[int], config: FitConfig
) -> list[Depth]:
    if states.layers != tuple(range(states.layers[-1] + 1)):
        raise BadInput(f"depths need the states 0, 1, ... without gaps; here are {states.layers}: extract all of them")
    specs = [_over_first(spec, depth) for depth in range(len(states.layers))]
    fitted = fit_into(out, states, specs, seeds, config)
    judged = [score_predictions(task, one) for one in predict(fitted, states["dev"])]
    pairs = list(zip(fitted, judged, strict=True))
    return [
        Depth(depth, tuple(j for f, j in pairs if f.spec == one), tuple(f for f, _ in pairs if f.spec == one))
        for depth, one in enumerate(specs)
    ]


def _over_first(spec: str, depth: int) -> str:
    parsed = parse_spec(spec)
    if "layers" in parsed.options:
        raise BadInput(f"head {spec}: depths choose the layers themselves; leave layers= out")
    return canonical_spec(str(Spec(parsed.name, {**parsed.options, "layers": f"first{depth + 1}"})))


def _row(one: Depth, metric: str) -> dict[str, Any]:
    return {
        "depth": one.depth,
        "dev": one.mean(metric, False),
        "inner": one.mean(metric, True),
        "dev_by_seed": [judged.result.scores[metric] for judged in one.judged],
        "parameters": one.fitted[0].parameters,
    }


def _save_cut(folder: Path, states: States, task: Task, one: Depth) -> dict[str, Any]:
    """A model whose encoder ends at the chosen depth, in ``RUN/depth/model``, and how much faster that is."""
    place = folder / "encoder"
    if not (place / ENCODER_FILE).exists():
        raise BadInput(f"there is no encoder in {place}, so there is nothing to cut; leave --within out")
    encoder = load_encoder(str(place))
    if encoder_hash(encoder) != states.manifest["fingerprint"]["encoder"]:
        raise BadInput(f"{place} is not the encoder that the states came from; extract again")
    short = truncate_encoder(encoder, max(1, one.depth))
    best = max(zip(one.fitted, one.judged, strict=True), key=lambda pair: pair[1].selection_score(task.metric))[0]
    target = folder / "depth" / "model"
    Model(short, _recut(best, one.depth), task).save_pretrained(target)
    whole_seconds, seconds = median_encoder_seconds([encoder, short], split_windows(task, "dev", encoder))
    log_line(f"depth: a model of {one.depth} layers is in {target}; it takes {seconds / whole_seconds:.2f} of the time")
    return {
        "model": str(target),
        "layers": short.layers - 1,
        "of": encoder.layers - 1,
        "parameters": short.parameters,
        "whole_parameters": encoder.parameters,
        "time_ratio": seconds / whole_seconds,
    }


def _recut(fitted: FittedHead, depth: int) -> FittedHead:
    """The same head over all the states of the cut encoder, instead of over the first of the whole one's."""
    parsed = parse_spec(fitted.spec)
    spec = Spec(parsed.name, {key: value for key, value in parsed.options.items() if key != "layers"})
    head = build_head(spec, replace(fitted.head.shape, layers=depth + 1))
    head.load_state_dict(fitted.head.state_dict())
    return replace(fitted, spec=head.spec, head=head.eval(), states=tuple(range(depth + 1)))
