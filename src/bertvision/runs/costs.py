"""What each predictor of a run cost, from what was written down when it was made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bertvision.core.records import Row
from bertvision.evaluation.analyses.cost import PredictorCost
from bertvision.runs.reader import Line, Run, row_title

ENCODER = "encoder"
TRAINING_SPLITS = ("train", "inner")
"""Splits whose states a head is fitted and chosen on; those of dev are inference."""


def predictor_costs(run: Run, lines: Sequence[Line], seconds: Mapping[str, float]) -> list[PredictorCost]:
    """``seconds``: of every head (spec@seed) over the split, if they were measured."""
    return [_price(run, line, seconds) for line in lines]


def _price(run: Run, line: Line, seconds: Mapping[str, float]) -> PredictorCost:
    row = line.rows[0]
    score = row.scores[run.board.metric]
    return PredictorCost(row_title(row), score, _trained(run, row), _training(run, row), _inference(run, row, seconds))


def _trained(run: Run, row: Row) -> int | None:
    """size of the predictor - size of the encoder + what tuning trained of it; a head's size is all its own.

    The encoder's size is that of its row, its own head included, as in the count of what was trained.
    """
    if ENCODER not in _members(row):
        return row.parameters
    own = next((one.parameters for one in run.board.rows if one.kind == ENCODER), None)
    trained = _tuning(run).get("trained")
    return None if own is None or trained is None else row.parameters - own + int(trained)


def _training(run: Run, row: Row) -> float | None:
    """Tuning and, for what has heads, their states and fits; None where the encoder's passes were not timed."""
    if row.kind == ENCODER:
        return row.seconds
    passes = _passes(run, TRAINING_SPLITS)
    # What has the encoder as a member holds its tuning already.
    tuned = 0.0 if ENCODER in _members(row) else float(_tuning(run).get("seconds") or 0.0)
    return None if passes is None else row.seconds + passes + tuned


def _inference(run: Run, row: Row, seconds: Mapping[str, float]) -> float | None:
    """The encoder's pass over the split and every head's; None where one of them was not timed."""
    heads = [seconds.get(name) for name in _members(row) if name != ENCODER]
    parts = [_passes(run, [run.board.split]), *heads]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _members(row: Row) -> Sequence[str]:
    return row.members or (ENCODER if row.kind == ENCODER else row_title(row),)


def _tuning(run: Run) -> Mapping[str, Any]:
    """What tuning the encoder took; nothing of one that was not tuned."""
    found: Mapping[str, Any] = run.encoder.get("record", {}).get("cost", {})
    return found


def _passes(run: Run, splits: Collection[str]) -> float | None:
    """Seconds of the encoder over some splits: their share of the extraction, by tokens. Live states are not timed."""
    tokens = {name: float(split["tokens"]) for name, split in run.manifest.get("splits", {}).items()}
    whole, seconds = sum(tokens.values()), run.manifest.get("seconds")
    if not whole or not seconds:
        return None
    return float(seconds) * sum(tokens[name] for name in splits) / whole
