"""Heads that a run trains by default, and its controls. Chosen on real tasks: docs/results/quality.md."""

from __future__ import annotations

from bertvision.core.records import FIRST_CONTROL, Kind

QUICK = "quick"
"""Stands for :func:`quick_heads` in recipes and on the command line."""

SPAN_HEADS = ("mean-pool", "learned-pool", "probe", "compress:size=64", "compress:size=64,skip=true")

TEXT_HEADS = (
    "ridge",
    "ridge:read=mean+max",
    "compress:size=64,read=mean",
    "compress:size=64,layers=last4,read=mean",
)

TUNED_TEXT_HEADS = ("ridge", "ridge:read=cls", "compress:size=64", "compress:size=64,read=mean")
"""Tuning changes what CLS says, so heads read it as well as the mean."""

PAIR_HEADS = (
    "ridge",
    "compress:size=64,layers=last4,read=mean",
    "ridge:read=difference+product",
    "compress:size=64,read=difference+product",
)
"""For pairs whose texts are also encoded apart. Fewer heads read the pair together: untuned, these are weak."""

TEXT_CONTROLS = ("ridge:layers=last1", "ridge:layers=last1,read=cls")
PAIR_CONTROLS = ("ridge:layers=last1,read=difference+product",)


def control_heads(kind: Kind, apart: bool = False) -> tuple[str, ...]:
    """Linear heads on the last layer only; the control is the one with the best score on the validation split."""
    if kind == "span":
        return (FIRST_CONTROL,)
    return (*TEXT_CONTROLS, *(PAIR_CONTROLS if apart else ()))


def quick_heads(kind: Kind, tuned: bool, apart: bool = False) -> tuple[str, ...]:
    """The heads of ``--heads quick``, controls included, for a tuned encoder or one as it came.

    ``apart``: the texts of pairs are encoded apart, too.
    """
    if kind == "span":
        return (*control_heads(kind), *SPAN_HEADS)
    heads = PAIR_HEADS if apart else TUNED_TEXT_HEADS if tuned else TEXT_HEADS
    return (*control_heads(kind, apart), *heads)
