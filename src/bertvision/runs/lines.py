"""The leaderboard by predictor: one line a head, its seeds together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertvision.core.records import CONTROL, Board, Predictions, Row


@dataclass(frozen=True)
class Line:
    """One predictor: a head with all its seeds, the encoder, or an ensemble."""

    name: str
    kind: str  # head, control, encoder or ensemble
    rows: tuple[Row, ...]  # best on inner first, as on the board
    interval: tuple[float, float] | None = None  # of the mean over seeds of the metric

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(row.seed for row in self.rows if row.seed is not None))

    def values(self, score: str, where: str = "scores") -> list[float]:
        """A score of every seed; no number where it was not measured."""
        told: Sequence[Mapping[str, float]] = [getattr(row, where) for row in self.rows]
        return [float(scores.get(score, math.nan)) for scores in told]

    def mean(self, score: str, where: str = "scores") -> float:
        values = self.values(score, where)
        return sum(values) / len(values)

    @property
    def seconds(self) -> float:
        """Of one seed."""
        return sum(row.seconds for row in self.rows) / len(self.rows)


def row_title(row: Row | Predictions) -> str:
    """A row's name; of several seeds also which. Files of what it said are called so, too."""
    return row.name if row.seed is None else f"{row.name}@{row.seed}"


def lines_of(board: Board) -> list[Line]:
    """Best mean on inner first; what has no inner score comes last."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in board.rows:
        groups.setdefault((row.kind, row.spec if row.kind == "head" else row.name), []).append(row)
    ends = {line.name: line.interval for line in board.lines}
    lines = [Line(name, _kind(kind, name), tuple(rows), ends.get(name)) for (kind, name), rows in groups.items()]
    return sorted(lines, key=lambda line: _last_if_unknown(line.mean(board.metric, "inner")))


def _kind(kind: str, name: str) -> str:
    return "control" if (kind, name) == ("head", CONTROL) else kind


def _last_if_unknown(score: float) -> float:
    return math.inf if math.isnan(score) else -score


def best_head(lines: Sequence[Line]) -> Line | None:
    """The head that the advice names."""
    return next((line for line in lines if line.kind in ("head", "control")), None)
