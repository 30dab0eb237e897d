"""What trained adapters are worth: the share of the score that is lost without those of a span of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertvision.evaluation.analyses.result import Finding, Plot, Point

COLUMNS = {"first": "first layer without", "last": "last layer without", "score": "score", "decrease": "% lost"}


def percent_lost(whole: float, score: float) -> float:
    """The share of a score that is lost, in per cent."""
    return 100 * (whole - score) / whole


def ablation_finding(document: Mapping[str, Any]) -> Finding:
    """Out of what :func:`bertvision.workflows.refit_analyses.ablate` gives: rows of first, last, score, decrease."""
    metric, whole, rows = document["metric"], document["score"], document["rows"]
    names = tuple(str(layer + 1) for layer in range(document["layers"]))
    series: dict[str, list[Point]] = {name: [] for name in names}
    for row in rows:
        series[str(row["first"])].append((row["last"] - 1.0, row["decrease"], f"{metric} {row['score']:.1f}"))
    about = (
        f"The trained adapters ({document['method']}) of every span of layers switched off, without training anew: "
        f"how much of the encoder's own {metric}, {whole:.1f} on {document['split']}, is lost."
    )
    across, down = "last layer without adapters", "first layer without adapters"
    picture = Plot("heat", across, down, series, names, legend=f"% of {metric} {whole:.1f} lost")
    return Finding("ablation", "Adapters switched off", about, COLUMNS, tuple(rows), (picture,))
