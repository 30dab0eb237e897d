"""A linear head whose weights are computed in closed form from one pass over the states."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.heads.base import HEADS, HeadModule, Solver, glorot

MAX_FEATURES = 6144
ROWS = 1024  # texts whose products are summed at once
TOLERANCE, EPS = 1e-10, 1e-12


@HEADS.register("linear")
class Linear(HeadModule):
    """W [h_l1; h_l2; ...] + b in closed form; o (L H + 1) parameters.

    A control without optimiser, learning rate or random start. One label: linear discriminant analysis,
    w_c = S^-1 d_c and b_c = log p_c - w_c m - w_c d_c / 2, where m is the mean, d_c the mean of label c minus m, p_c
    the label's share (times its class weight) and S the covariance within labels. Any number of labels: the log odds
    of each, in the same way. Values: least squares. S is shrunk towards its diagonal, by 0.32 in epoch 1, 0.1 in
    epoch 2, 0.03 in epoch 3 and so on, and ``fit`` keeps the epoch that is best on inner. When tuned together with an
    encoder it is an ordinary linear layer. Fisher 1936; Hoerl and Kennard 1970.
    """

    supports_spans = False
    variants = ("layers=last1", "layers=last4", "")
    source = "control; Fisher 1936, Hoerl, Kennard 1970"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        features = shape.layers * shape.width
        if features > MAX_FEATURES:
            raise BadInput(
                f"head linear: {features:,} features per text, expected at most {MAX_FEATURES:,}; "
                "select fewer layers, e.g. layers=last4"
            )
        self.kind, self.outputs = shape.kind, shape.outputs
        self.dense = glorot(nn.Linear(features, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.flatten(-2)))  # (..., layers * width) -> (..., outputs)

    def solver(self, weights: Tensor | None = None) -> Solver:
        return Moments(self.dense, self.kind, weights)


class Moments:
    """First and second moments of the training texts, and the weights computed from them.

    Sums are taken in f64 on the CPU, relative to the mean of the first texts, so that large means cost no precision.
    """

    def __init__(self, dense: nn.Linear, kind: Kind, weights: Tensor | None = None) -> None:
        self.dense, self.kind = dense, kind
        self.weights = torch.ones(dense.out_features) if weights is None else weights.cpu()
        self.shift = torch.zeros(0)
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.count, self.solved = 0, False

    def observe(self, states: Tensor, targets: Tensor) -> None:
        """Add a batch (batch, layers, width) and its targets; later epochs are ignored."""
        if self.solved:
            return
        if self.kind == "classify":
            columns = F.one_hot(targets.long(), self.dense.out_features).float()  # (batch, labels)
        else:
            columns = targets.reshape(len(targets), -1)  # (batch, outputs) label indicators, or the value
        self.pending.append((states.detach().flatten(1).cpu(), columns.cpu()))
        if sum(len(x) for x, _ in self.pending) >= ROWS:
            self._add_pending()

    def _add_pending(self) -> None:
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
        """Set the weights of the linear layer, with the shrinkage of this epoch."""
        if self.pending:
            self._add_pending()
        self.solved = True
        mean = self.x / self.count  # (features,)
        covariance = self.xx / self.count - torch.outer(mean, mean)  # (features, features)
        constant = covariance.diagonal() <= TOLERANCE * self.shift.double() ** 2 + EPS
        covariance[constant] = 0  # a constant feature, such as CLS before the first layer, gets no weight
        solvers = {"classify": self._discriminant, "multilabel": self._log_odds, "regress": self._least_squares}
        shrink = max(10 ** (-epoch / 2), 1e-4)
        weight, bias = solvers[self.kind](mean, covariance, shrink)  # (features, outputs), (outputs,)
        bias = bias - self.shift.double() @ weight
        self.dense.weight.copy_(weight.T)
        self.dense.bias.copy_(bias)

    def _discriminant(self, mean: Tensor, covariance: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp_min(0.5) / self.count  # (labels,); a label without texts keeps a small share
        prior = (share * self.weights).log()
        offset = self._label_means(mean) - mean[:, None]  # (features, labels)
        weight = _solve_shrunk(covariance - (share * offset) @ offset.T, offset, shrink)
        return weight, prior - mean @ weight - (weight * offset).sum(0) / 2

    def _label_means(self, mean: Tensor) -> Tensor:
        """Mean of the texts with each label, (features, labels); the overall mean for a label without texts."""
        return torch.where(self.y > 0, self.xy / self.y.clamp_min(1), mean[:, None])

    def _log_odds(self, mean: Tensor, covariance: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        share = self.y.clamp(0.5, self.count - 0.5) / self.count  # (labels,)
        present = self._label_means(mean)  # (features, labels)
        offset = (present - mean[:, None]) / (1 - share)  # minus the mean of texts without the label
        weight = _solve_shrunk(covariance, offset, shrink)
        # From the inverse of the total covariance to that of the covariance within presence and absence.
        within = 1 - share * (1 - share) * (weight * offset).sum(0)
        weight = weight / within.clamp_min(1e-3)
        middle = present - offset / 2
        return weight, (self.weights * share / (1 - share)).log() - (weight * middle).sum(0)

    def _least_squares(self, mean: Tensor, covariance: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
        target_mean = self.y / self.count  # (1,)
        weight = _solve_shrunk(covariance, self.xy / self.count - torch.outer(mean, target_mean), shrink)
        return weight, target_mean - mean @ weight


def _solve_shrunk(covariance: Tensor, right: Tensor, shrink: float) -> Tensor:
    """((1 - shrink) S + shrink diag S)^-1 right, computed with S scaled to a unit diagonal."""
    variance = covariance.diagonal()
    scale = torch.where(variance > EPS, variance.clamp_min(EPS).rsqrt(), 0)  # (features,)
    scaled = (1 - shrink) * covariance * scale[:, None] * scale
    scaled.diagonal().add_(shrink + 1e-6)
    factor, _ = torch.linalg.cholesky_ex(scaled)  # if it fails, the epoch scores badly on inner and another is kept
    return scale[:, None] * torch.cholesky_solve(right * scale[:, None], factor)
