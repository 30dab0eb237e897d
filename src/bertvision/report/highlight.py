"""Examples as cards: a context with its gold and predicted spans marked, shortened around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bertvision.report.markup import ELLIPSIS, Html
from bertvision.report.render import render

Span = tuple[int, int]

AROUND = 140
"""Characters kept on each side of a span."""
WITHOUT = 360
"""Characters kept of a context in which nothing is marked."""
SNAP = 24
"""How far a cut may move to fall between two words."""


Piece = tuple[str, str, str]
"""A text, what covers it and what ends with it."""


@dataclass(frozen=True)
class Card:
    """An example with what was answered to it."""

    sort: str
    id: str
    question: str | None
    texts: Sequence[str]  # Html where spans are marked
    answers: Sequence[tuple[str, str]]  # who, and what they say
    right: bool | None = None
    stacked: bool = False  # names above their answers and not beside them

    @property
    def look(self) -> str:
        return "card" if self.right is None else "card right" if self.right else "card wrong"


def nearest_occurrence(text: str, context: str, near: Sequence[int]) -> Span | None:
    """Where an answer stands: its occurrence nearest to one of the given places, else the first."""
    if not text:
        return None
    starts, at = [], context.find(text)
    while at >= 0:
        starts.append(at)
        at = context.find(text, at + 1)
    if not starts:
        return None
    best = min(starts, key=lambda start: min((abs(start - other) for other in near), default=start))
    return best, best + len(text)


def place_of(text: str, context: str, near: Sequence[int], known: Sequence[int] | None) -> Span | None:
    """Where an answer stands: as it was kept or, where nothing was kept, a guess.

    A place that does not read as the answer does (the context was cut) is shown nowhere else instead.
    """
    if known is None:
        return nearest_occurrence(text, context, near)
    start, end = known
    return (start, end) if text and context[start:end] == text else None


def marked(context: str, golds: Sequence[Span], predicted: Span | None) -> Html:
    """The parts of a context that hold a span, spans marked, what is left out shown as dots."""
    named = [*((span, "gold") for span in golds), *([(predicted, "predicted")] if predicted else [])]
    pieces: list[Piece] = []
    shown_to = 0
    for start, end in _kept(context, [span for span, _ in named]):
        if start > shown_to:
            pieces.append((f" {ELLIPSIS} ", "", ""))
        pieces += _pieces(context, start, end, named)
        shown_to = end
    if shown_to < len(context):
        pieces.append((f" {ELLIPSIS}", "", ""))
    return render("marks", pieces=pieces)


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


def _pieces(context: str, start: int, end: int, named: Sequence[tuple[Span, str]]) -> list[Piece]:
    """A stretch cut at every edge of a span."""
    edges = sorted({start, end, *(edge for span, _ in named for edge in span if start < edge < end)})
    pieces = []
    for left, right in pairwise(edges):
        covering = [(span, name) for span, name in named if span[0] <= left and right <= span[1]]
        covers = sorted({name for _, name in covering})
        ends = sorted({name for span, name in covering if span[1] == right})
        pieces.append((context[left:right], " ".join(covers), " + ".join(ends)))
    return pieces
