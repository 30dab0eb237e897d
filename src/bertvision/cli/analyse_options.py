"""Which options of ``analyse`` go with what: one that would change nothing is refused, not passed over."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bertvision.core.errors import BadInput

FITS = ("layers", "depth", "learning-curve")
USED = {
    "pair": ("agreement",),
    "head": ("depth", "learning-curve"),
    "shares": ("learning-curve",),
    "beside": ("learning-curve", "agreement"),
    "seeds": FITS,
    "set": FITS,
}
"""By option the analyses that look at it."""
OF_DEPTH = ("seeds", "set")
"""What --depth SPEC takes too."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse what does not apply, in a line."""
    given = [name for name in USED if getattr(options, name)]
    if options.folder is None:
        raise BadInput("analyse needs RUN, a folder that run or fit made; only --list goes without")
    if options.depth is None and options.within is not None:
        raise BadInput("--within goes with --depth SPEC")
    if options.ablation or options.depth is not None:
        way, takes = ("--ablation", ()) if options.ablation else ("--depth SPEC", OF_DEPTH)
        _check_alone(way, [*(["what"] if options.what else []), *(name for name in given if name not in takes)])
    else:
        _check_used(given, options.what)


def _check_alone(way: str, strange: Iterable[str]) -> None:
    for name in strange:
        raise BadInput(f"--{name} does not go with {way}, which makes one analysis only; leave one of them out")


def _check_used(given: Iterable[str], what: Iterable[str] | None) -> None:
    from bertvision.evaluation.analyses.catalogue import ANALYSES
    from bertvision.workflows.analyse import wanted_names

    wanted = wanted_names(what)
    if any(name not in ANALYSES for name in wanted):
        return  # which is refused with the name that was meant
    for name in given:
        if not set(USED[name]) & set(wanted):
            raise BadInput(f"--{name} is for {', '.join(USED[name])}; add --what {USED[name][0]}, or leave it out")
