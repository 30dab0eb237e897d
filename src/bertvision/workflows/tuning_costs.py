"""What each way of tuning costs and gives, in one table: the encoders that it left, on the same task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes
from bertvision.core.records import align_columns
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
    """A tuned encoder's own head on dev, with the threshold fitted on inner; nothing is stored."""
    states = LiveStates(encoder, task, windows=windows, layers="last1")
    return score_predictions(task, predict_own(states["dev"]))


def cost_table(folders: Sequence[Path], task: Task) -> dict[str, Any]:
    """A row for each encoder folder: what was trained, what it took, what is kept, how fast and how good it is."""
    encoders = []
    for folder in folders:
        encoder = load_encoder(str(folder))
        if encoder.own is None or "trained" not in encoder.record.get("cost", {}):
            what = "was not tuned here, so its cost is unknown; give RUN/encoder folders that tune made"
            raise BadInput(f"{folder} {what}")
        encoders.append(encoder)
    windows = TaskWindows(task, encoders[0])
    seconds = median_encoder_seconds(encoders, windows["dev"])
    name, scores = baseline(task, "dev")
    floor = scores[task.metric]
    rows = []
    for folder, encoder, taken in zip(folders, encoders, seconds, strict=True):
        inference = 1000 * taken / min(WINDOWS, len(windows["dev"]))
        rows.append(_row(folder, encoder, windows, inference, floor))
    return {"task": task.name, "metric": task.metric, "baseline": {"name": name, "score": floor}, "rows": rows}


def _row(folder: Path, encoder: Encoder, windows: TaskWindows, inference: float, floor: float) -> dict[str, Any]:
    tune, cost, metric = encoder.record["tune"], encoder.record["cost"], windows.task.metric
    judged = score_encoder(encoder, windows.task, windows)
    assert judged.inner is not None
    score = judged.result.scores[metric]
    return {
        "encoder": str(folder),
        "method": tune["method"],
        "epochs": tune["epochs"],
        "seed": tune["seed"],
        "trained": cost["trained"],
        "parameters": encoder.parameters,
        "seconds_per_1000": cost["seconds_per_1000"],
        "peak_bytes": cost["peak_bytes"],
        "saved_bytes": folder_bytes(folder),
        "inference_per_1000": inference,
        "score": score,
        "inner": judged.inner.scores[metric],
        "efficiency": efficiency(score, cost["trained"], floor),
    }


def cost_table_text(document: dict[str, Any]) -> str:
    """The table for a terminal."""
    head = (
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
    base = document["baseline"]
    note = f"effic.: points above {base['name']} ({base['score']:.2f}) for each tenfold of trained parameters"
    return "\n".join([*align_columns([head, *(_cells(row) for row in document["rows"])]), note])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    share = 100 * row["trained"] / row["parameters"]
    return (
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


def _number(value: float | None, unit: float, digits: int) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
