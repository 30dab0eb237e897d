"""Adapter ablation: the share of the score that is lost without the adapters of a span of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertvision.evaluation.analyses.result import Finding, Plot, Point

COLUMNS = {"first": "first layer off", "last": "last layer off", "score": "score", "decrease": "% lost"}


def percent_lost(whole: float, score: float) -> float:
    """Relative loss of a score, in percent."""
    return 100 * (whole - score) / whole


def ablation_finding(document: Mapping[str, Any]) -> Finding:
    """The finding for the document that :func:`bertvision.workflows.refit_analyses.ablate` returns."""
    metric, whole, rows = document["metric"], document["score"], document["rows"]
    names = tuple(str(layer + 1) for layer in range(document["layers"]))
    series: dict[str, list[Point]] = {name: [] for name in names}
    for row in rows:
        series[str(row["first"])].append((row["last"] - 1.0, row["decrease"], f"{metric} {row['score']:.1f}"))
    about = (
        f"The trained adapters ({document['method']}) of each span of layers are switched off without retraining. "
        f"Shown is how much of the encoder's own {metric} ({whole:.1f} on {document['split']}) is lost."
    )
    x, y = "last layer without adapters", "first layer without adapters"
    plot = Plot("heat", x, y, series, names, legend=f"% of {metric} {whole:.1f} lost")
    return Finding("ablation", "Adapters switched off", about, COLUMNS, tuple(rows), (plot,))
