"""A linear head whose weights are computed in closed form, from one pass over the states."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.heads.base import HEADS, HeadModule, Solver, glorot

MAX_FEATURES = 6144
ROWS = 1024  # texts that are summed at once
TOLERANCE, EPS = 1e-10, 1e-12


@HEADS.register("linear")
class Linear(HeadModule):
    """W [h_l1; h_l2; ...] + b in closed form; outputs * (layers * H + 1) parameters.

    Labels: linear discriminant, w_c = S^-1 d_c and b_c = log p_c - w_c m - w_c d_c / 2, with m the mean, d_c
    how far a label's mean is from it, p_c its share (times its weight), S the covariance within labels.
    Any number of labels: the log odds of each, in the same way. Values: least squares. S is shrunk towards
    its diagonal, by 0.32 in epoch 1, 0.1 in epoch 2, 0.03 in epoch 3 and so on, and ``fit`` keeps the epoch
    that is best on inner. The seed changes nothing. Tuned together with an encoder it is an ordinary linear
    layer.
    """

    supports_spans = False
    variants = ("layers=last1", "layers=last4", "")
    source = "control; Fisher 1936, Hoerl, Kennard 1970"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        features = shape.layers * shape.width
        if features > MAX_FEATURES:
            raise BadInput(
                f"head linear: {features:,} numbers a text, at most {MAX_FEATURES:,}; choose e.g. layers=last4"
            )
        self.kind, self.outputs = shape.kind, shape.outputs
        self.dense = glorot(nn.Linear(features, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.flatten(-2)))  # (..., layers * width) -> (..., outputs)

    def solver(self, weights: Tensor | None = None) -> Solver:
        return Moments(self.dense, self.kind, weights)


class Moments:
    """First and second moments of the training texts, and the weights computed from them.

    Sums are relative to the mean of the first batch, so that large means cost no precision, in f64 on the CPU.
    """

    def __init__(self, dense: nn.Linear, kind: Kind, weights: Tensor | None = None) -> None:
        self.dense, self.kind = dense, kind
        self.weights = torch.ones(dense.out_features) if weights is None else weights.cpu()
        self.shift = torch.zeros(0)
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.count, self.solved = 0, False

    def observe(self, states: Tensor, targets: Tensor) -> None:
        """Add a batch (batch, layers, width) and its targets; ignored in later epochs."""
        if self.solved:
            return
        if self.kind == "classify":
            columns = F.one_hot(targets.long(), self.dense.out_features).float()  # (batch, labels)
        else:
            columns = targets.reshape(len(targets), -1)  # (batch, outputs) zeros and ones, or the value
        self.pending.append((states.detach().flatten(1).cpu(), columns.cpu()))
        if sum(len(x) for x, _ in self.pending) >= ROWS:
            self._add()

    def _add(self) -> None:
        x, y = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending = []
        if self.count == 0:
            self.shift = x.mean(0)
            self.xx, self.xy, self.x, self.y = (x.new_zeros((), dtype=torch.float64) for _ in range(4))
        x = x - self.shift
        self.count += len(x)
        self.x, self.y = self.x + x.sum(0).double(), self.y + y.sum(0).double()  # (features,), (outputs,)
        self.xx, self.xy = self.xx + (x.T @ x).double(), self.xy + (x.T @ y).double()

    @torch.no_grad()
    def solve(self, epoch: int) -> None:
        """Set the weights of the linear layer for this epoch's shrinkage."""
        if self.pending:
            self._add()
        self.solved = True
        mean = self.x / self.count  # (features,)
        spread = self.xx / self.count - torch.outer(mean, mean)  # (features, features)
        constant = spread.diagonal() <= TOLERANCE * self.shift.double() ** 2 + EPS
        spread[constant] = 0  # a constant feature, such as CLS before the first layer, gets no weight
        find = {"classify": self._labels, "multilabel": self._odds, "regress": self._values}[self.kind]
        weight, bias = find(mean, spread, max(10 ** (-epoch / 2), 1e-4))  # (features, outputs), (outputs,)
        bias = bias - self.shift.double() @ weight
        self.dense.weight.copy_(weight.T)
        self.dense.bias.copy_(bias)

    def _labels(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp_min(0.5) / self.count  # (labels,); a label without texts is unlikely, not impossible
        prior = (share * self.weights).log()
        apart = self._label_means(mean) - mean[:, None]  # (features, labels)
        weight = _solved(spread - (share * apart) @ apart.T, apart, shrink)
        return weight, prior - mean @ weight - (weight * apart).sum(0) / 2

    def _label_means(self, mean: Tensor) -> Tensor:
        """The mean of the texts with each label, or of all if there are none: (features, labels)."""
        return torch.where(self.y > 0, self.xy / self.y.clamp_min(1), mean[:, None])

    def _odds(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp(0.5, self.count - 0.5) / self.count  # (labels,)
        yes = self._label_means(mean)  # (features, labels)
        apart = (yes - mean[:, None]) / (1 - share)  # mean of yes minus mean of no
        weight = _solved(spread, apart, shrink)
        # The inverse of the covariance within yes and no, from that of the total covariance.
        within = 1 - share * (1 - share) * (weight * apart).sum(0)
        weight = weight / within.clamp_min(1e-3)
        middle = yes - apart / 2
        return weight, (self.weights * share / (1 - share)).log() - (weight * middle).sum(0)

    def _values(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        middle = self.y / self.count  # (1,)
        weight = _solved(spread, self.xy / self.count - torch.outer(mean, middle), shrink)
        return weight, middle - mean @ weight


def _solved(spread: Tensor, right: Tensor, shrink: float) -> Tensor:
    """((1 - shrink) S + shrink diag S)^-1 right, scaled so that S has a unit diagonal."""
    variance = spread.diagonal()
    scale = torch.where(variance > EPS, variance.clamp_min(EPS).rsqrt(), 0)  # (features,)
    scaled = (1 - shrink) * spread * scale[:, None] * scale
    scaled.diagonal().add_(shrink + 1e-6)
    factor, _ = torch.linalg.cholesky_ex(scaled)  # a failed one scores badly on inner, and another epoch is kept
    return scale[:, None] * torch.cholesky_solve(right * scale[:, None], factor)
