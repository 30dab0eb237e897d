"""Logistic and ridge regression with an L2 penalty, for every strength of a path.

Features are standardised, and divided by the root of their number, so that a strength means the same for any set of
features. The matrix is decomposed once: with fewer rows than features into combinations of rows (the dual form),
otherwise into combinations of features (the primal form). In these directions ridge regression has a closed form for
every strength, and logistic regression is well conditioned. Standardisation and directions are merged into the weights
at the end, so a solved head is a plain linear layer.

Folds: each row is predicted by the model that was fitted without the rows of its fold. Logistic regression is fitted
for all folds and for all rows at once, so the matrix is read once per iteration; for ridge regression the predictions
follow from the fit to all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

STRENGTHS = tuple(10.0 ** (1 - step / 2) for step in range(12))
"""Strengths of the path, strongest penalty first: 10 to 3e-5."""

CHUNK = 4096
"""Rows that are converted to f32 at once."""

MAX_CACHED = 2**31
"""Bytes of features in memory; more are read again in every iteration."""

MAX_DECOMPOSED = 8192
"""Largest matrix of products that is decomposed; larger problems are solved without decomposition."""

EXACT_PRODUCTS = 5e10
"""Up to this number of multiplications, products are computed in f64."""

MIN_VARIANCE = 1e-7
"""Directions with a smaller share of the largest variance are rounding errors."""

CONSTANT = 1e-5
"""Features with a smaller standard deviation, relative to their mean, are constant and get no weight."""

ITERATIONS, MEMORY, BACKTRACKS, ARMIJO, TOLERANCE = 50, 10, 12, 1e-4, 3e-4


TargetKind = Literal["label", "labels", "value"]
"""One label of several, any number of labels, or values."""


class Features(Protocol):
    """Features of the training texts, read in pieces."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    def read(self, start: int, stop: int) -> Tensor: ...  # f32 (rows, columns)


@dataclass(frozen=True)
class Solution:
    """A linear model of one strength: outputs are ``features @ weight + bias``."""

    strength: float
    weight: Tensor  # (columns, outputs)
    bias: Tensor  # (outputs,)
    held_out: Tensor | None = None  # (rows, outputs) of each row, from the fit without its fold


