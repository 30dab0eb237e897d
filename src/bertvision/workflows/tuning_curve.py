"""Score against epochs: checkpoints of one tuning run, each an encoder that states can be extracted from.

One run with a warm-up and then a constant rate, as in the BERTVision paper's figures 5 and 6; a point of
a curve is not comparable with a whole run of that length, whose rate has fallen to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.config import TuneConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import read_json_or_empty, write_json
from bertvision.core.progress import log_line
from bertvision.core.runtime import choose_device, seeded
from bertvision.encoders.loading import RECORD, Encoder, load_encoder
from bertvision.report.charts import line_picture, write_picture
from bertvision.report.markup import Html
from bertvision.tasks.task import Task
from bertvision.training.inputs import split_windows
from bertvision.training.tune import SAVED, begin, finished, resume, run_to, settled, steps_of, tune_hash
from bertvision.workflows.tuning_costs import score_encoder


def tune_curve(encoder: Encoder, task: Task, config: TuneConfig, at: Sequence[float], folder: Path) -> dict[str, Any]:
    """Tune to the last of ``at`` (epochs), keep and score a checkpoint at each; what is done is not done again."""
    points = sorted(set(at))
    if not points or points[0] < 0:
        raise BadInput(f"--curve: got {list(at)}, expected epochs from 0 on, e.g. 0,0.1,0.3,1,2")
    config = settled(config, encoder, task, epochs=max(points[-1], 1e-9), decay="constant")
    made_from = tune_hash(encoder, task, config)
    rows = [row for row in _known(folder, made_from) if row["epochs"] in points]
    missing = [point for point in points if point not in {row["epochs"] for row in rows}]
    if missing:
        rows += _tune_through(encoder, task, config, missing, folder, made_from)
    known = {"task": task.name, "metric": task.metric, "schedule": "curve", "made_from": made_from}
    document: dict[str, Any] = {**known, "rows": sorted(rows, key=lambda row: row["epochs"])}
    write_json(folder / "curve.json", document)
    write_picture(_picture(document), folder / "curve.svg")
    return document


def place_of(folder: Path, epochs: float) -> Path:
    """Where a checkpoint lies: an encoder folder like any other."""
    return folder / "curve" / f"{epochs:g}"


def _known(folder: Path, made_from: str) -> list[dict[str, Any]]:
    """Points of an earlier call with the same settings whose encoders are still there."""
    document = read_json_or_empty(folder / "curve.json")
    if document.get("made_from") != made_from:
        return []
    return [row for row in document["rows"] if (place_of(folder, row["epochs"]) / RECORD).exists()]


def _tune_through(
    encoder: Encoder, task: Task, config: TuneConfig, points: Sequence[float], folder: Path, made_from: str
) -> list[dict[str, Any]]:
    """One run from the start, or from where it was interrupted, with a stop at every point."""
    windows = split_windows(task, "train", encoder)
    rows, saved = [], folder / SAVED
    with seeded(config.seed):
        tuning = begin(encoder, task, config, steps_of(len(windows), config), choose_device(config.device))
        resume(tuning, saved, made_from)
        for point in points:
            if not (place_of(folder, point) / RECORD).exists() or tuning.step <= steps_of(len(windows), config, point):
                run_to(tuning, windows, steps_of(len(windows), config, point), saved, made_from)
                finished(tuning, task, "curve", copy=True).save_pretrained(place_of(folder, point))
                tuning.save(saved, made_from)
            rows.append(_scored(place_of(folder, point), task, point))
    saved.unlink(missing_ok=True)
    return rows


def _scored(place: Path, task: Task, epochs: float) -> dict[str, Any]:
    """The checkpoint's own head on inner and dev, at a threshold fitted on inner."""
    encoder = load_encoder(str(place))
    judged = score_encoder(encoder, task)
    assert judged.inner is not None
    cost = encoder.record["cost"]
    log_line(f"curve: {epochs:g} epochs, {task.metric} {judged.result.scores[task.metric]:.2f}")
    return {
        "epochs": epochs,
        "steps": encoder.record["tune"]["steps"],
        "seconds": cost["seconds"],
        "encoder": str(place),
        "scores": judged.result.scores,
        "inner": judged.inner.scores,
    }


def _picture(document: dict[str, Any]) -> Html:
    metric, rows = document["metric"], document["rows"]
    splits = {"dev": "scores", "inner": "inner"}
    series = {name: [(row["epochs"], row[key][metric]) for row in rows] for name, key in splits.items()}
    last = rows[-1]
    pace = f", {last['seconds'] / last['epochs']:.0f} s each" if last["epochs"] else ""
    return line_picture(series, f"epochs of tuning{pace}", metric)
