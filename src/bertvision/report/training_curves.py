"""What the heads learned: weights over the layers, and the score on inner epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.report.charts import curves_legend, layer_weights_chart, seed_dashes, training_curves_chart
from bertvision.report.render import Section, section
from bertvision.report.svg import scale_of
from bertvision.runs.reader import FitSummary, Run


def weights_section(run: Run) -> Section | None:
    """Nothing if no head has weights over layers."""
    groups = [heads for heads in group_by_spec(run.heads) if heads[0].weights]
    if not groups:
        return None
    panels = [
        {"spec": heads[0].spec, "picture": layer_weights_chart(heads), "caption": _weights_caption(heads)}
        for heads in groups
    ]
    return section("layers", "Learned layer weights", panels=panels)


def _weights_caption(heads: Sequence[FitSummary]) -> str:
    states, count = heads[0].states, len(heads[0].weights)
    means = [sum(head.weights[i] for head in heads) / len(heads) for i in range(count)]
    most, least = means.index(max(means)), means.index(min(means))
    several = f"Bars: mean of {len(heads)} seeds; dots: each seed. " if len(heads) > 1 else ""
    return (
        f"{several}Most on state {states[most]} ({means[most]:.3f}), least on state {states[least]} "
        f"({means[least]:.3f}); equal weights would be {1 / count:.3f}."
    )


def curves_section(run: Run) -> Section | None:
    """One panel a head; nothing if no head has a history."""
    groups = [heads for heads in group_by_spec(run.heads) if any(head.history for head in heads)]
    if not groups:
        return None
    scale = scale_of([point["inner"] for head in run.heads for point in head.history])
    dashes = seed_dashes(head.seed for head in run.heads)
    best = {head.spec: head for head in reversed(run.heads)}
    panels = []
    for heads in groups:
        spec = heads[0].spec
        others = [head for name, head in best.items() if name != spec]
        picture = training_curves_chart(heads, others, run.board.metric, scale, dashes)
        kept = ", ".join(f"epoch {head.best_epoch} (seed {head.seed})" for head in heads)
        panels.append({"spec": spec, "picture": picture, "caption": f"Kept: {kept}."})
    return section("curves", "Learning curves", legend=curves_legend(dashes), panels=panels)


def group_by_spec(heads: Sequence[FitSummary]) -> list[list[FitSummary]]:
    """Heads of one spec together, by seed, in the order of the specs."""
    groups: dict[str, list[FitSummary]] = {}
    for head in heads:
        groups.setdefault(head.spec, []).append(head)
    return [sorted(group, key=lambda head: head.seed) for group in groups.values()]
