"""What the heads learned: weights over the layers, and the score on inner epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.report.charts import curves_legend, curves_picture, seed_dashes, weights_picture
from bertvision.report.markup import Html, Section, section, tag
from bertvision.report.svg import scale_of
from bertvision.runs.reader import HeadFacts, Run

HOW_TO_READ_WEIGHTS = (
    "Some heads mix the states of all layers with learned weights that add up to 1. State 0 is the embedding output, "
    "the highest is what the encoder usually gives. A bar above the dashed line is a state that the head takes more "
    "of than an equal mix would. Weights start almost equal: bars that are still so mean that no layer stood out, or "
    "that the head had too few steps to tell. States differ in length, so weights compare layers only roughly."
)
HOW_TO_READ_CURVES = (
    "Score on inner after every epoch. The ringed epoch is the one that was kept; a ring on the last epoch says that "
    "more epochs may help. Grey lines are the other heads (their best seed), on the same scale."
)


def weights_section(run: Run) -> Section | None:
    """Nothing if no head has such weights."""
    groups = [heads for heads in by_spec(run.heads) if heads[0].weights]
    if not groups:
        return None
    panels = [_panel(heads[0].spec, weights_picture(heads), _told_weights(heads)) for heads in groups]
    return section(
        "layers", "Learned layer weights", tag("p", HOW_TO_READ_WEIGHTS), tag("div", *panels, class_="panels wide")
    )


def _told_weights(heads: Sequence[HeadFacts]) -> str:
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
    groups = [heads for heads in by_spec(run.heads) if any(head.history for head in heads)]
    if not groups:
        return None
    scale = scale_of([point["inner"] for head in run.heads for point in head.history])
    dashes = seed_dashes(head.seed for head in run.heads)
    best = list({head.spec: head for head in reversed(run.heads)}.values())
    panels = []
    for heads in groups:
        others = [head for head in best if head.spec != heads[0].spec]
        picture = curves_picture(heads, others, run.board.metric, scale, dashes)
        panels.append(_panel(heads[0].spec, picture, _kept(heads)))
    legend, box = curves_legend(dashes), tag("div", *panels, class_="panels")
    return section("curves", "Learning curves", tag("p", HOW_TO_READ_CURVES), legend, box)


def _kept(heads: Sequence[HeadFacts]) -> str:
    return "Kept: " + ", ".join(f"epoch {head.best_epoch} (seed {head.seed})" for head in heads) + "."


def by_spec(heads: Sequence[HeadFacts]) -> list[list[HeadFacts]]:
    """Heads of one spec together, by seed, in the order of the specs."""
    groups: dict[str, list[HeadFacts]] = {}
    for head in heads:
        groups.setdefault(head.spec, []).append(head)
    return [sorted(group, key=lambda head: head.seed) for group in groups.values()]


def _panel(title: str, picture: Html, caption: str) -> Html:
    return tag("figure", tag("h3", tag("code", title)), picture, tag("figcaption", caption))
