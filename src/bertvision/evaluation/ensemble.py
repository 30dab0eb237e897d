"""Ensembles: the maximum, the mean, or a weighted mean with weights fitted on inner.

Outputs for labels and spans are combined as probabilities (spans: of start and end, each over the tokens of a window),
renormalised and returned as logarithms. With any number of labels, each label has its own probability, returned as
log(p / (1 - p)). Values are averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Predictions
from bertvision.core.registry import unknown_name
from bertvision.core.row_title import row_title

How = Literal["max", "mean", "fitted"]
Array = NDArray[np.float64]

EM_STEPS = 200

TEMPER = 0.25
"""Power of the likelihood in :func:`weighted_ensemble`: with few rows weights stay nearly equal, with many the best
predictors get most of the weight. Between 0.1 and 0.5 it makes little difference (docs/results/quality.md)."""

EPS = 1e-12  # smallest probability in a logarithm or a denominator


def ensemble(predictions: Sequence[Predictions], how: How = "max", name: str | None = None) -> Predictions:
    """Combine several predictors into one.

    Args:
        predictions: The outputs of at least two predictors for the same windows of the same split.
        how: ``"max"`` or ``"mean"`` of the probabilities, or ``"fitted"``: a weighted mean whose weights maximise the
            likelihood on inner. Values (regression) have ``"mean"`` and ``"fitted"`` (least squares) only.
        name: Name on the leaderboard. Default: ``how`` and the names of the members.

    Returns:
        The combined predictions, which can be evaluated like those of a single predictor.

    Example:
        >>> import numpy as np
        >>> from bertvision import Predictions, ensemble
        >>> from bertvision.core.records import WindowTable
        >>> table = WindowTable(np.zeros(1, int), np.zeros(1, int), [np.zeros((1, 2), int)], np.zeros((1, 1)))
        >>> sure = Predictions("sure", "probe", "head", "dev", [np.log([0.9, 0.1])], table)
        >>> unsure = Predictions("unsure", "probe", "head", "dev", [np.log([0.4, 0.6])], table)
        >>> both = ensemble([sure, unsure], how="mean")
        >>> both.name
        'mean(sure + unsure)'
        >>> print(np.exp(both.logits[0]).round(2))
        [0.65 0.35]
    """
    if len(predictions) < 2:
        raise BadInput(f"an ensemble needs at least 2 members, got {len(predictions)}")
    _check_same_windows(predictions)
    kind = _task_kind(predictions[0])
    check_how(how, kind == "regress")
    inner_members = [member.inner for member in predictions if member.inner is not None]
    complete = len(inner_members) == len(predictions)
    weights = np.full(len(predictions), 1 / len(predictions))
    if how == "fitted":
        if not complete:
            raise BadInput("how='fitted' needs the outputs of every member on inner")
        weights = _least_squares(inner_members) if kind == "regress" else _mixture_weights(inner_members)
    inner = _combine(inner_members, how, weights, kind) if complete else None
    combined = replace(_combine(predictions, how, weights, kind), inner=inner)
    return combined if name is None else replace(combined, name=name)


def weighted_ensemble(predictions: Sequence[Predictions], name: str) -> Predictions:
    """A mean weighted by how likely each predictor makes the validation split; its seeds share its weight.

    Many similar or weak members do little harm: unlike fitted weights, these fall with each member's own likelihood.
    """
    inner_members = [member.inner for member in predictions if member.inner is not None]
    if len(inner_members) < len(predictions):
        raise BadInput("a weighted ensemble needs the outputs of every member on the validation split")
    _check_same_windows(predictions)
    weights, kind = _likelihood_weights(inner_members), _task_kind(predictions[0])
    combined = _combine(predictions, "fitted", weights, kind)
    return replace(combined, name=name, inner=_combine(inner_members, "fitted", weights, kind))


def combine_validated(members: Sequence[Predictions]) -> Predictions:
    """The weighted ensemble of predictions on the validation split, on that split; a single one as it is."""
    if len(members) < 2:
        return members[0]
    _check_same_windows(members)
    return _combine(members, "fitted", _likelihood_weights(members), _task_kind(members[0]))


def _likelihood_weights(inner: Sequence[Predictions]) -> Array:
    """Equal weights times a power of each member's likelihood on the validation split."""
    if _task_kind(inner[0]) == "regress":
        targets = np.asarray(inner[0].table.targets[:, 0], np.float64)
        errors = [np.mean((np.stack(list(member.logits))[:, 0] - targets) ** 2) for member in inner]
        likelihoods = -len(targets) / 2 * np.log(np.maximum(errors, EPS))  # of normal errors, up to a constant
    else:
        likelihoods = np.array([np.log(np.maximum(_target_probabilities(member), EPS)).sum() for member in inner])
    weights = _equal_weights(inner) * np.exp(TEMPER * (likelihoods - likelihoods.max()))
    return np.asarray(weights / weights.sum())


