"""The text of a leaderboard: intervals, paired tests, thresholds, calibration and advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bertvision.core.leaderboard_text import board_notes
from bertvision.core.records import CONTROL, Board, PairedTest, Row, SeedSummary, paired_test_with
from bertvision.evaluation.leaderboard import advise


def row(name: str, seed: int | None, kind: str, inner: float, f1: float = 70.0) -> Row:
    return Row(name, name, kind, seed, 10, 1.0, {"f1": f1, "total": 4}, {"f1": inner}, 1.0)  # type: ignore[arg-type]


ROWS = (
    row("pool", 0, "head", 80.0),
    row("pool", 1, "head", 78.0),
    row(CONTROL, 0, "head", 77.0),
    row("encoder", None, "encoder", 70.0, 60.0),
)


def versus(a: str, b: str, difference: float, p: float) -> PairedTest:
    return PairedTest(a, b, difference, difference - 1, difference + 1, p / 3, p)


def board(*comparisons: PairedTest) -> Board:
    lines = tuple(SeedSummary(name, "head", (0, 1), 70.0, 1.0, 69.0, 71.0, (65.0, 75.0)) for name in ("pool", CONTROL))
    basis = {"level": 0.95, "draws": 2000, "clusters": 56, "of": "contexts", "seeds_vary": "head"}
    facts = {"split": "inner", "rows": 90, "score": 79.0, "error": 1.5, "prefer": "best", "tied": [CONTROL]}
    return Board("t", "dev", "f1", ROWS, lines, "pool", comparisons, (), basis, CONTROL, "pool@0", facts)


AHEAD = versus("pool", "encoder", 9.0, 0.001)
EQUAL = versus("pool", CONTROL, 0.5, 0.8)
BEHIND = versus("encoder", CONTROL, -8.0, 0.01)


def test_tests_are_reported_against_each_reference() -> None:
    notes = board_notes(board(AHEAD, EQUAL, BEHIND))
    assert notes[0] == (
        "95 % intervals: bootstrap over the 56 contexts of dev (2,000 samples); seeds vary the initial weights of "
        "heads, not the encoder"
    )
    method = "(paired test, Holm-corrected over 3 tests, p < 0.05)"
    assert notes[1] == f"vs. encoder {method}: better: pool, {CONTROL}"
    assert notes[2] == f"vs. the control {method}: worse: encoder; no significant difference: pool"
    assert len(notes) == 3


def test_paired_test_with_finds_a_test_in_either_direction() -> None:
    flipped = paired_test_with(board(BEHIND), CONTROL, "encoder")
    assert flipped is not None
    assert (flipped.a, flipped.b) == (CONTROL, "encoder")
    assert (flipped.difference, flipped.low, flipped.high) == (8.0, 7.0, 9.0)
    assert paired_test_with(board(BEHIND), "pool", "encoder") is None


def test_many_predictors_without_a_difference_are_counted() -> None:
    equals = [versus(f"head{i}", "encoder", 0.1, 1.0) for i in range(5)]
    assert board_notes(board(*equals))[1].endswith("over 5 tests, p < 0.05): no significant difference: 5 predictors")
    assert "over 1 test," in board_notes(board(EQUAL))[1]


def test_threshold_and_calibration_of_the_best_row_are_reported() -> None:
    thresholds = {
        "zero": {"exact": 60.0, "f1": 61.0, "threshold": 0.0},
        "fitted": {"exact": 68.0, "f1": 70.0, "threshold": -0.5},
        "oracle": {"best_exact": 69.0, "best_exact_thresh": 1.0, "best_f1": 72.0, "best_f1_thresh": 1.5},
    }
    calibration = {"no_answer": {"temperature": 1.6, "ece_raw": 0.126, "ece": 0.07}}
    first = replace(ROWS[0], thresholds=thresholds, calibration=calibration)
    notes = board_notes(replace(board(), rows=(first, *ROWS[1:])))
    assert notes[1] == (
        "no-answer threshold of pool@0: f1 61.00 at threshold 0, 70.00 at -0.50 (fitted on inner), 72.00 at 1.50 "
        "(oracle on dev, for reference only)"
    )
    assert notes[2].endswith("before -> after temperature scaling: no-answer 12.6 % -> 7.0 % (T = 1.60)")


def test_board_without_tests_is_only_a_table() -> None:
    bare = Board("t", "dev", "f1", ROWS)
    assert board_notes(bare) == []
    assert len(str(bare).splitlines()) == 1 + len(ROWS)
    assert "95 %" not in str(bare)
    assert str(Board("t", "dev", "f1")).startswith("predictor")


def test_table_has_a_column_of_intervals() -> None:
    with_interval = replace(board(), rows=(replace(ROWS[0], interval=(64.25, 75.31)), *ROWS[1:]))
    lines = str(with_interval).splitlines()
    assert "f1 95 %" in lines[0]
    assert "64.2 to 75.3" in lines[1]
    assert len({len(line) for line in lines[: 1 + len(ROWS)]}) == 1


@pytest.mark.parametrize(
    ("comparisons", "message"),
    [
        (
            (AHEAD, EQUAL),
            "There, the encoder alone has 60.00 (significantly better, p = 0.001); "
            f"the control, {CONTROL}, has 70.00 (no significant difference, p = 0.8). "
            "There is no sign that the layers below the last help here.",
        ),
        (
            (versus("pool", CONTROL, 5.0, 0.0001),),
            f"There, the encoder alone has 60.00 (not tested); the control, {CONTROL}, has 70.00 "
            "(significantly better, p < 0.001). The layers below the last help here.",
        ),
        (
            (versus("pool", CONTROL, -5.0, 0.0001), versus("pool", "encoder", -3.0, 0.02)),
            "There, the encoder alone has 60.00 (significantly worse, p = 0.02); "
            f"the control, {CONTROL}, has 70.00 (significantly worse, p < 0.001). "
            "There is no sign that the layers below the last help here.",
        ),
        ((), f"There, the encoder alone has 60.00 (not tested); the control, {CONTROL}, has 70.00 (not tested)."),
    ],
)
def test_advice_names_tests_and_references(comparisons: tuple[PairedTest, ...], message: str) -> None:
    reason = "f1 79.00 (standard error 1.50) on inner, tied with 1 other predictor"
    assert advise(board(*comparisons)) == f"Use pool@0: {reason}; f1 70.00 on dev (means over 2 seeds). {message}"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"tied": []}, "f1 79.00 (standard error 1.50) on inner"),
        ({"tied": ["a", "b"]}, "f1 79.00 (standard error 1.50) on inner, tied with 2 other predictors"),
        (
            {"split": "folds", "rows": 1200, "tied": []},
            "f1 79.00 (standard error 1.50) on 1,200 training rows, each predicted without it",
        ),
        ({"prefer": "small"}, "the smallest of the best rows, f1 79.00 (standard error 1.50) on inner"),
        ({"prefer": "fast"}, "the fastest of the best rows, f1 79.00 (standard error 1.50) on inner"),
    ],
)
def test_advice_says_what_the_recommendation_rests_on(facts: dict[str, object], reason: str) -> None:
    chosen = replace(board(), selection={**board().selection, **facts})
    assert advise(chosen).startswith(f"Use pool@0: {reason}; f1 70.00 on dev (means over 2 seeds). There, ")


def test_advice_without_a_validation_split_names_the_first_row() -> None:
    bare = replace(board(), recommended=None, selection={})
    assert advise(bare).startswith("Use pool@0: best of 4 rows; f1 70.00 on dev (means over 2 seeds).")


def test_advice_warns_if_the_row_is_not_clearly_better_than_the_best_constant_answer() -> None:
    warning = "It is not clearly better than always yes (66.00): collect more data."
    for interval, warned in (((64.0, 75.0), True), (None, True), ((67.0, 75.0), False)):
        rows = (replace(ROWS[0], interval=interval), *ROWS[1:])
        assert advise(replace(board(), rows=rows), ("always yes", 66.0)).endswith(warning) == warned
    assert "collect more data" not in advise(board())


def test_advice_does_not_compare_the_control_with_itself() -> None:
    advice = advise(replace(board(BEHIND), recommended=f"{CONTROL}@0"))
    assert advice.startswith(f"Use {CONTROL}@0:")
    assert advice.endswith("There, the encoder alone has 60.00 (significantly better, p = 0.01).")
    assert "the control" not in advice
    assert "layers below" not in advice


def test_repr_of_a_board_is_one_short_line() -> None:
    assert repr(board()) == "Board(t dev, f1, 4 rows, best_head='pool')"
