"""The leaderboard as a table and as a picture, and which of its differences are significant."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.records import CONTROL, PairedTest, Row, paired_test_with
from bertvision.report.charts import dot_plot
from bertvision.report.markup import Html, join
from bertvision.report.render import Section, section
from bertvision.runs.reader import Line, Run, best_head

MIN_MEMBER_WEIGHT = 0.005
"""An ensemble's members of less weight than this are not listed."""


def leaderboard_section(run: Run, lines: Sequence[Line]) -> Section:
    """Scores, sizes and seconds of every predictor."""
    metric, examples = run.board.metric, run.task[run.board.split]
    # The metric first; counts of examples are no scores.
    scores = dict.fromkeys(name for line in lines for row in line.rows for name in row.scores)
    others = [name for name in scores if name != metric and not name.endswith("total")]
    rules = {line.name: line.mean(metric) for line in lines if line.kind == "encoder"}
    if run.baseline is not None:
        rules[f"baseline ({run.baseline[0]})"] = run.baseline[1].get(metric, float("nan"))
    return section(
        "leaderboard",
        "Leaderboard",
        run=run,
        lines=lines,
        best=best_head(lines),
        names=[metric, *others],
        seeds=sorted({seed for line in lines for seed in line.seeds}),
        # What one example changes, where the metric is a mean over examples.
        weight=100 / len(examples) if run.task.kind == "span" or metric == "accuracy" else None,
        picture=dot_plot(lines, metric, rules),
        breakable=_breakable,
        weights=_weights,
        width=_meter_width,
    )


def _breakable(name: str, after: str) -> Html:
    """A long name that may wrap after a mark of its own."""
    return join(name.split(after), Html(f"{after}<wbr>"))


def _weights(row: Row) -> str:
    pairs = zip(row.members, row.weights, strict=False)
    return ", ".join(f"{weight:.2f} {member}" for member, weight in pairs if weight >= MIN_MEMBER_WEIGHT)


def _meter_width(score: float | None) -> str:
    """Scores run from 0 to 100; no bar for what is no number."""
    return f"{min(max(score, 0.0), 100.0) if score is not None and score == score else 0.0:.1f}"


def significance_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Every predictor minus the encoder, the control and the best head; nothing where nothing was compared."""
    board = run.board
    if not board.comparisons:
        return None
    encoders = [row.name for row in board.rows if row.kind == "encoder"]
    references = dict.fromkeys([*encoders, CONTROL, *([board.best_head] if board.best_head else [])])
    compared = {name for test in board.comparisons for name in (test.a, test.b)}
    return section(
        "trust",
        "Which differences are real",
        board=board,
        lines=lines,
        references=[name for name in references if name in compared],
        several_seeds=any(len(seeds) > 1 for test in board.comparisons for seeds in (test.a_seeds, test.b_seeds)),
        control=CONTROL,
        test_of=paired_test_with,
        chance=chance,
    )


def chance(test: PairedTest) -> str:
    """The corrected p, as far as it can be told."""
    return f"p {test.p_holm:.3f}" if test.p_holm >= 0.001 else "p < 0.001"
