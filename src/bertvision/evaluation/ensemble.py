"""Ensembles: the maximum, the mean, or a weighted mean whose weights are fitted on inner.

Labels and spans are combined as probabilities (spans: start and end, each over the tokens of a window),
renormalised and returned as logarithms. With any number of labels, each label has its own probability, returned
as log(p / (1 - p)). Values are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Predictions
from bertvision.core.registry import unknown_name

How = Literal["max", "mean", "fitted"]
Array = NDArray[np.float64]

EM_STEPS = 200
EPS = 1e-12  # smallest probability in a logarithm or a denominator


def ensemble(predictions: Sequence[Predictions], how: How = "max", name: str | None = None) -> Predictions:
    """Combine predictors of one split; weights are fitted on their inner outputs, as thresholds are later."""
    if len(predictions) < 2:
        raise BadInput(f"an ensemble needs at least 2 members, got {len(predictions)}")
    if len({(member.split, len(member.logits)) for member in predictions}) > 1:
        raise BadInput("an ensemble's members must predict the same windows of the same split")
    kind = _kind(predictions[0])
    check_how(how, kind == "regress")
    weights = _weights(predictions, how, kind)
    inner = None
    if all(member.inner is not None for member in predictions):
        inner = _combined([member.inner for member in predictions if member.inner], how, weights, kind)
    combined = replace(_combined(predictions, how, weights, kind), inner=inner)
    return combined if name is None else replace(combined, name=name)


def check_how(how: str, regress: bool) -> None:
    """Reject unknown ways to combine, and those that values do not have."""
    if how not in get_args(How):
        raise BadInput(unknown_name("way to combine", how, list(get_args(How))))
    if regress and how == "max":
        raise BadInput("how='max' is for labels and spans; numbers are combined by 'mean' or 'fitted'")


def _combined(members: Sequence[Predictions], how: How, weights: Array, kind: Kind) -> Predictions:
    windows = zip(*(member.logits for member in members), strict=True)
    outputs = [combine_rows(rows, how, weights, kind) for rows in windows]
    names = tuple(member.name if member.seed is None else f"{member.name}@{member.seed}" for member in members)
    return Predictions(
        name=f"{how}({' + '.join(names)})",
        spec=how,
        kind="ensemble",
        split=members[0].split,
        logits=outputs,
        table=members[0].table,
        parameters=sum(member.parameters for member in members),
        encoder_parameters=members[0].encoder_parameters,
        seconds=sum(member.seconds for member in members),
        members=names,
        weights=tuple(weights.tolist()),
    )


def combine_rows(rows: Sequence[NDArray[np.float32]], how: How, weights: Array, kind: Kind) -> NDArray[np.float32]:
    """Combine the outputs of one window: per member (tokens, 2) or (outputs,), to the same shape."""
    if kind == "regress":
        return np.asarray(np.tensordot(weights, np.stack(rows), 1), np.float32)
    to_probabilities = sigmoid if kind == "multilabel" else softmax_rows
    probabilities = np.stack([to_probabilities(row) for row in rows])  # (members, ...)
    mixed = probabilities.max(0) if how == "max" else np.tensordot(weights, probabilities, 1)
    if kind == "multilabel":
        mixed = np.clip(mixed, EPS, 1 - EPS)
        return np.asarray(np.log(mixed / (1 - mixed)), np.float32)
    mixed = mixed / mixed.sum(0, keepdims=True)  # over tokens, or over classes
    return np.asarray(np.log(np.maximum(mixed, EPS)), np.float32)


def softmax_rows(logits: NDArray[np.float32]) -> Array:
    """Softmax over the first axis: tokens of a window, or classes."""
    from scipy.special import softmax

    return np.asarray(softmax(np.asarray(logits, np.float64), axis=0))


def sigmoid(logits: NDArray[Any]) -> Array:
    """1 / (1 + e^-x) without overflow. scipy's expit differs in the last bit from what earlier versions answered."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, np.float64))))


def _weights(members: Sequence[Predictions], how: How, kind: Kind) -> Array:
    equal = np.full(len(members), 1 / len(members))
    if how != "fitted":
        return equal
    inner = [member.inner for member in members if member.inner is not None]
    if len(inner) != len(members):
        raise BadInput("how='fitted' needs every member's outputs on inner")
    return _least_squares(inner) if kind == "regress" else _mixture_weights(inner, equal)


def _mixture_weights(inner: Sequence[Predictions], start: Array) -> Array:
    """Mixture weights with the largest likelihood of the inner targets, by EM (the problem is convex)."""
    likelihood = np.stack([_target_probabilities(member) for member in inner], 1)  # (targets, members)
    weights = start
    for _ in range(EM_STEPS):
        joint = weights * likelihood  # (targets, members)
        weights = (joint / np.maximum(joint.sum(1, keepdims=True), EPS)).mean(0)
    return weights


def _target_probabilities(member: Predictions) -> Array:
    """Probability of each target: of the label, of each label's presence or absence, or of start and end token."""
    if _kind(member) == "multilabel":
        present = sigmoid(np.stack(list(member.logits)))  # (windows, labels)
        return np.where(member.table.targets > 0, present, 1 - present).ravel()
    chances: list[float] = []
    for window, logits in enumerate(member.logits):
        probabilities = softmax_rows(logits)
        targets = member.table.targets[window].astype(int)
        if logits.ndim == 1:
            chances.append(probabilities[targets[0]])
        else:
            chances.extend(probabilities[target, side] for side, target in enumerate(targets))  # start, end
    return np.asarray(chances)


def _least_squares(inner: Sequence[Predictions]) -> Array:
    """Non-negative weights with the smallest squared error on inner."""
    from scipy.optimize import nnls

    outputs = [np.stack(list(member.logits))[:, 0] for member in inner]  # each (windows,)
    columns = np.stack(outputs, 1).astype(np.float64)  # (windows, members)
    weights, _ = nnls(columns, np.asarray(inner[0].table.targets[:, 0], np.float64))
    return np.asarray(weights) if weights.sum() > 0 else np.full(len(inner), 1 / len(inner))


def _kind(predictions: Predictions) -> Kind:
    """The kind of task, from the shapes of outputs and targets."""
    if predictions.logits[0].ndim == 2:
        return "span"
    if len(predictions.logits[0]) == 1:
        return "regress"
    return "multilabel" if predictions.table.targets.shape[1] > 1 else "classify"
