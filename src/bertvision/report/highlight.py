"""Example cards, and contexts shortened around their highlighted gold and predicted spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bertvision.report.markup import ELLIPSIS, Html
from bertvision.report.render import render

Span = tuple[int, int]

MARGIN = 140
"""Characters kept on each side of a span."""
MAX_EXCERPT = 360
"""Characters kept of a context without spans."""
MAX_CUT_SHIFT = 24
"""Characters that a cut may move to fall between two words."""


Piece = tuple[str, str, str]
"""A text, the names of the spans that cover it, and the names of those that end with it."""


@dataclass(frozen=True)
class Card:
    """An example with its predicted answers, as shown on the page."""

    category: str
    id: str
    question: str | None
    texts: Sequence[str]  # Html where spans are highlighted
    answers: Sequence[tuple[str, str]]  # predictor, answer
    right: bool | None = None
    stacked: bool = False  # names above the answers instead of in a column

    @property
    def css_class(self) -> str:
        return "card" if self.right is None else "card right" if self.right else "card wrong"


def nearest_occurrence(text: str, context: str, near: Sequence[int]) -> Span | None:
    """The occurrence of a text nearest to one of the given offsets, or the first without offsets."""
    if not text:
        return None
    starts, start = [], context.find(text)
    while start >= 0:
        starts.append(start)
        start = context.find(text, start + 1)
    if not starts:
        return None
    best = min(starts, key=lambda start: min((abs(start - other) for other in near), default=start))
    return best, best + len(text)


def answer_span(text: str, context: str, near: Sequence[int], saved: Sequence[int] | None) -> Span | None:
    """The span of an answer: the saved one, or a guess if None was saved.

    A saved span whose text differs from the answer (in a context that was shortened) is not replaced by a guess.
    """
    if saved is None:
        return nearest_occurrence(text, context, near)
    start, end = saved
    return (start, end) if text and context[start:end] == text else None


def highlight_answers(context: str, golds: Sequence[Span], predicted: Span | None) -> Html:
    """The parts of a context around its spans, with the spans highlighted and ellipses for the rest."""
    labelled = [*((span, "gold") for span in golds), *([(predicted, "predicted")] if predicted else [])]
    pieces: list[Piece] = []
    shown_to = 0
    for start, end in _excerpts(context, [span for span, _ in labelled]):
        if start > shown_to:
            pieces.append((f" {ELLIPSIS} ", "", ""))
        pieces += _pieces(context, start, end, labelled)
        shown_to = end
    if shown_to < len(context):
        pieces.append((f" {ELLIPSIS}", "", ""))
    return render("marks", pieces=pieces)


def _excerpts(context: str, spans: Sequence[Span]) -> list[Span]:
    """Parts of the context around the spans, cut between words and merged where they touch."""
    if not spans:
        return [(0, _word_end(context, MAX_EXCERPT))]
    excerpts: list[Span] = []
    for start, end in sorted((_word_start(context, s - MARGIN), _word_end(context, e + MARGIN)) for s, e in spans):
        if excerpts and start <= excerpts[-1][1] + MAX_CUT_SHIFT:
            excerpts[-1] = excerpts[-1][0], max(end, excerpts[-1][1])
        else:
            excerpts.append((start, end))
    return excerpts


def _word_start(context: str, offset: int) -> int:
    if offset <= MAX_CUT_SHIFT:
        return 0
    space = context.find(" ", offset, offset + MAX_CUT_SHIFT)
    return offset if space < 0 else space + 1


def _word_end(context: str, offset: int) -> int:
    if offset >= len(context) - MAX_CUT_SHIFT:
        return len(context)
    space = context.rfind(" ", offset - MAX_CUT_SHIFT, offset)
    return offset if space < 0 else space


def _pieces(context: str, start: int, end: int, labelled: Sequence[tuple[Span, str]]) -> list[Piece]:
    """A part of the context, split at every start and end of a span."""
    edges = sorted({start, end, *(edge for span, _ in labelled for edge in span if start < edge < end)})
    pieces = []
    for left, right in pairwise(edges):
        covering = [(span, name) for span, name in labelled if span[0] <= left and right <= span[1]]
        covers = sorted({name for _, name in covering})
        ends = sorted({name for span, name in covering if span[1] == right})
        pieces.append((context[left:right], " ".join(covers), " + ".join(ends)))
    return pieces