def _equal_weights(members: Sequence[Predictions]) -> Array:
    """Equal weights for each predictor; its seeds share its weight."""
    seeds = Counter(member.name for member in members)
    return np.array([1 / (len(seeds) * seeds[member.name]) for member in members])


def check_how(how: str, regress: bool) -> None:
    """Reject unknown ways to combine, and ``max`` for values."""
    if how not in get_args(How):
        raise BadInput(unknown_name("way to combine", how, list(get_args(How))))
    if regress and how == "max":
        raise BadInput("how='max' is for labels and spans; values are combined by 'mean' or 'fitted'")


def _check_same_windows(members: Sequence[Predictions]) -> None:
    """Raise an error that names the first member with another split or another number of windows."""
    first = members[0]
    for member in members[1:]:
        if (member.split, len(member.logits)) != (first.split, len(first.logits)):
            raise BadInput(
                f"ensemble: {row_title(first)!r} predicts {len(first.logits):,} windows of {first.split}, "
                f"{row_title(member)!r} {len(member.logits):,} of {member.split}; expected the same split and windows; "
                "predict all members from one store and split"
            )


def _combine(members: Sequence[Predictions], how: How, weights: Array, kind: Kind) -> Predictions:
    windows = zip(*(member.logits for member in members), strict=True)
    outputs = [combine_rows(rows, how, weights, kind) for rows in windows]
    names = tuple(row_title(member) for member in members)
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
        layers_run=max(member.layers_run for member in members),
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
    """1 / (1 + e^-x) without overflow; scipy's expit differs from earlier versions of BERTVision in the last bit."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, np.float64))))


def _mixture_weights(inner: Sequence[Predictions]) -> Array:
    """Mixture weights that maximise the likelihood of the inner targets, by EM (the problem is convex)."""
    likelihood = np.stack([_target_probabilities(member) for member in inner], 1)  # (targets, members)
    weights = np.full(len(inner), 1 / len(inner))
    for _ in range(EM_STEPS):
        joint = weights * likelihood  # (targets, members)
        weights = (joint / np.maximum(joint.sum(1, keepdims=True), EPS)).mean(0)
    return weights


def _target_probabilities(member: Predictions) -> Array:
    """Predicted probability of each target: the label, each label's presence or absence, or start and end token."""
    if _task_kind(member) == "multilabel":
        present = sigmoid(np.stack(list(member.logits)))  # (windows, labels)
        return np.where(member.table.targets > 0, present, 1 - present).ravel()
    likelihoods: list[float] = []
    for window, logits in enumerate(member.logits):
        probabilities = softmax_rows(logits)
        targets = member.table.targets[window].astype(int)
        if logits.ndim == 1:
            likelihoods.append(probabilities[targets[0]])
        else:
            likelihoods.extend(probabilities[target, side] for side, target in enumerate(targets))  # start, end
    return np.asarray(likelihoods)


def _least_squares(inner: Sequence[Predictions]) -> Array:
    """Non-negative weights that minimise the squared error on inner."""
    from scipy.optimize import nnls

    outputs = [np.stack(list(member.logits))[:, 0] for member in inner]  # each (windows,)
    columns = np.stack(outputs, 1).astype(np.float64)  # (windows, members)
    weights, _ = nnls(columns, np.asarray(inner[0].table.targets[:, 0], np.float64))
    return np.asarray(weights) if weights.sum() > 0 else np.full(len(inner), 1 / len(inner))


def _task_kind(predictions: Predictions) -> Kind:
    """The kind of task, inferred from the shapes of outputs and targets."""
    if predictions.logits[0].ndim == 2:
        return "span"
    if len(predictions.logits[0]) == 1:
        return "regress"
    return "multilabel" if predictions.table.targets.shape[1] > 1 else "classify"
