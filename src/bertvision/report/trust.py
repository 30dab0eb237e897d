"""Which differences are real: every predictor beside the encoder, the control and the best head."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.board_text import SURE, compared_with
from bertvision.core.records import CONTROL, Board, Compared
from bertvision.report.markup import NOTHING, Html, Section, join, number, scrolling, section, tag
from bertvision.runs.lines import Line
from bertvision.runs.reader import Run

MINUS = "\N{MINUS SIGN}"


def trust_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Nothing where the leaderboard compared nothing."""
    board = run.board
    if not board.comparisons:
        return None
    references = [name for name in _references(board) if any(name in (one.a, one.b) for one in board.comparisons)]
    head = [tag("th", "predictor", scope="col"), *(_test_heading(board, name) for name in references)]
    rows = [_test_row(board, line, references) for line in lines]
    body = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="versus")
    return section("trust", "Which differences are real", *_test_reading(board), scrolling(body, "Differences"))


def _references(board: Board) -> list[str]:
    own = [row.name for row in board.rows if row.kind == "encoder"]
    return list(dict.fromkeys([*own, CONTROL, *([board.best_head] if board.best_head else [])]))


def _test_reading(board: Board) -> list[Html]:
    """What was done, in words."""
    basis = board.basis
    luck = (
        f"Intervals are 95 % for the luck of the examples: {basis['draws']:,} samples of the {basis['clusters']:,} "
        f"{basis['of']} of {board.split}, drawn with replacement{_together(basis['of'])}. They say nothing of other "
        "tunings of the encoder: all rows share one, and a seed varies only a head's random start."
    )
    tests = (
        f"Each cell is the predictor minus the one above the column, in points of {board.metric}, on the same "
        f"examples. p is that of a paired test, corrected by Holm over all {len(board.comparisons)} tests of this "
        f"table; below {SURE} the difference is called real. An interval is that of one difference alone, so that it "
        f"may lie beside 0 where so many looks leave p large. {_seeds(board.comparisons)}"
    )
    return [tag("p", tests), tag("p", luck)]


def _together(of: str) -> str:
    return ", all questions on a context together" if of == "contexts" else ""


def _seeds(comparisons: Sequence[Compared]) -> str:
    several = any(len(seeds) > 1 for one in comparisons for seeds in (one.a_seeds, one.b_seeds))
    if several:
        return "A head with several seeds is their mean, example by example."
    return "A head is shown by its seed that is best on inner."


def _test_heading(board: Board, name: str) -> Html:
    titles = ["the control"] if name == CONTROL else []
    titles += ["best head on inner"] if name == board.best_head else []
    notes = [tag("small", title) for title in titles]
    return tag("th", "minus ", tag("code", name), *notes, scope="col")


def _test_row(board: Board, line: Line, references: Sequence[str]) -> Html:
    cells = [_cell(compared_with(board, line.name, name)) for name in references]
    return tag("tr", tag("th", tag("code", line.name), scope="row"), *cells)


def _cell(found: Compared | None) -> Html:
    if found is None:
        return tag("td", NOTHING)
    real = found.p_holm < SURE
    verdict = ("ahead" if found.difference > 0 else "behind") if real else None
    ends = (
        []
        if found.low is None or found.high is None
        else [tag("small", f"{signed(found.low)} to {signed(found.high)}")]
    )
    mark = tag("span", verdict, class_="tag") if verdict else ""
    return tag("td", join([signed(found.difference), mark], " "), *ends, tag("small", chance(found)), class_=verdict)


def chance(found: Compared) -> str:
    """The corrected p, as far as it can be told."""
    return f"p {found.p_holm:.3f}" if found.p_holm >= 0.001 else "p < 0.001"


def signed(value: float) -> str:
    """With its sign, a real minus."""
    return f"{'+' if value >= 0 else MINUS}{number(abs(value))}"


def interval_note(ends: tuple[float, float] | None) -> Html:
    """An interval in small print; nothing where there is none."""
    if ends is None:
        return Html("")
    return tag("small", f"95 %: {number(ends[0], 1)} to {number(ends[1], 1)}")
