"""The records that the parts pass to each other: plain data, no behaviour beyond shape checks.

torch is named for type checking only, so that scoring a file never waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
class Standing:
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
class Compared:
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
    lines: tuple[Standing, ...] = ()
    best_head: str | None = None  # by the mean on inner over its seeds
    comparisons: tuple[Compared, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    basis: Mapping[str, Any] = field(default_factory=dict)  # what intervals and tests rest on

    def __str__(self) -> str:
        from bertvision.core.board_text import board_text

        return board_text(self)
