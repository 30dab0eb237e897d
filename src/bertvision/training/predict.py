"""Predictions of fitted heads, or of the encoder's native head, on a split and on inner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bertvision.core.errors import BadInput
from bertvision.core.progress import progress
from bertvision.core.records import Predictions
from bertvision.heads.base import build_head
from bertvision.store.states import ShardedSplit, States
from bertvision.training.fitted_head import FittedHead, load_split_outputs, save_split_outputs, scatter_outputs

BATCH = 32


def predict(heads: FittedHead | Sequence[FittedHead], split: ShardedSplit) -> list[Predictions]:
    """Predict a split with fitted heads, from one read of its states.

    Args:
        heads: One fitted head or several. Outputs of saved heads are cached next to them and reused.
        split: A split of the states that the heads were fitted on, e.g. ``store["dev"]``.

    Returns:
        One :class:`Predictions` per head, in the given order, with the logits of every window; ``.inner`` holds
        the head's predictions on inner.

    Example:
        >>> predictions = predict(fit(["probe"], store), store["dev"])  # doctest: +SKIP
    """
    heads = [heads] if isinstance(heads, FittedHead) else list(heads)
    outputs = [load_split_outputs(fitted, split.name, split.store.id) for fitted in heads]
    missing = [index for index, rows in enumerate(outputs) if rows is None]
    if missing:
        for index, rows in zip(missing, _compute([heads[index] for index in missing], split), strict=True):
            outputs[index] = rows
    return [_predictions(fitted, split, rows or []) for fitted, rows in zip(heads, outputs, strict=True)]


@torch.inference_mode()
def _compute(heads: Sequence[FittedHead], split: ShardedSplit) -> list[list[Any]]:
    """Outputs per head and window; those of saved heads are cached."""
    outputs: list[list[Any]] = [[None] * len(split) for _ in heads]
    for batch in progress(split.batches(BATCH), f"predict {split.name}", total=split.batch_count(BATCH)):
        for fitted, rows in zip(heads, outputs, strict=True):
            scatter_outputs(fitted.head.forward_batch(batch), batch, split.shape.kind, rows)
    for fitted, rows in zip(heads, outputs, strict=True):
        save_split_outputs(fitted, split.name, split.store.id, rows)
    return outputs


def predict_validation(fitted: FittedHead, states: States) -> Predictions:
    """The outputs that a head was selected by: on inner, or out of fold on train and inner."""
    return Predictions(
        name=fitted.spec,
        spec=fitted.spec,
        kind="head",
        split=fitted.validation,
        logits=fitted.inner,
        table=states[fitted.validation].table(),
        seed=fitted.seed,
        parameters=fitted.parameters,
        layers_run=_layers_run(fitted, states),
        encoder_parameters=int(states.manifest["encoder"]["parameters"]),
        seconds=fitted.seconds,
    )


def _predictions(fitted: FittedHead, split: ShardedSplit, outputs: list[Any]) -> Predictions:
    inner = predict_validation(fitted, split.store)
    return replace(inner, split=split.name, logits=outputs, table=split.table(), inner=inner)


def _layers_run(fitted: FittedHead, states: States) -> int:
    """Encoder layers up to the highest state that a head reads; the pooled CLS needs all of them."""
    numbers = fitted.states or states.layers
    if fitted.head.needs_pooled:
        return max(states.layers)
    return max(numbers[layer] for layer in fitted.head.needed_layers)


def predict_own(split: ShardedSplit) -> Predictions:
    """Predictions of the head that the encoder was tuned with, which were stored with its states.

    Args:
        split: A split of states from a tuned encoder, e.g. ``store["dev"]``.

    Returns:
        The encoder's predictions on the split; ``.inner`` holds those on inner.

    Raises:
        BadInput: The encoder was not tuned and so has no head.

    Example:
        >>> predictions = predict_own(store["dev"])  # doctest: +SKIP
    """
    manifest = split.store.manifest
    logits, inner_logits = split.native_logits(), split.store["inner"].native_logits()
    if logits is None or inner_logits is None:
        raise BadInput("this encoder was not tuned with a head, so it has no predictions of its own; run tune first")
    encoder = manifest["encoder"]
    # The native head was given all layers, even if only some are stored.
    shape = replace(split.shape, layers=int(encoder.get("layers", split.shape.layers)))
    inner = Predictions(
        name="encoder",
        spec=manifest["own"],
        kind="encoder",
        split="inner",
        logits=inner_logits,
        table=split.store["inner"].table(),
        parameters=build_head(manifest["own"], shape).num_parameters + int(encoder["parameters"]),
        encoder_parameters=int(encoder["parameters"]),
        layers_run=shape.layers - 1,
        seconds=float(encoder["record"].get("cost", {}).get("seconds", 0.0)),
    )
    return replace(inner, split=split.name, logits=logits, table=split.table(), inner=inner)
