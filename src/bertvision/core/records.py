"""The records that the packages pass to each other.

torch is imported for type checking only, so that scoring a file never waits for it.
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
"""What a task predicts: a span of the context, one of several labels, any number of labels, or a number."""

ROW_KINDS: tuple[Kind, ...] = ("span", "multilabel")
"""Kinds with several targets per window: start and end token, or 0 or 1 for each label."""

SPLITS = ("train", "inner", "dev")

FOLDS = "folds"
"""Train and inner as one split, train first, for choices that rest on out-of-fold predictions."""

FIRST_CONTROL = "probe:layers=last1"
"""The control of leaderboards that do not name theirs."""

CONTROL = FIRST_CONTROL
"""The control: a linear probe on the last layer, against which heads on several layers are compared."""

NO_OFFSET = -1
"""Character offset of tokens that cannot be part of an answer."""

ALPHA = 0.05
"""Significance level of the paired tests, for p after Holm's correction."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer: its text, and the character offset in the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled text, pair of texts, or question with its context.

    Args:
        id: Unique within its split.
        text: The text, or the question of a question-answering task.
        pair: The second text of a pair, or the context that answers come from.
        answers: Gold answers of a question; empty if it is unanswerable.
        label: Index into the task's labels, or the target value of a regression task.
        group: Examples of one group are never divided between train, inner and dev; the article or the context.
        labels: Sorted label indices of a multi-label task; may be empty.

    Example:
        >>> from bertvision import Example
        >>> Example("r1", "Great crew, on time.", label=1).label
        1
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

    ``offsets[t]`` is the range of context characters that token t covers in span tasks, and NO_OFFSET for the
    question and special tokens. ``target`` is (start token, end token) for spans, 0 or 1 per label for multi-label
    tasks, and (label,) or (value,) otherwise.
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
    """Input and output sizes of a head; ``layers`` counts states per token, the embeddings included."""

    layers: int
    width: int
    tokens: int
    outputs: int
    kind: Kind


@dataclass(frozen=True)
class LayerBatch:
    """A batch of windows: the hidden states of all layers, and the targets that a head is trained on.

    Args:
        hidden: (batch, tokens, layers, width).
        mask: (batch, tokens); true for tokens, false for padding.
        targets: (batch, 2) start and end token, (batch, labels) of 0 and 1, or (batch,) labels or values.
        windows: (batch,) index of each window within its split.
        pooled: (batch, width) output of the encoder's pooler, if it has one.
        logits: Outputs of the encoder's own head: (batch, tokens, 2) for spans, (batch, outputs) otherwise.
        summaries: Names of the vectors along the tokens axis, e.g. ``("cls", "mean", "max")``, if ``hidden`` holds
            summaries of the tokens of each text; empty if it holds the tokens.
        apart: (batch, 2, layers, width) mean over the tokens of the first and of the second text of each pair, each
            encoded by itself, if they were.

    Example:
        >>> import torch
        >>> from bertvision import LayerBatch
        >>> mask = torch.tensor([[True, True, False]])
        >>> batch = LayerBatch(torch.zeros(1, 3, 7, 4), mask, torch.zeros(1), torch.tensor([0]))
        >>> batch
        LayerBatch(1 window, 3 tokens, 7 layers, width 4)
        >>> batch.states.shape
        torch.Size([2, 7, 4])
    """

    hidden: Tensor  # (batch, tokens, layers, width)
    mask: Tensor  # (batch, tokens)
    targets: Tensor  # (batch, 2), (batch, labels) or (batch,)
    windows: Tensor  # (batch,)
    pooled: Tensor | None = None  # (batch, width)
    logits: Tensor | None = None  # (batch, tokens, 2) or (batch, outputs)
    summaries: tuple[str, ...] = ()
    apart: Tensor | None = None  # (batch, 2, layers, width)

    def __repr__(self) -> str:
        batch, tokens, layers, width = self.hidden.shape
        windows = f"{batch} window{'' if batch == 1 else 's'}"
        return f"LayerBatch({windows}, {tokens} tokens, {layers} layers, width {width})"

    @cached_property
    def states(self) -> Tensor:
        """Hidden states without padding, window after window: (unpadded tokens, layers, width)."""
        return self.hidden[self.mask]

    @cached_property
    def first(self) -> Tensor:
        """Hidden states of the first token, CLS: (batch, layers, width)."""
        return self.hidden[:, 0]

    def summary(self, name: str) -> Tensor:
        """One of the summaries of each text: (batch, layers, width)."""
        return self.hidden[:, self.summaries.index(name)]

    def select(self, rows: Tensor) -> LayerBatch:
        """The windows for which ``rows`` (batch,) is true."""
        return replace(
            self,
            hidden=self.hidden[rows],
            mask=self.mask[rows],
            targets=self.targets[rows],
            windows=self.windows[rows],
            pooled=None if self.pooled is None else self.pooled[rows],
            logits=None if self.logits is None else self.logits[rows],
            apart=None if self.apart is None else self.apart[rows],
        )

    def to(self, device: torch.device) -> LayerBatch:
        """Move the tensors that heads use to another device."""
        return replace(
            self,
            hidden=self.hidden.to(device),
            mask=self.mask.to(device),
            targets=self.targets.to(device),
            pooled=None if self.pooled is None else self.pooled.to(device),
            apart=None if self.apart is None else self.apart.to(device),
        )