class Design:
    """Standardised features in the directions in which they vary."""

    def __init__(self, features: Features) -> None:
        self.features, self.rows = features, features.rows
        self._standardise()
        smaller = min(features.rows, features.columns)
        work = features.rows * features.columns * smaller
        self.dtype = torch.float64 if work <= EXACT_PRODUCTS else torch.float32
        self.cached: Tensor | None = None  # (rows, directions)
        self.basis: Tensor | None = None  # (columns, directions): primal; (rows, directions): dual
        self.dual = features.rows < features.columns
        if smaller <= MAX_DECOMPOSED:
            self._decompose()
        else:  # the directions are the features
            self.dual = False
            self.variances = torch.full((features.columns,), 1 / features.columns, dtype=self.dtype)
            self._cache(lambda chunk: chunk)

    def _standardise(self) -> None:
        total = squares = torch.zeros(self.features.columns, dtype=torch.float64)
        for _, chunk in self._raw():
            total = total + chunk.sum(0, dtype=torch.float64)
        self.mean = total / self.rows  # (columns,)
        for _, chunk in self._raw():
            squares = squares + (chunk - self.mean.float()).square().sum(0, dtype=torch.float64)
        deviation = (squares / self.rows).sqrt()
        varies = deviation > CONSTANT * (self.mean.abs() + CONSTANT)
        root = self.features.columns**0.5
        self.scale = torch.where(varies, 1 / (root * deviation.clamp_min(1e-30)), 0.0)  # (columns,)

    def _raw(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, self.rows, CHUNK):
            stop = min(start + CHUNK, self.rows)
            yield slice(start, stop), self.features.read(start, stop)

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Standardised features (rows of the chunk, columns)."""
        mean, scale = self.mean.float(), self.scale.float()
        for part, chunk in self._raw():
            yield part, ((chunk - mean) * scale).to(self.dtype)

    def _decompose(self) -> None:
        if self.dual:
            whole = torch.cat([chunk for _, chunk in self._chunks()])  # (rows, columns), fewer rows than columns
            products = whole @ whole.T  # (rows, rows)
        else:
            products = torch.zeros(self.features.columns, self.features.columns, dtype=self.dtype)
            for _, chunk in self._chunks():
                products.addmm_(chunk.T, chunk)
        values, vectors = torch.linalg.eigh(products)
        kept = values > MIN_VARIANCE * values[-1].clamp_min(1e-30)
        values, self.basis = values[kept], vectors[:, kept]
        self.variances = values / self.rows  # (directions,)
        if self.dual:
            self.cached = self.basis * values.sqrt()
            self.basis = self.basis / values.sqrt()
        else:
            basis = self.basis
            self._cache(lambda chunk: chunk @ basis)

    def _cache(self, project: Callable[[Tensor], Tensor]) -> None:
        if self.rows * len(self.variances) * self.dtype.itemsize <= MAX_CACHED:
            self.cached = torch.cat([project(chunk) for _, chunk in self._chunks()])

    def times(self, x: Tensor) -> Tensor:
        """Features times a matrix: (directions, k) -> (rows, k)."""
        if self.cached is not None:
            return self.cached @ x
        x = x if self.basis is None else self.basis @ x  # (columns, k)
        return torch.cat([chunk @ x for _, chunk in self._chunks()])

    def transposed_times(self, y: Tensor) -> Tensor:
        """Transposed features times a matrix: (rows, k) -> (directions, k)."""
        if self.cached is not None:
            return self.cached.T @ y
        return self._to_directions(self._sum_products(y))

    def _sum_products(self, y: Tensor) -> Tensor:
        """(rows, k) -> (columns, k)."""
        total = torch.zeros(self.features.columns, y.shape[1], dtype=self.dtype)
        for part, chunk in self._chunks():
            total.addmm_(chunk.T, y[part])
        return total

    def _to_directions(self, x: Tensor) -> Tensor:
        return x if self.basis is None else self.basis.T @ x

    def solution(self, strength: float, weight: Tensor, bias: Tensor, held_out: Tensor | None) -> Solution:
        """A solution for raw features from weights of directions (directions, outputs)."""
        if self.dual:
            assert self.basis is not None
            weight = self._sum_products(self.basis @ weight)
        elif self.basis is not None:
            weight = self.basis @ weight
        weight = weight.double() * self.scale[:, None]  # (columns, outputs)
        bias = bias.double() - self.mean @ weight
        return Solution(strength, weight.float(), bias.float(), held_out)


def ridge_path(
    design: Design, targets: Tensor, folds: Tensor | None, strengths: Sequence[float] = STRENGTHS
) -> Iterator[Solution]:
    """Ridge regression of the targets (rows, outputs), strongest penalty first.

    ``held_out`` is exact: of each row by itself if every fold is one row, else of the rows of each fold.
    """
    y = targets.to(design.dtype)
    mean = y.mean(0)  # (outputs,)
    if design.basis is None:
        yield from _search_path(design, targets, folds, "value", None, strengths)
        return
    projected = design.transposed_times(y - mean)  # (directions, outputs)
    for strength in strengths:
        shrunk = 1 / (design.rows * (design.variances + strength))  # (directions,)
        weight = shrunk[:, None] * projected
        held_out = None if folds is None else _ridge_held_out(design, y, mean, weight, shrunk, folds)
        yield design.solution(strength, weight, mean, held_out)


def best_ridge(
    design: Design, targets: Tensor, folds: Tensor, strengths: Sequence[float] = STRENGTHS
) -> Iterator[Solution]:
    """The ridge regression whose penalty has the smallest exact leave-one-out error, held out by folds.

    Leaving out one row costs next to nothing for every penalty; leaving out folds is only done for the best one.
    """
    if design.basis is not None:
        each = torch.arange(design.rows)
        errors = []
        for solution in ridge_path(design, targets, each, strengths):
            assert solution.held_out is not None, "every row is a fold"
            errors.append(float((solution.held_out - targets).square().mean()))
        strengths = [strengths[errors.index(min(errors))]]
    return ridge_path(design, targets, folds, strengths)


def _ridge_held_out(design: Design, y: Tensor, mean: Tensor, weight: Tensor, shrunk: Tensor, folds: Tensor) -> Tensor:
    """Predictions of each row by the fit without its fold, from the fit to all rows.

    With the hat matrix H, the residuals of a fold left out are (I - H_ff)^-1 times its residuals.
    """
    rows = design.cached if design.cached is not None else design.times(torch.eye(len(shrunk), dtype=design.dtype))
    residuals = y - mean - rows @ weight  # (rows, outputs)
    if len(folds.unique()) == len(y):
        leverage = (rows.square() @ shrunk) + 1 / design.rows  # (rows,)
        return (y - residuals / (1 - leverage).clamp_min(1e-9)[:, None]).float()
    held_out = torch.empty_like(y)
    for fold in folds.unique().tolist():
        inside = torch.nonzero(folds == fold)[:, 0]
        part = rows[inside]
        left = torch.eye(len(inside), dtype=y.dtype) - (part * shrunk) @ part.T - 1 / design.rows
        held_out[inside] = y[inside] - torch.linalg.solve(left, residuals[inside])
    return held_out.float()


def logistic_path(
    design: Design,
    targets: Tensor,
    folds: Tensor | None,
    exclusive: bool = True,
    weights: Tensor | None = None,
    strengths: Sequence[float] = STRENGTHS,
) -> Iterator[Solution]:
    """Logistic regression of indicators (rows, labels), strongest penalty first.

    One of several labels if ``exclusive``, otherwise any number of labels. ``weights`` (labels,) are class weights, as
    in :func:`bertvision.heads.base.head_loss`.
    """
    yield from _search_path(design, targets, folds, "label" if exclusive else "labels", weights, strengths)


def _search_path(
    design: Design,
    targets: Tensor,
    folds: Tensor | None,
    kind: TargetKind,
    weights: Tensor | None,
    strengths: Sequence[float],
) -> Iterator[Solution]:
    """Solutions found by search, each from the one before it."""
    problem = _Problem(design, targets.to(design.dtype), folds, kind, weights)
    position = problem.start()
    for strength in strengths:
        problem.set_strength(strength)
        position = minimise(problem.loss, problem.to_search(position))
        position = problem.from_search(position)
        weight, bias = problem.split(position)  # (problems, directions, labels), (problems, labels)
        held_out = None if folds is None else problem.held_out(weight, bias)
        yield design.solution(strength, weight[-1], bias[-1], held_out)


class _Problem:
    """The fits without each fold, and last the fit to all rows, as one problem."""

    def __init__(
        self, design: Design, targets: Tensor, folds: Tensor | None, kind: TargetKind, weights: Tensor | None
    ) -> None:
        self.design, self.kind, self.targets = design, kind, targets
        self.labels, self.directions = targets.shape[1], len(design.variances)
        self.folds = torch.zeros(design.rows, dtype=torch.long) if folds is None else folds
        self.count = (0 if folds is None else int(self.folds.max()) + 1) + 1
        used = self.folds[:, None] != torch.arange(self.count)  # (rows, problems)
        used[:, -1] = True
        self.used = (used / used.sum(0)).to(targets.dtype)  # the loss is a mean over the rows of each problem
        self.weights = torch.ones(self.labels) if weights is None else weights
        self.weights = self.weights.to(targets.dtype)  # (labels,)
        # The largest curvature of the loss of one output.
        self.curvature = 1.0 if kind == "value" else 0.25
        self.set_strength(1.0)

    def start(self) -> Tensor:
        """Zero weights, and the biases that fit best with them: (problems, (directions + 1) x labels)."""
        bias = self.used.T @ self.targets  # (problems, labels)
        if self.kind != "value":
            share = bias.clamp(0.5 / self.design.rows, 1 - 0.5 / self.design.rows)
            bias = share.log() if self.kind == "label" else (share / (1 - share)).log()
        zeros = bias.new_zeros(self.count, self.directions * self.labels)
        return torch.cat([zeros, bias], dim=1)

    def set_strength(self, strength: float) -> None:
        """Choose the strength and the scale of each direction in which the search is well conditioned."""
        self.strength = strength
        self.scale = (self.curvature * self.design.variances + strength).rsqrt()  # (directions,)

    def split(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (problems, directions, labels) and biases (problems, labels)."""
        size = self.directions * self.labels
        return position[:, :size].reshape(self.count, self.directions, self.labels), position[:, size:]

    def from_search(self, position: Tensor) -> Tensor:
        weight, bias = self.split(position)
        return torch.cat([(weight * self.scale[:, None]).flatten(1), bias], dim=1)

    def to_search(self, position: Tensor) -> Tensor:
        weight, bias = self.split(position)
        return torch.cat([(weight / self.scale[:, None]).flatten(1), bias], dim=1)

    def loss(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Penalised losses (problems,) and their gradients in the coordinates of the search."""
        weight, bias = self.split(self.from_search(position))
        logits = self.outputs(weight, bias)  # (rows, problems, labels)
        losses, gradient = self._losses(logits)
        loss = (losses.sum(2) * self.used).sum(0)  # (problems,)
        gradient = gradient * self.used[:, :, None]  # (rows, problems, labels)
        slope = self.design.transposed_times(gradient.flatten(1))  # (directions, problems x labels)
        slope = slope.unflatten(1, (self.count, self.labels)).movedim(1, 0) + self.strength * weight
        loss = loss + self.strength / 2 * weight.square().sum((1, 2))
        return loss, torch.cat([(slope * self.scale[:, None]).flatten(1), gradient.sum(0)], dim=1)

    def _losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and their derivatives by the logits, both (rows, problems, labels)."""
        targets = self.targets[:, None]  # (rows, 1, labels)
        if self.kind == "value":
            errors = logits - targets
            return errors.square() / 2, errors
        if self.kind == "label":
            log_shares = logits.log_softmax(2)
            factor = (targets * self.weights).sum(2, keepdim=True)  # (rows, 1, 1) weight of the row's label
            return -targets * log_shares * factor, (log_shares.exp() - targets) * factor
        positive = targets * self.weights
        losses = positive * F.softplus(-logits) + (1 - targets) * F.softplus(logits)
        return losses, logits.sigmoid() * (positive + 1 - targets) - positive

    def outputs(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Outputs of every problem: (rows, problems, labels)."""
        flat = weight.movedim(0, 1).flatten(1)  # (directions, problems x labels)
        outputs: Tensor = self.design.times(flat).unflatten(1, bias.shape) + bias
        return outputs

    def held_out(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Outputs of each row from the fit without its fold: (rows, labels)."""
        outputs = self.outputs(weight, bias)
        return outputs[torch.arange(len(outputs)), self.folds].float()


Loss = Callable[[Tensor], tuple[Tensor, Tensor]]


def minimise(loss: Loss, position: Tensor) -> Tensor:
    """Minimise several smooth convex functions at once by L-BFGS: (problems, parameters), one row per function.

    ``loss`` returns the values (problems,) and gradients of all of them. Nocedal and Wright 2006, algorithm 7.5.
    """
    value, gradient = loss(position)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    for _ in range(ITERATIONS):
        active = gradient.abs().amax(1) > TOLERANCE * value.abs().clamp_min(1e-3)  # (problems,)
        if not bool(active.any()):
            break
        direction = -_two_loops(gradient, steps, changes) * active[:, None]
        slope = (direction * gradient).sum(1)
        uphill = slope > 0  # rounding errors near the minimum
        direction = torch.where(uphill[:, None], -gradient * active[:, None], direction)
        slope = torch.where(uphill, (direction * gradient).sum(1), slope)
        length = active.to(position.dtype)
        if not steps:
            length = length * (1 / gradient.norm(dim=1).clamp_min(1)).clamp_max(1)
        for _ in range(BACKTRACKS):
            moved = position + length[:, None] * direction
            new_value, new_gradient = loss(moved)
            too_high = new_value > value + ARMIJO * length * slope + 1e-12
            if not bool(too_high.any()):
                break
            length = torch.where(too_high, length / 2, length)
        else:
            length = torch.where(too_high, torch.zeros_like(length), length)
            moved = position + length[:, None] * direction
            new_value, new_gradient = loss(moved)
            if not bool((length > 0).any()):
                break
        steps.append(moved - position)
        changes.append(new_gradient - gradient)
        del steps[:-MEMORY], changes[:-MEMORY]
        position, value, gradient = moved, new_value, new_gradient
    return position


def _two_loops(gradient: Tensor, steps: Sequence[Tensor], changes: Sequence[Tensor]) -> Tensor:
    """The inverse Hessian, as estimated from the last steps, times the gradient; row by row."""
    direction, factors = gradient, []
    curvatures = [(step * change).sum(1) for step, change in zip(steps, changes, strict=True)]
    for step, change, curvature in zip(reversed(steps), reversed(changes), reversed(curvatures), strict=True):
        usable = curvature > 1e-14
        inverse = torch.where(usable, 1 / curvature.clamp_min(1e-14), torch.zeros_like(curvature))
        factor = inverse * (step * direction).sum(1)
        direction = direction - factor[:, None] * change
        factors.append((factor, inverse))
    if steps:
        norm = changes[-1].square().sum(1)
        ratio = torch.where(norm > 1e-20, curvatures[-1] / norm.clamp_min(1e-20), torch.ones_like(norm))
        direction = direction * ratio.clamp_min(1e-6)[:, None]
    for step, change, (factor, inverse) in zip(steps, changes, reversed(factors), strict=True):
        correction = factor - inverse * (change * direction).sum(1)
        direction = direction + correction[:, None] * step
    return direction
