"""Pooling over layers, then a linear layer: the smallest heads of the papers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, HeadModule, glorot
from bertvision.heads.layers import LayerRows


@HEADS.register("learned-pool")
class LearnedPool(HeadModule):
    """W (gamma * sum_l softmax(w)_l h_l) + b; L + 1 + o (H + 1) parameters.

    Layers encode different information, and the weights w show which of them a task uses; gamma rescales the pooled
    state. Pool and linear layer commute, so the linear layer is applied first: pooling o numbers per layer instead
    of H makes the head almost free. Scalar mix of Tenney et al. 2019, used by Jiang, Benge and King.
    """

    variants = ("", "pooled=true")
    source = "Jiang, Benge, King: BERTVision, learned pooling after Tenney et al. 2019"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(shape.layers).normal_(std=0.05))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return self.layer_rows().of(states)  # (..., outputs)

    def layer_rows(self) -> LayerRows:
        mix = self.gamma * self.weights.softmax(0)  # (layers,)
        return LayerRows(self.dense.weight, mix[:, None].expand(-1, self.dense.out_features), self.dense.bias)

    def layer_weights(self) -> Tensor:
        return self.weights.detach().softmax(0)


@HEADS.register("mean-pool")
class MeanPool(HeadModule):
    """W mean_l h_l + b; o (H + 1) parameters.

    The baseline of learned pooling: every layer has the same weight. The linear layer is applied first, which takes
    fewer operations. Average pooling of Jiang, Benge and King.
    """

    source = "Jiang, Benge, King: BERTVision, average pooling"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layers = shape.layers
        self.dense = glorot(nn.Linear(shape.width, shape.outputs))

    def forward(self, states: Tensor) -> Tensor:
        return self.layer_rows().of(states)  # (..., outputs)

    def layer_rows(self) -> LayerRows:
        weight = self.dense.weight
        return LayerRows(weight, weight.new_full((self.layers, len(weight)), 1 / self.layers), self.dense.bias)


class LayerPool(nn.Module):
    """gamma * sum_l softmax(w)_l h_l with L + 1 parameters, or the mean over layers without parameters.

    For heads that apply something nonlinear to the pooled state, which cannot be moved in front of the pool.
    """

    def __init__(self, layers: int, how: str = "learned") -> None:
        super().__init__()
        if how not in ("learned", "mean"):
            raise BadInput(f"pool={how}, expected learned or mean")
        self.layers, self.learned = layers, how == "learned"
        if self.learned:
            self.weights = nn.Parameter(torch.empty(layers).normal_(std=0.05))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor) -> Tensor:
        flat = states.reshape(-1, *states.shape[-2:])  # (tokens, layers, width)
        mix = self.gamma * self.weights.softmax(0) if self.learned else flat.new_full((self.layers,), 1 / self.layers)
        # One small product per token reads the states once; einsum would copy them.
        pooled = torch.bmm(mix.expand(len(flat), 1, -1), flat)  # (tokens, 1, width)
        return pooled.view(*states.shape[:-2], -1)

    def normalized_weights(self) -> Tensor | None:
        """Weight of each layer (layers,), which sum to 1; None for the mean."""
        return self.weights.detach().softmax(0) if self.learned else None
