"""A linear head with an L2 penalty, computed by a solver: logistic regression for labels, least squares for values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, cast

from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.records import Shape
from bertvision.core.registry import Value
from bertvision.heads.base import HEADS, HeadModule, glorot
from bertvision.heads.solvers import Design, Solution, best_ridge, logistic_path, ridge_path


@HEADS.register("ridge")
class Ridge(HeadModule):
    """W [h_l1; h_l2; ...] + b with an L2 penalty on W; o (L H + 1) parameters.

    Labels: logistic regression by L-BFGS, of one label (softmax) or any number of them (sigmoid). Values: least
    squares in closed form. Features are standardised for the fit, and the scaling is merged into W. Of a path of
    twelve penalties, the one with the smallest loss on rows left out is kept: by folds for labels, each row by itself
    for values, on inner if the encoder has seen the labels. There is no learning rate and no random start, so a fit is
    the same for every seed. When tuned together with an encoder it is an ordinary linear layer.
    Hoerl and Kennard 1970; le Cessie and van Houwelingen 1992.
    """

    supports_spans = False
    solved = True
    shared_options: ClassVar[Mapping[str, Value]] = {"layers": "all", "read": "mean", "pooled": False}
    variants = ("layers=last1", "", "read=mean+max")
    source = "control; Hoerl, Kennard 1970, le Cessie, van Houwelingen 1992"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.kind, self.outputs = shape.kind, shape.outputs
        self.dense = glorot(nn.Linear(shape.layers * shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.dense(states.flatten(-2)))  # (..., layers * width) -> (..., outputs)

    def path(self, design: Design, targets: Tensor, folds: Tensor | None, weights: Tensor | None) -> Iterator[Solution]:
        """The solution of each penalty, strongest first; ``weights`` (labels,) are class weights."""
        if self.kind == "regress":
            values = targets.reshape(-1, 1)
            return ridge_path(design, values, None) if folds is None else best_ridge(design, values, folds)
        exclusive = self.kind == "classify"
        indicators = F.one_hot(targets.long(), self.outputs).float() if exclusive else targets  # (rows, labels)
        return logistic_path(design, indicators, folds, exclusive, weights)

    def set_solution(self, solution: Solution) -> None:
        self.dense.weight.data.copy_(solution.weight.T)
        self.dense.bias.data.copy_(solution.bias)
