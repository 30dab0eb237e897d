"""Which head to use, in one sentence, judged on inner and told with the dev scores beside it."""

from __future__ import annotations

from bertvision.records import Board

CONTROL = "probe:layers=last1"
"""The row that shows what refitting the last layer alone gains."""


def advise(board: Board) -> str:
    """The head with the best mean inner score over its seeds, beside the encoder and the control."""
    heads = [row for row in board.rows if row.kind == "head"]
    specs = list(dict.fromkeys(row.spec for row in heads))
    metric = board.metric

    def mean(spec: str, where: str) -> float:
        values = [getattr(row, where)[metric] for row in heads if row.spec == spec]
        return float(sum(values) / len(values))

    best = max(specs, key=lambda spec: mean(spec, "inner"))
    own = "".join(f", the encoder alone {row.scores[metric]:.2f}" for row in board.rows if row.kind == "encoder")
    control = f" and the control {mean(CONTROL, 'scores'):.2f}" if CONTROL in specs and best != CONTROL else ""
    return (
        f"Use {best}: best of {len(specs)} heads on inner ({metric} {mean(best, 'inner'):.2f}, mean over seeds); "
        f"on {board.split} it has {metric} {mean(best, 'scores'):.2f}{own}"
        f"{control}. Best row on inner: {board.rows[0].name}."
    )
