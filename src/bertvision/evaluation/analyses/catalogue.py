"""All analyses of a run by name, with what each needs and shows."""

from __future__ import annotations

from collections.abc import Mapping

from bertvision.tasks.task import Task

FILES, STATES, FITS, ENCODER = "files", "states", "fits", "encoder"
ANALYSES: Mapping[str, tuple[str, str]] = {
    "answer-types": (FILES, "spans: accuracy with and without an answer, and empty answers among the misses"),
    "second-best": (
        STATES,
        "spans, and three or more labels: how often the second answer is right where the best is wrong",
    ),
    "agreement": (
        FILES,
        "pairs of predictors, with examples; --pair A B for any two, --beside RUN to take B from another run",
    ),
    "question-word": (FILES, "spans: accuracy by question word"),
    "answer-length": (FILES, "spans: accuracy by the length of the gold answer"),
    "context-length": (FILES, "spans and labels: accuracy by context length, also where only one predictor is right"),
    "layer-weights": (FILES, "learned layer weights of the heads that have them"),
    "calibration": (FILES, "temperatures and calibration errors"),
    "labels": (
        STATES,
        "labels and values: training rows whose label is likely wrong, by predictions of heads fitted without them",
    ),
    "cost": (STATES, "score against parameters, training and inference seconds, with the Pareto front"),
    "layers": (FITS, "a linear head on each layer separately"),
    "depth": (FITS, "--head SPEC on layers 0..k for every k"),
    "ablation": (ENCODER, "score without the adapters of every span of layers"),
    "learning-curve": (
        FITS,
        "--head SPEC on --shares of the training data; --beside RUN... adds encoders tuned on less data",
    ),
}
"""Name -> (what the analysis needs, what it shows)."""


def supports_second_best(task: Task) -> bool:
    """Whether the second answer is informative; with two labels it is always the other one."""
    return task.kind == "span" or (task.kind == "classify" and len(task.labels) > 2)
