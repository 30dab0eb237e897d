"""The records that the packages pass to each other, and the text of a leaderboard.

torch is imported for type checking only, so that scoring a file never waits for it.
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
"""What a task predicts: a span of the context, one of several labels, any number of labels, or a number."""

ROW_KINDS: tuple[Kind, ...] = ("span", "multilabel")
"""Kinds with several targets per window: start and end token, or 0 or 1 for each label."""

SPLITS = ("train", "inner", "dev")

CONTROL = "probe:layers=last1"
"""The control head: it shows what refitting the last layer alone gains."""

NO_OFFSET = -1
"""Character offset of a token that no answer may come from."""

SURE = 0.05
"""Significance level: a difference with a corrected p below this is reported as one."""

MOST_NAMED = 3
"""Largest number of indistinguishable predictors that are listed by name; more are counted."""


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
    """Input and output sizes of a head: states per token, their width, tokens, outputs and kind."""

    layers: int
    width: int
    tokens: int
    outputs: int
    kind: Kind


@dataclass(frozen=True)
class LayerBatch:
    """All layers' hidden states of a few windows, with the targets a head is trained on."""

    hidden: Tensor  # (batch, tokens, layers, width)
    mask: Tensor  # (batch, tokens), true where there is a token
    targets: Tensor  # (batch, 2) start and end token, (batch, labels) 0 or 1, or (batch,) label or value
    windows: Tensor  # (batch,) window number within the split
    pooled: Tensor | None = None  # (batch, width)
    logits: Tensor | None = None  # the encoder's own: (batch, tokens, 2) or (batch, outputs)

    @cached_property
    def states(self) -> Tensor:
        """Hidden states without padding: (real tokens, layers, width), window after window."""
        return self.hidden[self.mask]

    @cached_property
    def first(self) -> Tensor:
        """Hidden states of the first token, CLS: (batch, layers, width)."""
        return self.hidden[:, 0]

    def to(self, device: torch.device) -> LayerBatch:
        """Move the tensors that heads use to another device."""
        return replace(
            self,
            hidden=self.hidden.to(device),
            mask=self.mask.to(device),
            targets=self.targets.to(device),
            pooled=None if self.pooled is None else self.pooled.to(device),
        )


@dataclass(frozen=True)
class WindowTable:
    """Facts about each window of a split that decoding needs, in window order."""

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
    interval: tuple[float, float] | None = None  # of the metric, over resampled examples
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # no-answer: zero, fitted, oracle
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by kind of probability


@dataclass(frozen=True)
class SeedSummary:
    """The metric of one predictor over all its seeds: mean, spread, and the interval of the mean."""

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
    p_holm: float  # corrected for all tests of the same family
    a_seeds: tuple[int, ...] = ()  # seeds that each predictor is the mean over
    b_seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reliability:
    """Reliability bins of one kind of probability, before and after the temperature: (confidence, accuracy, count)."""

    name: str
    seed: int | None
    what: str  # label, answer or no_answer
    raw: tuple[tuple[float, float, int], ...]
    calibrated: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Board:
    """A leaderboard: the scores of every predictor on one split of one task, with intervals and paired tests."""

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
    """The table, and the sentences below it."""
    return "\n".join([*_table(board), *board_notes(board)])


def _table(board: Board) -> list[str]:
    names = [name for name in board.rows[0].scores if not name.endswith("total")] if board.rows else []
    has_intervals = any(row.interval for row in board.rows)
    header = ["predictor", "seed", "parameters", "% of encoder", *names]
    header += [f"{board.metric} 95 %"] if has_intervals else []
    lines = [[*header, f"inner {board.metric}"]]
    for row in board.rows:
        cells = [row.name, "" if row.seed is None else str(row.seed), f"{row.parameters:,}", f"{row.percent:.3f}"]
        cells += [f"{row.scores[name]:.2f}" for name in names]
        if has_intervals:
            cells.append("" if row.interval is None else f"{row.interval[0]:.1f} to {row.interval[1]:.1f}")
        lines.append([*cells, f"{row.inner.get(board.metric, float('nan')):.2f}"])
    return align_columns(lines)


