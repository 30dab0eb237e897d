"""A context with its gold and predicted spans marked, shortened around them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bertvision.report.markup import ELLIPSIS, Html, join, tag

Span = tuple[int, int]

AROUND = 140
"""Characters kept on each side of a span."""
WITHOUT = 360
"""Characters kept of a context in which nothing is marked."""
GUESSED = (
    "This run did not keep where its answers stand: of several places that read the same, the one nearest to a gold "
    "answer is framed, which may not be the one that was chosen."
)
SNAP = 24
"""How far a cut may move to fall between two words."""


def locate(text: str, context: str, near: Sequence[int]) -> Span | None:
    """Where an answer stands: its occurrence nearest to one of the given places, else the first."""
    if not text:
        return None
    starts, at = [], context.find(text)
    while at >= 0:
        starts.append(at)
        at = context.find(text, at + 1)
    if not starts:
        return None
    best = min(starts, key=lambda start: min((abs(start - place) for place in near), default=start))
    return best, best + len(text)


def place_of(text: str, context: str, near: Sequence[int], known: Sequence[int] | None) -> Span | None:
    """Where an answer stands: as it was kept or, where nothing was kept, a guess.

    A place that does not read as the answer does (the context was cut) is shown nowhere else instead.
    """
    if known is None:
        return locate(text, context, near)
    start, end = known
    return (start, end) if text and context[start:end] == text else None


def marked(context: str, golds: Sequence[Span], said: Span | None) -> Html:
    """The parts of a context that hold a span, spans marked, what is left out shown as dots."""
    spans = [*golds, *([said] if said else [])]
    parts: list[object] = []
    shown_to = 0
    for start, end in _kept(context, spans):
        parts.append(f" {ELLIPSIS} " if start > shown_to else "")
        parts.extend(_pieces(context, start, end, golds, said))
        shown_to = end
    parts.append(f" {ELLIPSIS}" if shown_to < len(context) else "")
    return join(parts)


def _kept(context: str, spans: Sequence[Span]) -> list[Span]:
    """Stretches around the spans, cut between words, joined where they meet."""
    if not spans:
        return [(0, _word_end(context, WITHOUT))]
    kept: list[Span] = []
    for start, end in sorted((_word_start(context, s - AROUND), _word_end(context, e + AROUND)) for s, e in spans):
        if kept and start <= kept[-1][1] + SNAP:
            kept[-1] = kept[-1][0], max(end, kept[-1][1])
        else:
            kept.append((start, end))
    return kept


def _word_start(context: str, at: int) -> int:
    if at <= SNAP:
        return 0
    space = context.find(" ", at, at + SNAP)
    return at if space < 0 else space + 1


def _word_end(context: str, at: int) -> int:
    if at >= len(context) - SNAP:
        return len(context)
    space = context.rfind(" ", at - SNAP, at)
    return at if space < 0 else space


def _pieces(context: str, start: int, end: int, golds: Sequence[Span], said: Span | None) -> list[Html]:
    """A stretch cut at every edge of a span; each piece knows what covers it and what ends with it."""
    spans = [*((span, "gold") for span in golds), *([(said, "predicted")] if said else [])]
    edges = sorted({start, end, *(edge for span, _ in spans for edge in span if start < edge < end)})
    pieces = []
    for left, right in pairwise(edges):
        covers = {name for span, name in spans if span[0] <= left and right <= span[1]}
        ends = sorted({name for span, name in spans if span[1] == right and name in covers})
        pieces.append(_piece(context[left:right], covers, ends))
    return pieces


def _piece(text: str, covers: set[str], ends: Sequence[str]) -> Html:
    if not covers:
        return join([text])
    label = tag("sup", " + ".join(ends)) if ends else ""
    return tag("mark", text, label, class_=" ".join(sorted(covers)))
