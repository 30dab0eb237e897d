"""Learned layer weights, and training curves: the inner score of every epoch."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.report.charts import curves_legend, layer_weights_chart, seed_dashes, training_curves_chart
from bertvision.report.render import Section, render_section
from bertvision.report.svg import scale_for
from bertvision.runs.reader import FitSummary, Run


def layer_weights_section(run: Run) -> Section | None:
    """Learned layer weights; None if no head has any."""
    groups = [heads for heads in group_by_spec(run.heads) if heads[0].weights]
    if not groups:
        return None
    panels = []
    for heads in groups:
        states, count = heads[0].states, len(heads[0].weights)
        means = [sum(head.weights[i] for head in heads) / len(heads) for i in range(count)]
        largest, smallest = means.index(max(means)), means.index(min(means))
        caption = f"Bars: mean of {len(heads)} seeds; dots: individual seeds. " if len(heads) > 1 else ""
        caption += f"Largest: state {states[largest]} ({means[largest]:.3f}); smallest: state {states[smallest]} "
        caption += f"({means[smallest]:.3f}); uniform weights: {1 / count:.3f}."
        panels.append({"spec": heads[0].spec, "picture": layer_weights_chart(heads), "caption": caption})
    return render_section("layers", "Learned layer weights", panels=panels)


def training_curves_section(run: Run) -> Section | None:
    """One panel per head; None if no head has a training history."""
    groups = [heads for heads in group_by_spec(run.heads) if any(head.history for head in heads)]
    if not groups:
        return None
    scale = scale_for([point["inner"] for head in run.heads for point in head.history])
    dashes = seed_dashes(head.seed for head in run.heads)
    best_seeds = {head.spec: head for head in reversed(run.heads)}
    panels = []
    for heads in groups:
        spec = heads[0].spec
        others = [head for name, head in best_seeds.items() if name != spec]
        picture = training_curves_chart(heads, others, run.board.metric, scale, dashes)
        selected = ", ".join(f"epoch {head.best_epoch} (seed {head.seed})" for head in heads)
        panels.append({"spec": spec, "picture": picture, "caption": f"Selected: {selected}."})
    return render_section("curves", "Training curves", legend=curves_legend(dashes), panels=panels)


def group_by_spec(heads: Sequence[FitSummary]) -> list[list[FitSummary]]:
    """Heads grouped by spec in order of appearance, each group sorted by seed."""
    groups: dict[str, list[FitSummary]] = {}
    for head in heads:
        groups.setdefault(head.spec, []).append(head)
    return [sorted(group, key=lambda head: head.seed) for group in groups.values()]
