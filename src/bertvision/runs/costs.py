"""The cost of each predictor of a run, from the records of its training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bertvision.core.records import Row
from bertvision.core.row_title import row_title
from bertvision.evaluation.analyses.cost import PredictorCost
from bertvision.runs.reader import Line, Run

ENCODER = "encoder"
TRAINING_SPLITS = ("train", "inner")
"""Splits that heads are fitted and selected on; the states of dev count as inference."""


def predictor_costs(run: Run, lines: Sequence[Line], head_seconds: Mapping[str, float]) -> list[PredictorCost]:
    """The cost of each row; ``head_seconds`` holds measured inference seconds by head (spec@seed)."""
    costs = []
    for line in lines:
        row = line.rows[0]
        training, inference = _training_seconds(run, row), _inference_seconds(run, row, head_seconds)
        score = row.scores[run.board.metric]
        costs.append(PredictorCost(row_title(row), score, _trained_parameters(run, row), training, inference))
    return costs


def _trained_parameters(run: Run, row: Row) -> int | None:
    """Size of the predictor - size of the encoder + what fine-tuning trained of it; all of a head is trained.

    The size of the encoder is that of its row: it includes the native head, as does the count of trained parameters.
    """
    if ENCODER not in _members(row):
        return row.parameters
    encoder_size = next((row.parameters for row in run.board.rows if row.kind == ENCODER), None)
    trained = _tuning_cost(run).get("trained")
    return None if encoder_size is None or trained is None else row.parameters - encoder_size + int(trained)


def _training_seconds(run: Run, row: Row) -> float | None:
    """Fine-tuning and, for heads, their states and fits; None if the encoder's passes were not timed."""
    if row.kind == ENCODER:
        return row.seconds
    extraction = _extraction_seconds(run, TRAINING_SPLITS)
    # The seconds of an ensemble with the encoder as a member already include fine-tuning.
    tuning = 0.0 if ENCODER in _members(row) else float(_tuning_cost(run).get("seconds") or 0.0)
    return None if extraction is None else row.seconds + extraction + tuning


def _inference_seconds(run: Run, row: Row, head_seconds: Mapping[str, float]) -> float | None:
    """The encoder's pass over the split plus all heads; None if any of them was not timed."""
    heads = [head_seconds.get(name) for name in _members(row) if name != ENCODER]
    parts = [_extraction_seconds(run, [run.board.split]), *heads]
    measured = [part for part in parts if part is not None]
    return sum(measured) if len(measured) == len(parts) else None


def _members(row: Row) -> Sequence[str]:
    return row.members or (ENCODER if row.kind == ENCODER else row_title(row),)


def _tuning_cost(run: Run) -> Mapping[str, Any]:
    """The recorded cost of fine-tuning; empty for an encoder that was not fine-tuned."""
    cost: Mapping[str, Any] = run.encoder.get("record", {}).get("cost", {})
    return cost


def _extraction_seconds(run: Run, splits: Collection[str]) -> float | None:
    """The splits' share of the extraction time, by tokens; None for live states, which are not timed."""
    tokens = {name: float(split["tokens"]) for name, split in run.manifest.get("splits", {}).items()}
    total, seconds = sum(tokens.values()), run.manifest.get("seconds")
    if not total or not seconds:
        return None
    return float(seconds) * sum(tokens[name] for name in splits) / total
