"""Cost and score of tuning methods in one table, from encoders tuned on the same task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes
from bertvision.core.text_table import align_columns
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.evaluation.analyses.cost import efficiency
from bertvision.evaluation.leaderboard import baseline
from bertvision.evaluation.scoring import ScoredPredictions, score_predictions
from bertvision.tasks.task import Task
from bertvision.training.benchmark import WINDOWS, median_encoder_seconds
from bertvision.training.inputs import TaskWindows
from bertvision.training.live_states import LiveStates
from bertvision.training.predict import predict_own


def score_encoder(encoder: Encoder, task: Task, windows: TaskWindows | None = None) -> ScoredPredictions:
    """Score a tuned encoder's own head on dev, with the threshold fitted on inner; stores nothing."""
    states = LiveStates(encoder, task, windows=windows, layers="last1")
    return score_predictions(task, predict_own(states["dev"]))


def cost_table(folders: Sequence[Path], task: Task) -> dict[str, Any]:
    """A row per encoder folder: trained parameters, training time, size on disk, inference time and score."""
    encoders = []
    for folder in folders:
        encoder = load_encoder(str(folder))
        if encoder.own is None or "trained" not in encoder.record.get("cost", {}):
            raise BadInput(f"{folder}: no tuning cost on record; expected RUN/encoder folders made by tune")
        encoders.append(encoder)
    windows = TaskWindows(task, encoders[0])
    seconds = median_encoder_seconds(encoders, windows["dev"])
    name, scores = baseline(task, "dev")
    floor = scores[task.metric]
    rows = []
    for folder, encoder, encoder_seconds in zip(folders, encoders, seconds, strict=True):
        tune, cost = encoder.record["tune"], encoder.record["cost"]
        scored = score_encoder(encoder, task, windows)
        assert scored.inner is not None
        score = scored.result.scores[task.metric]
        row = {
            "encoder": str(folder),
            "method": tune["method"],
            "epochs": tune["epochs"],
            "seed": tune["seed"],
            "trained": cost["trained"],
            "parameters": encoder.parameters,
            "seconds_per_1000": cost["seconds_per_1000"],
            "peak_bytes": cost["peak_bytes"],
            "saved_bytes": folder_bytes(folder),
            "inference_per_1000": 1000 * encoder_seconds / min(WINDOWS, len(windows["dev"])),
            "score": score,
            "inner": scored.inner.scores[task.metric],
            "efficiency": efficiency(score, cost["trained"], floor),
        }
        rows.append(row)
    return {"task": task.name, "metric": task.metric, "baseline": {"name": name, "score": floor}, "rows": rows}


def cost_table_text(document: dict[str, Any]) -> str:
    """The table for a terminal."""
    header = (
        "method",
        "trained",
        "of all",
        "s/1,000",
        "peak GB",
        "saved MB",
        "use s/1,000",
        document["metric"],
        "effic.",
    )
    cells = [header]
    for row in document["rows"]:
        share = 100 * row["trained"] / row["parameters"]
        line = (
            f"{row['method']}, {row['epochs']:g} epochs, seed {row['seed']}",
            f"{row['trained']:,}",
            f"{share:.2f} %",
            _number(row["seconds_per_1000"], 1, 1),
            _number(row["peak_bytes"], 1e9, 2),
            _number(row["saved_bytes"], 1e6, 1),
            _number(row["inference_per_1000"], 1, 1),
            _number(row["score"], 1, 2),
            _number(row["efficiency"], 1, 2),
        )
        cells.append(line)
    base = document["baseline"]
    note = f"effic.: points above {base['name']} ({base['score']:.2f}) per tenfold of trained parameters"
    return "\n".join([*align_columns(cells), note])


def _number(value: float | None, unit: float, digits: int) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
