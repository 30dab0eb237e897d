"""The records that the parts pass to each other: plain data, no behaviour beyond shape checks.

torch is named for type checking only, so that scoring a file never waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Kind = Literal["span", "classify", "multilabel", "regress"]
"""What a task asks for: a stretch of the context, one of several labels, any number of them, or a number."""

ROW_KINDS: tuple[Kind, ...] = ("span", "multilabel")
"""Kinds whose target is several numbers a window: start and end token, or 0 or 1 for each label."""

SPLITS = ("train", "inner", "dev")

CONTROL = "probe:layers=last1"
"""The head that shows what refitting the last layer alone gains."""

NO_OFFSET = -1
"""Character offset of a token that is not part of the text an answer may come from."""

SURE = 0.05
"""A corrected p below this is told as a difference."""

MOST_NAMED = 3
"""Predictors that make no difference are counted, not named, if there are more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer: its text, and where it starts in the context (characters)."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text, pair of texts, or question with its context.

    Spans: ``text`` is the question, ``pair`` the context, ``answers`` the gold answers (none =
    unanswerable). Labels and values: ``text``, perhaps ``pair``, and ``label`` (an index into the
    task's labels, or a number) or, where there may be any number of them, ``labels`` (indices in
    order, perhaps none). ``group`` names what must stay on one side of a split: the article or the
    context.
    """

    id: str
    text: str
    pair: str | None = None
    answers: tuple[Answer, ...] = ()
    label: float | None = None
    group: str = ""
    labels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """One encoder input: the tokens of an example, or of a part of its context.

    ``offsets[t]`` are the characters of the context (spans) that token t covers, NO_OFFSET for the
    question, special tokens and everything else that cannot be answered with. ``target`` is
    (start token, end token) for spans, 0 or 1 for each label where there may be several, and
    (label,) or (value,) otherwise.
    """

    example: int
    input_ids: NDArray[np.int32]  # (tokens,)
    token_types: NDArray[np.uint8]  # (tokens,)
    offsets: NDArray[np.int32]  # (tokens, 2)
    cls: int
    target: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class Shape:
    """What a head is built for: states per token, their width, tokens, outputs and kind."""

    layers: int
    width: int
    tokens: int
    outputs: int
    kind: Kind


@dataclass(frozen=True)
class LayerBatch:
    """All layers' states of a few windows, with everything a head may be trained on."""

    hidden: Tensor  # (batch, tokens, layers, width)
    mask: Tensor  # (batch, tokens), true where there is a token
    targets: Tensor  # (batch, 2) start and end token, (batch, labels) 0 or 1, or (batch,) label or value
    windows: Tensor  # (batch,) window number within the split
    pooled: Tensor | None = None  # (batch, width)
    logits: Tensor | None = None  # the encoder's own: (batch, tokens, 2) or (batch, outputs)

    @cached_property
    def states(self) -> Tensor:
        """The same without padding: (real tokens, layers, width), window after window."""
        return self.hidden[self.mask]

    @cached_property
    def first(self) -> Tensor:
        """The first token's, CLS: (batch, layers, width)."""
        return self.hidden[:, 0]

    def to(self, device: torch.device) -> LayerBatch:
        """What heads look at, on another device."""
        hidden, mask, targets = (one.to(device) for one in (self.hidden, self.mask, self.targets))
        pooled = None if self.pooled is None else self.pooled.to(device)
        return replace(self, hidden=hidden, mask=mask, targets=targets, pooled=pooled)


@dataclass(frozen=True)
class WindowTable:
    """What decoding needs to know of each window of a split, in window order."""

    example: NDArray[np.int64]  # (windows,) index into the split's examples
    cls: NDArray[np.int64]  # (windows,) position of the CLS token
    offsets: Sequence[NDArray[np.int32]]  # per window (tokens, 2)
    targets: NDArray[np.float64]  # (windows, 2), (windows, labels) or (windows, 1)
    input_ids: Sequence[NDArray[np.int32]] = ()  # per window (tokens,); only answers as word pieces need them

    def __len__(self) -> int:
        return len(self.example)


