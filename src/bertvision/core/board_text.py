"""A leaderboard as text: the table, and beneath it in words which differences are real."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.records import CONTROL, Board, Compared, Row

SURE = 0.05
"""A corrected p below this is told as a difference."""
MOST_NAMED = 3
"""Predictors that make no difference are counted, not named, if there are more."""


def board_text(board: Board) -> str:
    """The table and the words."""
    return "\n".join([*_table(board), *board_words(board)])


def _table(board: Board) -> list[str]:
    names = [name for name in board.rows[0].scores if not name.endswith("total")] if board.rows else []
    told = any(row.interval for row in board.rows)
    head = ["predictor", "seed", "parameters", "% of encoder", *names, *([f"{board.metric} 95 %"] if told else [])]
    lines = [[*_row_cells(row, names), *([_interval(row)] if told else [])] for row in board.rows]
    inner = [f"{row.inner.get(board.metric, float('nan')):.2f}" for row in board.rows]
    cells = [[*head, f"inner {board.metric}"], *([*line, score] for line, score in zip(lines, inner, strict=True))]
    return aligned(cells)


def _row_cells(row: Row, names: Sequence[str]) -> list[str]:
    seed = "" if row.seed is None else str(row.seed)
    scores = [f"{row.scores[name]:.2f}" for name in names]
    return [row.name, seed, f"{row.parameters:,}", f"{row.percent:.3f}", *scores]


def _interval(row: Row) -> str:
    return "" if row.interval is None else f"{row.interval[0]:.1f} to {row.interval[1]:.1f}"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells as columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(wide) for cell, wide in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    ]


def board_words(board: Board) -> list[str]:
    """What the table cannot say: luck of the examples, thresholds, and how honest the probabilities are."""
    references = [*(row.name for row in board.rows if row.kind == "encoder"), CONTROL]
    lines = [_beside(board, name) for name in references if _against(board, name)]
    return [*([_basis(board)] if board.basis else []), *lines, *_no_answer(board), *_calibration(board)]


def _basis(board: Board) -> str:
    basis = board.basis
    seeds = "; a seed varies the head's start, the encoder is the same" if any(_several(board)) else ""
    return (
        f"95 %: luck of the examples, {basis['draws']:,} samples of the {basis['clusters']:,} {basis['of']} of "
        f"{board.split}{seeds}"
    )


def _several(board: Board) -> list[bool]:
    return [len(line.seeds) > 1 for line in board.lines]


def _against(board: Board, name: str) -> list[Compared]:
    """All comparisons with a predictor, it on the second side."""
    return [_turned(one, name) for one in board.comparisons if name in (one.a, one.b)]


def _turned(one: Compared, second: str) -> Compared:
    if one.b == second:
        return one
    low, high = (None if end is None else -end for end in (one.high, one.low))
    return Compared(one.b, one.a, -one.difference, low, high, one.p, one.p_holm, one.b_seeds, one.a_seeds)


def compared_with(board: Board, name: str, reference: str) -> Compared | None:
    """A predictor minus a reference, if the board has that comparison."""
    return next((one for one in _against(board, reference) if one.a == name), None)


def _beside(board: Board, name: str) -> str:
    found = _against(board, name)
    sure = [one for one in found if one.p_holm < SURE]
    sorts = {
        "ahead": [one.a for one in sure if one.difference > 0],
        "behind": [one.a for one in sure if one.difference < 0],
        "not distinguishable": [one.a for one in found if one.p_holm >= SURE],
    }
    told = "; ".join(f"{sort}: {_named(names, sort)}" for sort, names in sorts.items() if names)
    title = "the control" if name == CONTROL else name
    return f"beside {title} (p < {SURE}, Holm over {len(board.comparisons)} tests): {told}"


def _named(names: Sequence[str], sort: str) -> str:
    if sort != "not distinguishable" or len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{len(names)} predictors"


def _no_answer(board: Board) -> list[str]:
    row = next(iter(board.rows), None)
    if row is None or not row.thresholds:
        return []
    at, metric = row.thresholds, board.metric
    fitted = (
        f", {at['fitted'][metric]:.2f} at {at['fitted']['threshold']:.2f} (fitted on inner)" if "fitted" in at else ""
    )
    oracle = f"{at['oracle'][f'best_{metric}']:.2f} at {at['oracle'][f'best_{metric}_thresh']:.2f}"
    return [
        f"no-answer threshold of {_title(row)}: {metric} {at['zero'][metric]:.2f} at 0{fitted}; "
        f"{oracle} would be best on {board.split} (an oracle, never used)"
    ]


def _calibration(board: Board) -> list[str]:
    row = next(iter(board.rows), None)
    if row is None or not row.calibration:
        return []
    told = [
        f"{what.replace('_', '-')} {100 * one['ece_raw']:.1f} -> {100 * one['ece']:.1f} (T = {one['temperature']:.2f})"
        for what, one in row.calibration.items()
    ]
    return [f"calibration error of {_title(row)} in points, before -> after temperature: {', '.join(told)}"]


def _title(row: Row) -> str:
    return row.name if row.seed is None else f"{row.name}@{row.seed}"
