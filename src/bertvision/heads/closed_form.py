"""A linear head whose weights are computed, not trained: the honest baseline, ready after one read."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.heads.base import HEADS, Body, Solver, glorot

WIDEST = 6144
ROWS = 1024
STILL, TINY = 1e-10, 1e-12


@HEADS.register("linear")
class Linear(Body):
    """W [h_l1; h_l2; ...] + b in closed form; outputs * (layers * H + 1) parameters.

    Labels: linear discriminant, w_c = S^-1 d_c and b_c = log p_c - w_c m - w_c d_c / 2, with m the mean, d_c
    how far a label's mean is from it, p_c its share (times its weight), S the covariance within labels.
    Any number of labels: the log odds of each, in the same way. Values: least squares. S is shrunk towards
    its diagonal, by 0.32 in epoch 1, 0.1 in epoch 2, 0.03 in epoch 3 and so on, and ``fit`` keeps the epoch
    that is best on inner. The seed changes nothing. Tuned together with an encoder it is an ordinary linear
    layer.
    """

    spans = False
    variants = ("layers=last1", "layers=last4", "")
    source = "control; Fisher 1936, Hoerl, Kennard 1970"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        features = shape.layers * shape.width
        if features > WIDEST:
            raise BadInput(f"head linear: {features:,} numbers a text, at most {WIDEST:,}; choose e.g. layers=last4")
        self.kind, self.outputs = shape.kind, shape.outputs
        self.dense = glorot(nn.Linear(features, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.flatten(-2)))  # (..., layers * width) -> (..., outputs)

    def solver(self, weights: Tensor | None = None) -> Solver:
        return Moments(self.dense, self.kind, weights)


class Moments:
    """Sums over the training texts that the solution needs, and the solution.

    Everything is counted from the first batch's mean, so that large means cost no digits, and summed in
    f64 on the CPU, a thousand texts at a time.
    """

    def __init__(self, dense: nn.Linear, kind: Kind, weights: Tensor | None = None) -> None:
        self.dense, self.kind = dense, kind
        self.weights = torch.ones(dense.out_features) if weights is None else weights.cpu()
        self.shift = torch.zeros(0)
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.count, self.solved = 0, False

    def observe(self, states: Tensor, targets: Tensor) -> None:
        """(batch, layers, width) and its targets; a second pass over the same texts adds nothing."""
        if self.solved:
            return
        self.waiting.append((states.detach().flatten(1).cpu(), self._columns(targets).cpu()))
        if sum(len(x) for x, _ in self.waiting) >= ROWS:
            self._add()

    def _columns(self, targets: Tensor) -> Tensor:
        """Targets as (batch, outputs): one-hot labels, zeros and ones, or the value."""
        if self.kind == "classify":
            return F.one_hot(targets.long(), self.dense.out_features).float()
        return targets.reshape(len(targets), -1)

    def _add(self) -> None:
        x, y = (torch.cat(parts) for parts in zip(*self.waiting, strict=True))
        self.waiting = []
        if self.count == 0:
            self.shift = x.mean(0)
            self.xx, self.xy, self.x, self.y = (x.new_zeros((), dtype=torch.float64) for _ in range(4))
        x = x - self.shift
        self.count += len(x)
        self.x, self.y = self.x + x.sum(0).double(), self.y + y.sum(0).double()  # (features,), (outputs,)
        self.xx, self.xy = self.xx + (x.T @ x).double(), self.xy + (x.T @ y).double()

    @torch.no_grad()
    def solve(self, epoch: int) -> None:
        """Put the weights for this epoch's shrinkage into the linear layer."""
        if self.waiting:
            self._add()
        self.solved = True
        mean = self.x / self.count  # (features,)
        spread = self.xx / self.count - torch.outer(mean, mean)  # (features, features)
        still = spread.diagonal() <= STILL * self.shift.double() ** 2 + TINY
        spread[still] = 0  # a feature that never changes, such as CLS before the first layer, gets no weight
        find = {"classify": self._labels, "multilabel": self._odds, "regress": self._values}[self.kind]
        weight, bias = find(mean, spread, max(10 ** (-epoch / 2), 1e-4))  # (features, outputs), (outputs,)
        bias = bias - self.shift.double() @ weight
        self.dense.weight.copy_(weight.T)
        self.dense.bias.copy_(bias)

    def _labels(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp_min(0.5) / self.count  # (labels,); a label never seen is unlikely, not impossible
        prior = (share * self.weights).log()
        apart = self._yes(mean) - mean[:, None]  # (features, labels)
        weight = _solved(spread - (share * apart) @ apart.T, apart, shrink)
        return weight, prior - mean @ weight - (weight * apart).sum(0) / 2

    def _yes(self, mean: Tensor) -> Tensor:
        """The mean of the texts with a label, that of all where there are none: (features, labels)."""
        return torch.where(self.y > 0, self.xy / self.y.clamp_min(1), mean[:, None])

    def _odds(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp(0.5, self.count - 0.5) / self.count  # (labels,)
        yes = self._yes(mean)  # (features, labels)
        apart = (yes - mean[:, None]) / (1 - share)  # mean of yes minus mean of no
        weight = _solved(spread, apart, shrink)
        # The inverse of the covariance within yes and no, out of that of the whole covariance.
        within = 1 - share * (1 - share) * (weight * apart).sum(0)
        weight = weight / within.clamp_min(1e-3)
        middle = yes - apart / 2
        return weight, (self.weights * share / (1 - share)).log() - (weight * middle).sum(0)

    def _values(self, mean: Tensor, spread: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        middle = self.y / self.count  # (1,)
        weight = _solved(spread, self.xy / self.count - torch.outer(mean, middle), shrink)
        return weight, middle - mean @ weight


def _solved(spread: Tensor, right: Tensor, shrink: float) -> Tensor:
    """((1 - shrink) S + shrink diag S)^-1 right, on the scale where S has ones on its diagonal."""
    own = spread.diagonal()
    scale = torch.where(own > TINY, own.clamp_min(TINY).rsqrt(), 0)  # (features,)
    even = (1 - shrink) * spread * scale[:, None] * scale
    even.diagonal().add_(shrink + 1e-6)
    factor, _ = torch.linalg.cholesky_ex(even)  # one that fails shows on inner, and another epoch is kept
    return scale[:, None] * torch.cholesky_solve(right * scale[:, None], factor)