@dataclass(frozen=True)
class Predictions:
    """Raw outputs of one predictor over one split, in window order.

    ``logits``: per window (tokens, 2) for spans, (outputs,) otherwise. ``inner`` holds the same
    predictor's outputs on the inner split; whatever is fitted after training (no-answer threshold,
    ensemble weights) is fitted there and nowhere else.
    """

    name: str
    spec: str
    kind: Literal["encoder", "head", "ensemble"]
    split: str
    logits: Sequence[NDArray[np.float32]]
    table: WindowTable
    seed: int | None = None
    parameters: int = 0
    encoder_parameters: int = 0
    seconds: float = 0.0
    inner: Predictions | None = None
    members: tuple[str, ...] = ()  # an ensemble's: "encoder" or spec@seed
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of a leaderboard."""

    name: str
    spec: str
    kind: Literal["encoder", "head", "ensemble"]
    seed: int | None
    parameters: int
    percent: float
    scores: Mapping[str, float]
    inner: Mapping[str, float]
    seconds: float
    threshold: float | None = None
    members: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None  # of the metric, for the luck of the examples
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # no-answer: zero, fitted, oracle
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by kind of probability


@dataclass(frozen=True)
class SeedSummary:
    """One predictor with all its seeds: mean and spread of the metric, and the interval of the mean."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seeds: tuple[int, ...]
    mean: float
    std: float | None
    min: float
    max: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class PairedTest:
    """Two predictors on the same examples: a minus b, its interval, and p before and after correction."""

    a: str
    b: str
    difference: float
    low: float | None  # no interval where all examples share one context
    high: float | None
    p: float
    p_holm: float  # corrected for all comparisons that it stands among
    a_seeds: tuple[int, ...] = ()  # what each side is the mean over
    b_seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reliability:
    """How probabilities of one sort fare, before and after the temperature: (stated, found, count) of each bin."""

    name: str
    seed: int | None
    what: str  # label, answer or no_answer
    raw: tuple[tuple[float, float, int], ...]
    calibrated: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Board:
    """A leaderboard: every predictor's scores on one split of one task, and how far they can be trusted."""

    task: str
    split: str
    metric: str
    rows: tuple[Row, ...] = field(default_factory=tuple)
    summary: tuple[SeedSummary, ...] = ()
    best_head: str | None = None  # by the mean on inner over its seeds
    comparisons: tuple[PairedTest, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    resampling_info: Mapping[str, Any] = field(default_factory=dict)  # what intervals and tests rest on

    def __str__(self) -> str:
        return board_text(self)


BOARD_KEYS = {"summary": "lines", "resampling_info": "basis"}
"""Fields of a board whose key in leaderboard.json is another name."""


def board_document(board: Board) -> dict[str, Any]:
    """The board as leaderboard.json has it."""
    return {BOARD_KEYS.get(name, name): value for name, value in asdict(board).items()}


def board_text(board: Board) -> str:
    """The table and the words."""
    return "\n".join([*_table(board), *board_words(board)])


def _table(board: Board) -> list[str]:
    names = [name for name in board.rows[0].scores if not name.endswith("total")] if board.rows else []
    told = any(row.interval for row in board.rows)
    head = ["predictor", "seed", "parameters", "% of encoder", *names, *([f"{board.metric} 95 %"] if told else [])]
    lines = [[*_row_cells(row, names), *([_interval(row)] if told else [])] for row in board.rows]
    inner = [f"{row.inner.get(board.metric, float('nan')):.2f}" for row in board.rows]
    cells = [[*head, f"inner {board.metric}"], *([*line, score] for line, score in zip(lines, inner, strict=True))]
    return aligned(cells)


def _row_cells(row: Row, names: Sequence[str]) -> list[str]:
    seed = "" if row.seed is None else str(row.seed)
    scores = [f"{row.scores[name]:.2f}" for name in names]
    return [row.name, seed, f"{row.parameters:,}", f"{row.percent:.3f}", *scores]


def _interval(row: Row) -> str:
    return "" if row.interval is None else f"{row.interval[0]:.1f} to {row.interval[1]:.1f}"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells as columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(wide) for cell, wide in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    ]


