"""Score against epochs of tuning: checkpoints of one run, each an encoder that states can be extracted from.

The learning rate is constant after a warm-up, as in figures 5 and 6 of the BERTVision paper. A point of the curve is
not comparable with a whole run of that length, whose learning rate decays to zero.
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
from bertvision.encoders.loading import ENCODER_FILE, Encoder, load_encoder
from bertvision.report.charts import line_chart, write_svg
from bertvision.tasks.task import Task
from bertvision.training.inputs import TaskWindows
from bertvision.training.tune import (
    TUNING_CHECKPOINT,
    export_encoder,
    num_steps,
    resolve_config,
    run,
    start,
    tune_hash,
    tuning_batches,
)
from bertvision.training.tuner import Checkpoint
from bertvision.workflows.tuning_costs import score_encoder


def tune_curve(encoder: Encoder, task: Task, config: TuneConfig, at: Sequence[float], folder: Path) -> dict[str, Any]:
    """Tune to the last of ``at`` (epochs), and save and score a checkpoint at each; skips points that exist."""
    points = sorted(set(at))
    if not points or points[0] < 0:
        raise BadInput(f"--curve: got {list(at)}, expected epochs of 0 or more, e.g. 0,0.1,0.3,1,2")
    config = resolve_config(config, encoder, task, epochs=max(points[-1], 1e-9), decay="constant")
    made_from = tune_hash(encoder, task, config)
    # Not core.files.reuse: points are reused one by one, so that a curve with new points keeps the old ones.
    old = read_json_or_empty(folder / "curve.json")
    rows = []
    for row in old["rows"] if old.get("made_from") == made_from else []:
        if row["epochs"] in points and _is_saved(folder, row["epochs"]):
            rows.append(row)
    missing = [point for point in points if point not in {row["epochs"] for row in rows}]
    if missing:
        checkpoint = Checkpoint(folder / TUNING_CHECKPOINT, made_from)
        rows += _tune_through(TaskWindows(task, encoder), config, missing, folder, checkpoint)
    facts = {"task": task.name, "metric": task.metric, "schedule": "curve", "made_from": made_from}
    document: dict[str, Any] = {**facts, "rows": sorted(rows, key=lambda row: row["epochs"])}
    write_json(folder / "curve.json", document)
    series = {}
    for split, key in (("dev", "scores"), ("inner", "inner")):
        series[split] = [(row["epochs"], row[key][task.metric]) for row in document["rows"]]
    last = document["rows"][-1]
    pace = f", {last['seconds'] / last['epochs']:.0f} s each" if last["epochs"] else ""
    write_svg(line_chart(series, f"epochs of tuning{pace}", task.metric), folder / "curve.svg")
    return document


def checkpoint_path(folder: Path, epochs: float) -> Path:
    """The encoder folder of a checkpoint."""
    return folder / "curve" / f"{epochs:g}"


def _is_saved(folder: Path, epochs: float) -> bool:
    return (checkpoint_path(folder, epochs) / ENCODER_FILE).exists()


def _tune_through(
    windows: TaskWindows, config: TuneConfig, points: Sequence[float], folder: Path, checkpoint: Checkpoint
) -> list[dict[str, Any]]:
    """One run, new or resumed, that saves an encoder at every point."""
    task, train = windows.task, windows["train"]
    rows = []
    with seeded(config.seed):
        steps, device = num_steps(len(train), config), choose_device(config.device)
        tuner = start(windows.encoder, task, config, steps, device, checkpoint)
        for point in points:
            until = num_steps(len(train), config, point)
            if not _is_saved(folder, point) or tuner.steps_done <= until:
                run(tuner, tuning_batches(train, config, tuner.steps_done, until), until, checkpoint)
                export_encoder(tuner, task, "curve", copy=True).save_pretrained(checkpoint_path(folder, point))
                tuner.save(folder / TUNING_CHECKPOINT, checkpoint.made_from)
            rows.append(_score_checkpoint(checkpoint_path(folder, point), windows, point))
    checkpoint.remove()
    return rows


def _score_checkpoint(folder: Path, windows: TaskWindows, epochs: float) -> dict[str, Any]:
    """Score the checkpoint's own head on inner and dev, with the threshold fitted on inner."""
    encoder, metric = load_encoder(str(folder)), windows.task.metric
    scored = score_encoder(encoder, windows.task, windows)
    assert scored.inner is not None
    log_line(f"curve: {epochs:g} epochs, {metric} {scored.result.scores[metric]:.2f}")
    return {
        "epochs": epochs,
        "steps": encoder.record["tune"]["steps"],
        "seconds": encoder.record["cost"]["seconds"],
        "encoder": str(folder),
        "scores": scored.result.scores,
        "inner": scored.inner.scores,
    }
