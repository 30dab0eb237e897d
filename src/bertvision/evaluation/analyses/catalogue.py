"""Every analysis of a run by name: what it needs, and what it looks at."""

from __future__ import annotations

from collections.abc import Mapping

from bertvision.tasks.task import Task

FILES, STATES, FITS, ENCODER = "files", "states", "fits", "encoder"
ANALYSES: Mapping[str, tuple[str, str]] = {
    "answer-types": (FILES, "spans, with and without an answer, and misses by silence"),
    "second-best": (STATES, "spans, and three labels or more: where the best answer is wrong, is the second right"),
    "agreement": (
        FILES,
        "two predictors side by side, with examples; --pair A B for any two, --beside RUN if B is of that run",
    ),
    "question-word": (FILES, "spans, by question word"),
    "answer-length": (FILES, "spans, by the length of the gold answer"),
    "context-length": (FILES, "spans and labels, by the length of the context; also what only one gets right"),
    "layer-weights": (FILES, "heads that learn weights over the layers"),
    "calibration": (FILES, "what stated probabilities are worth"),
    "cost": (STATES, "score against parameters, training and inference seconds, with the Pareto front"),
    "layers": (FITS, "a linear head on each layer alone"),
    "depth": (FITS, "--head SPEC on the layers 0..k for every k"),
    "ablation": (ENCODER, "adapters of every span of layers switched off"),
    "learning-curve": (FITS, "--head SPEC on --shares of the training data; --beside RUN... with limited encoders"),
}
"""By name what an analysis needs, and what it looks at."""


def supports_second_best(task: Task) -> bool:
    """Whether a second answer tells anything: of two labels it is always the other one."""
    return task.kind == "span" or (task.kind == "classify" and len(task.labels) > 2)