def board_words(board: Board) -> list[str]:
    """What the table cannot say: luck of the examples, thresholds, and how honest the probabilities are."""
    references = [*(row.name for row in board.rows if row.kind == "encoder"), CONTROL]
    lines = [_beside(board, name) for name in references if _against(board, name)]
    return [*([_basis(board)] if board.resampling_info else []), *lines, *_no_answer(board), *_calibration(board)]


def _basis(board: Board) -> str:
    basis = board.resampling_info
    seeds = "; a seed varies the head's start, the encoder is the same" if any(_several(board)) else ""
    return (
        f"95 %: luck of the examples, {basis['draws']:,} samples of the {basis['clusters']:,} {basis['of']} of "
        f"{board.split}{seeds}"
    )


def _several(board: Board) -> list[bool]:
    return [len(line.seeds) > 1 for line in board.summary]


def _against(board: Board, name: str) -> list[PairedTest]:
    """All comparisons with a predictor, it on the second side."""
    return [_turned(one, name) for one in board.comparisons if name in (one.a, one.b)]


def _turned(one: PairedTest, second: str) -> PairedTest:
    if one.b == second:
        return one
    low, high = (None if end is None else -end for end in (one.high, one.low))
    return PairedTest(one.b, one.a, -one.difference, low, high, one.p, one.p_holm, one.b_seeds, one.a_seeds)


def compared_with(board: Board, name: str, reference: str) -> PairedTest | None:
    """A predictor minus a reference, if the board has that comparison."""
    return next((one for one in _against(board, reference) if one.a == name), None)


def _beside(board: Board, name: str) -> str:
    found = _against(board, name)
    sure = [one for one in found if one.p_holm < SURE]
    sorts = {
        "ahead": [one.a for one in sure if one.difference > 0],
        "behind": [one.a for one in sure if one.difference < 0],
        "not distinguishable": [one.a for one in found if one.p_holm >= SURE],
    }
    told = "; ".join(f"{sort}: {_named(names, sort)}" for sort, names in sorts.items() if names)
    title = "the control" if name == CONTROL else name
    return f"beside {title} (p < {SURE}, Holm over {len(board.comparisons)} tests): {told}"


def _named(names: Sequence[str], sort: str) -> str:
    if sort != "not distinguishable" or len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{len(names)} predictors"


def _no_answer(board: Board) -> list[str]:
    row = next(iter(board.rows), None)
    if row is None or not row.thresholds:
        return []
    at, metric = row.thresholds, board.metric
    fitted = (
        f", {at['fitted'][metric]:.2f} at {at['fitted']['threshold']:.2f} (fitted on inner)" if "fitted" in at else ""
    )
    oracle = f"{at['oracle'][f'best_{metric}']:.2f} at {at['oracle'][f'best_{metric}_thresh']:.2f}"
    return [
        f"no-answer threshold of {_title(row)}: {metric} {at['zero'][metric]:.2f} at 0{fitted}; "
        f"{oracle} would be best on {board.split} (an oracle, never used)"
    ]


def _calibration(board: Board) -> list[str]:
    row = next(iter(board.rows), None)
    if row is None or not row.calibration:
        return []
    told = [
        f"{what.replace('_', '-')} {100 * one['ece_raw']:.1f} -> {100 * one['ece']:.1f} (T = {one['temperature']:.2f})"
        for what, one in row.calibration.items()
    ]
    return [f"calibration error of {_title(row)} in points, before -> after temperature: {', '.join(told)}"]


def _title(row: Row) -> str:
    return row.name if row.seed is None else f"{row.name}@{row.seed}"