@dataclass(frozen=True)
class WindowTable:
    """What decoding needs to know of each window of a split, in window order."""

    example: NDArray[np.int64]  # (windows,) index of the window's example
    cls: NDArray[np.int64]  # (windows,) index of the CLS token
    offsets: Sequence[NDArray[np.int32]]  # per window (tokens, 2)
    targets: NDArray[np.float64]  # (windows, 2), (windows, labels) or (windows, 1)
    input_ids: Sequence[NDArray[np.int32]] = ()  # per window (tokens,); only paper_decoding reads them

    def __len__(self) -> int:
        return len(self.example)


@dataclass(frozen=True)
class Predictions:
    """Raw outputs of one predictor on one split, in window order.

    Args:
        name: Name on the leaderboard.
        spec: Spec of the head.
        kind: What predicted: the encoder's own head, a head on stored states, or an ensemble.
        split: Split that was predicted, usually ``"dev"``.
        logits: Per window (tokens, 2) for spans, (outputs,) otherwise.
        table: Which example each window belongs to, and what decoding needs.
        seed: Random seed of a head.
        parameters: Number of parameters that were trained.
        encoder_parameters: Number of parameters of the encoder.
        seconds: Training time.
        inner: Outputs of the same predictor on the inner split. No-answer thresholds, temperatures and ensemble
            weights are fitted on these only.
        members: Predictors of an ensemble: ``"encoder"`` or ``"spec@seed"``.
        weights: Weights of the members.
        layers_run: Encoder layers that must be run for a prediction.

    Example:
        >>> from bertvision import Store, fit, predict
        >>> store = Store("runs/reviews/store")  # doctest: +SKIP
        >>> predict(fit(["probe"], store), store["dev"])  # doctest: +SKIP
        [Predictions('probe', seed=0, split='dev', 120 windows)]
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
    members: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    layers_run: int = 0

    def __repr__(self) -> str:
        seed = "" if self.seed is None else f"seed={self.seed}, "
        return f"Predictions({self.name!r}, {seed}split={self.split!r}, {len(self.logits)} windows)"


@dataclass(frozen=True)
class Row:
    """A row of a leaderboard: one predictor with one seed."""

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
    interval: tuple[float, float] | None = None  # bootstrap interval of the metric
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # no-answer: zero, fitted, oracle
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by kind of probability
    control: bool = False


@dataclass(frozen=True)
class SeedSummary:
    """The metric of one predictor over all its seeds: mean, standard deviation, range and interval of the mean."""

    name: str
    kind: Literal["encoder", "head", "ensemble"]
    seeds: tuple[int, ...]
    mean: float
    std: float | None  # None for a single seed
    min: float
    max: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class PairedTest:
    """Difference of two predictors on the same examples, a minus b, with its interval and p-values."""

    a: str
    b: str
    difference: float
    low: float | None  # None if all examples share one context: there is nothing to resample
    high: float | None
    p: float
    p_holm: float  # Holm's correction over all tests of the leaderboard
    a_seeds: tuple[int, ...] = ()  # seeds that predictor a is averaged over
    b_seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reliability:
    """Reliability bins (confidence, accuracy, count) of one kind of probability, before and after calibration."""

    name: str
    seed: int | None
    what: str  # label, answer or no_answer
    raw: tuple[tuple[float, float, int], ...]
    calibrated: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Board:
    """A leaderboard: scores of all predictors on one split of a task, with confidence intervals and paired tests.

    ``str(board)`` is the table that the command line prints.

    Args:
        task: Name of the task.
        split: Split that was scored, usually ``"dev"``.
        metric: Metric that rows are ordered and compared by.
        rows: One :class:`Row` per predictor and seed, best on inner first.
        summary: Mean and spread over the seeds of each predictor.
        best_head: Head with the best mean on inner.
        comparisons: Paired tests between predictors.
        reliability: Reliability bins of the predicted probabilities.
        resampling_info: How intervals and tests were computed.
        control: Name of the control, a linear head on the last layer only.
        recommended: Title of the recommended row: its name, with its seed if it has one.
        selection: What the recommendation rests on: validation split, score and its standard error, tied rows.

    Example:
        >>> from bertvision import Board, ensemble, evaluate
        >>> board = evaluate([*predictions, ensemble(predictions)], task)  # doctest: +SKIP
        >>> print(board)  # doctest: +SKIP
        >>> Board("squad2", "dev", "f1")
        Board(squad2 dev, f1, 0 rows, best_head=None)
    """

    task: str
    split: str
    metric: str
    rows: tuple[Row, ...] = field(default_factory=tuple)
    summary: tuple[SeedSummary, ...] = ()
    best_head: str | None = None
    comparisons: tuple[PairedTest, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    resampling_info: Mapping[str, Any] = field(default_factory=dict)
    control: str = CONTROL
    recommended: str | None = None
    selection: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Board({self.task} {self.split}, {self.metric}, {len(self.rows)} rows, best_head={self.best_head!r})"

    def __str__(self) -> str:
        from bertvision.core.leaderboard_text import board_text

        return board_text(self)


def paired_tests_against(board: Board, reference: str) -> list[PairedTest]:
    """All tests that involve a reference, as the other predictor minus the reference."""
    tests = []
    for test in board.comparisons:
        if test.b == reference:
            tests.append(test)
        elif test.a == reference:
            low, high = (None if bound is None else -bound for bound in (test.high, test.low))
            seeds = (test.b_seeds, test.a_seeds)
            tests.append(PairedTest(test.b, test.a, -test.difference, low, high, test.p, test.p_holm, *seeds))
    return tests


def paired_test_with(board: Board, name: str, reference: str) -> PairedTest | None:
    """The test of a predictor minus a reference, if the leaderboard has it."""
    return next((test for test in paired_tests_against(board, reference) if test.a == name), None)
