"""The leaderboard as a table and as a dot plot, and the significance of its differences."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.records import PairedTest, Row, paired_test_with
from bertvision.report.charts import dot_plot
from bertvision.report.markup import Html, join
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Line, Run, best_head

MIN_MEMBER_WEIGHT = 0.005
"""Members of an ensemble with a smaller weight are not listed."""


def leaderboard_section(run: Run, lines: Sequence[Line]) -> Section:
    """Scores, sizes and training seconds of all predictors."""
    metric, examples = run.board.metric, run.task[run.board.split]
    # The metric first; totals are counts of examples, not scores.
    scores = dict.fromkeys(name for line in lines for row in line.rows for name in row.scores)
    others = [name for name in scores if name != metric and not name.endswith("total")]
    references = {line.name: line.mean(metric) for line in lines if line.kind == "encoder"}
    if run.baseline is not None:
        references[f"baseline ({run.baseline[0]})"] = run.baseline[1].get(metric, float("nan"))
    return render_section(
        "leaderboard",
        "Leaderboard",
        run=run,
        lines=lines,
        best=best_head(lines),
        names=[metric, *others],
        seeds=sorted({seed for line in lines for seed in line.seeds}),
        # The change in score per example, if the metric is a mean over examples.
        weight=100 / len(examples) if run.task.kind == "span" or metric == "accuracy" else None,
        picture=dot_plot(lines, metric, references),
        breakable=lambda name, after: join(name.split(after), Html(f"{after}<wbr>")),
        weights=_member_weights,
        width=lambda score: f"{min(max(score, 0.0), 100.0) if score is not None and score == score else 0.0:.1f}",
    )


def _member_weights(row: Row) -> str:
    pairs = zip(row.members, row.weights, strict=False)
    return ", ".join(f"{weight:.2f} {member}" for member, weight in pairs if weight >= MIN_MEMBER_WEIGHT)


def significance_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """All predictors minus the encoder, the control and the best head; None without comparisons."""
    board = run.board
    if not board.comparisons:
        return None
    encoders = [row.name for row in board.rows if row.kind == "encoder"]
    references = dict.fromkeys([*encoders, board.control, *([board.best_head] if board.best_head else [])])
    compared = {name for test in board.comparisons for name in (test.a, test.b)}
    return render_section(
        "significance",
        "Significance",
        board=board,
        lines=lines,
        references=[name for name in references if name in compared],
        several_seeds=any(len(seeds) > 1 for test in board.comparisons for seeds in (test.a_seeds, test.b_seeds)),
        control=board.control,
        test_of=paired_test_with,
        format_p=format_p_value,
    )


def format_p_value(test: PairedTest) -> str:
    """The corrected p-value, with values below the resolution as an upper bound."""
    return f"p {test.p_holm:.3f}" if test.p_holm >= 0.001 else "p < 0.001"
