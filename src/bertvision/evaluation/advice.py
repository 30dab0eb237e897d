"""Which head to use, in a few sentences: chosen on inner, told with the dev scores and with what these can tell."""

from __future__ import annotations

from bertvision.core.board_text import SURE, compared_with
from bertvision.core.records import CONTROL, Board


def advise(board: Board) -> str:
    """The head with the best mean inner score over its seeds, beside the encoder and the control."""
    heads = [row for row in board.rows if row.kind == "head"]
    specs = list(dict.fromkeys(row.spec for row in heads))
    metric = board.metric

    def mean(spec: str, where: str) -> float:
        values = [getattr(row, where)[metric] for row in heads if row.spec == spec]
        return float(sum(values) / len(values))

    best = board.best_head
    assert best is not None, "advice is about heads"
    encoder = next((row for row in board.rows if row.kind == "encoder"), None)
    told = [] if encoder is None else [("the encoder alone", encoder.name, encoder.scores[metric])]
    told += [("the control", CONTROL, mean(CONTROL, "scores"))] if CONTROL in specs and best != CONTROL else []
    beside = "".join(f", {title} {score:.2f} ({_verdict(board, best, name)})" for title, name, score in told)
    return (
        f"Use {best}: best of {len(specs)} heads on inner ({metric} {mean(best, 'inner'):.2f}, mean over seeds); "
        f"on {board.split} it has {metric} {mean(best, 'scores'):.2f}{beside}."
        f"{_caution(board, best)} Best row on inner: {board.rows[0].name}."
    )


def _verdict(board: Board, best: str, reference: str) -> str:
    """Whether the examples can tell the two apart."""
    found = compared_with(board, best, reference)
    if found is None:
        return "not tested"
    chance = f"p {found.p_holm:.2g}" if found.p_holm >= 0.001 else "p < 0.001"
    if found.p_holm >= SURE:
        return f"not distinguishable, {chance}"
    return f"{'ahead' if found.difference > 0 else 'behind'} beyond chance, {chance}"


def _caution(board: Board, best: str) -> str:
    """What a gain may be credited to; nothing where the board did not test it."""
    found = compared_with(board, best, CONTROL)
    if found is None or best == CONTROL:
        return ""
    if found.p_holm < SURE and found.difference > 0:
        return " The layers below the last help here."
    return " Nothing shows that more layers than the last help here."