def align_columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells as columns: the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        texts.append("  ".join([first.ljust(widths[0]), *cells]))
    return texts


def board_notes(board: Board) -> list[str]:
    """The sentences below the table: sampling error, paired tests, thresholds and calibration."""
    lines = []
    info = board.resampling_info
    if info:
        several = any(len(entry.seeds) > 1 for entry in board.summary)
        seeds = "; a seed varies the head's start, the encoder is the same" if several else ""
        lines.append(
            f"95 %: luck of the examples, {info['draws']:,} samples of the {info['clusters']:,} {info['of']} of "
            f"{board.split}{seeds}"
        )
    references = [*(row.name for row in board.rows if row.kind == "encoder"), CONTROL]
    lines += [_tests_against(board, name) for name in references if _against(board, name)]
    if board.rows:
        lines += [*_no_answer(board, board.rows[0]), *_calibration(board.rows[0])]
    return lines


def _against(board: Board, reference: str) -> list[PairedTest]:
    """All tests that involve a reference, as the other predictor minus the reference."""
    return [_minus(test, reference) for test in board.comparisons if reference in (test.a, test.b)]


def _minus(test: PairedTest, reference: str) -> PairedTest:
    """The test with the reference as ``b``."""
    if test.b == reference:
        return test
    low, high = (None if bound is None else -bound for bound in (test.high, test.low))
    return PairedTest(test.b, test.a, -test.difference, low, high, test.p, test.p_holm, test.b_seeds, test.a_seeds)


def paired_test_with(board: Board, name: str, reference: str) -> PairedTest | None:
    """A predictor minus a reference, if the board has that test."""
    return next((test for test in _against(board, reference) if test.a == name), None)


def _tests_against(board: Board, reference: str) -> str:
    tests = _against(board, reference)
    ahead = [test.a for test in tests if test.p_holm < SURE and test.difference > 0]
    behind = [test.a for test in tests if test.p_holm < SURE and test.difference < 0]
    equal = [test.a for test in tests if test.p_holm >= SURE]
    parts = [f"ahead: {', '.join(ahead)}"] if ahead else []
    parts += [f"behind: {', '.join(behind)}"] if behind else []
    if equal:
        names = ", ".join(equal) if len(equal) <= MOST_NAMED else f"{len(equal)} predictors"
        parts.append(f"not distinguishable: {names}")
    title = "the control" if reference == CONTROL else reference
    return f"beside {title} (p < {SURE}, Holm over {len(board.comparisons)} tests): {'; '.join(parts)}"


def _no_answer(board: Board, row: Row) -> list[str]:
    if not row.thresholds:
        return []
    metric, zero, oracle = board.metric, row.thresholds["zero"], row.thresholds["oracle"]
    fitted = row.thresholds.get("fitted")  # missing without an inner split
    at_fitted = f", {fitted[metric]:.2f} at {fitted['threshold']:.2f} (fitted on inner)" if fitted else ""
    at_oracle = f"{oracle[f'best_{metric}']:.2f} at {oracle[f'best_{metric}_thresh']:.2f}"
    return [
        f"no-answer threshold of {_title(row)}: {metric} {zero[metric]:.2f} at 0{at_fitted}; "
        f"{at_oracle} would be best on {board.split} (an oracle, never used)"
    ]


def _calibration(row: Row) -> list[str]:
    if not row.calibration:
        return []
    errors = [
        f"{what.replace('_', '-')} {100 * fit['ece_raw']:.1f} -> {100 * fit['ece']:.1f} (T = {fit['temperature']:.2f})"
        for what, fit in row.calibration.items()
    ]
    return [f"calibration error of {_title(row)} in points, before -> after temperature: {', '.join(errors)}"]


def _title(row: Row) -> str:
    return row.name if row.seed is None else f"{row.name}@{row.seed}"
