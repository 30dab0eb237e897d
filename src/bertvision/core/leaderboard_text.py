"""The text and the JSON document of a leaderboard: its table, and notes on tests, thresholds and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bertvision.core.records import ALPHA, FIRST_CONTROL, FOLDS, Board, PairedTest, Row, paired_tests_against
from bertvision.core.text_table import align_columns

MAX_LISTED = 3
"""Predictors without a significant difference are listed up to this number, and counted above it."""

BOARD_KEYS = {"summary": "lines", "resampling_info": "basis"}
"""Fields whose key in leaderboard.json differs from their name."""


def board_document(board: Board) -> dict[str, Any]:
    """The content of leaderboard.json; it names the control only if that is another than the first."""
    document = {BOARD_KEYS.get(name, name): value for name, value in asdict(board).items()}
    if board.control == FIRST_CONTROL:
        del document["control"]
    return document


def board_text(board: Board) -> str:
    """The table and the notes below it."""
    return "\n".join([*_table(board), *board_notes(board)])


def _table(board: Board) -> list[str]:
    names = [name for name in board.rows[0].scores if not name.endswith("total")] if board.rows else []
    has_intervals = any(row.interval for row in board.rows)
    header = ["predictor", "seed", "parameters", "% of encoder", *names]
    header += [f"{board.metric} 95 %"] if has_intervals else []
    validation = "held-out" if board.selection.get("split") == FOLDS else "inner"
    lines = [[*header, f"{validation} {board.metric}"]]
    for row in board.rows:
        cells = [row.name, "" if row.seed is None else str(row.seed), f"{row.parameters:,}", f"{row.percent:.3f}"]
        cells += [f"{row.scores[name]:.2f}" for name in names]
        if has_intervals:
            cells.append("" if row.interval is None else f"{row.interval[0]:.1f} to {row.interval[1]:.1f}")
        lines.append([*cells, f"{row.inner.get(board.metric, float('nan')):.2f}"])
    return align_columns(lines)


def board_notes(board: Board) -> list[str]:
    """The notes below the table: confidence intervals, paired tests, no-answer threshold and calibration."""
    notes = []
    info = board.resampling_info
    if info:
        note = f"95 % intervals: bootstrap over the {info['clusters']:,} {info['of']} of {board.split}"
        note += f" ({info['draws']:,} samples)"
        if any(len(entry.seeds) > 1 for entry in board.summary):
            note += "; seeds vary the initial weights of heads, not the encoder"
        notes.append(note)
    for reference in [*(row.name for row in board.rows if row.kind == "encoder"), board.control]:
        tests = paired_tests_against(board, reference)
        if tests:
            notes.append(_test_note(tests, reference, board))
    if board.rows:
        notes += [*_no_answer_note(board, board.rows[0]), *_calibration_note(board.rows[0])]
    return notes


def _test_note(tests: Sequence[PairedTest], reference: str, board: Board) -> str:
    better = [test.a for test in tests if test.p_holm < ALPHA and test.difference > 0]
    worse = [test.a for test in tests if test.p_holm < ALPHA and test.difference < 0]
    similar = [test.a for test in tests if test.p_holm >= ALPHA]
    if len(similar) > MAX_LISTED:
        similar = [f"{len(similar)} predictors"]
    groups = {"better": better, "worse": worse, "no significant difference": similar}
    text = "; ".join(f"{title}: {', '.join(names)}" for title, names in groups.items() if names)
    versus = "the control" if reference == board.control else reference
    family = len(board.comparisons)
    count = f"{family} test{'' if family == 1 else 's'}"
    return f"vs. {versus} (paired test, Holm-corrected over {count}, p < {ALPHA}): {text}"


def _no_answer_note(board: Board, row: Row) -> list[str]:
    if not row.thresholds:
        return []
    metric, zero, oracle = board.metric, row.thresholds["zero"], row.thresholds["oracle"]
    fitted = row.thresholds.get("fitted")  # missing without an inner split
    scores = [f"{zero[metric]:.2f} at threshold 0"]
    if fitted:
        scores.append(f"{fitted[metric]:.2f} at {fitted['threshold']:.2f} (fitted on inner)")
    best = f"best_{metric}"
    scores.append(f"{oracle[best]:.2f} at {oracle[f'{best}_thresh']:.2f} (oracle on {board.split}, for reference only)")
    return [f"no-answer threshold of {_title(row)}: {metric} {', '.join(scores)}"]


def _calibration_note(row: Row) -> list[str]:
    if not row.calibration:
        return []
    errors = []
    for what, fit in row.calibration.items():
        change = f"{100 * fit['ece_raw']:.1f} % -> {100 * fit['ece']:.1f} %"
        errors.append(f"{what.replace('_', '-')} {change} (T = {fit['temperature']:.2f})")
    return [f"expected calibration error of {_title(row)} before -> after temperature scaling: {', '.join(errors)}"]


def _title(row: Row) -> str:
    return row.name if row.seed is None else f"{row.name}@{row.seed}"
