"""Comparison of runs: the best row and the encoder of each in paired tests, and the agreement of the best rows.

Scores compare where metric, labels and dev examples are the same; the saved answers of all runs are then
compared like the rows of one leaderboard.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from bertvision.core.records import ALPHA, PairedTest
from bertvision.core.row_title import row_title
from bertvision.evaluation.analyses.agreement import COLUMNS, agreement_row
from bertvision.evaluation.analyses.answers import Answers
from bertvision.evaluation.analyses.result import as_float
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.report.leaderboard import format_p_value
from bertvision.report.markup import MISSING, Html, format_number, format_signed
from bertvision.report.render import render
from bertvision.runs.reader import Line, Run, group_rows, predictor_scores, row_answers

BEST, ENCODER = "best mean inner score over seeds", "encoder"
NamedRun = tuple[str, Run]
AGREEMENT_KEYS = ("both", "only_a", "only_b", "neither", "same")


@dataclass(frozen=True, eq=False)
class ComparedRow:
    """One predictor of one run."""

    run: str
    roles: tuple[str, ...]
    line: Line
    seed_group: SeedGroup
    answers: Answers | None  # of the best seed on inner; None for regression

    @property
    def title(self) -> str:
        return f"{self.run}: {self.line.name}"


def compare_runs(runs: Sequence[NamedRun]) -> Html:
    """A subsection for each group of comparable runs, and a note on runs that compare with no other."""
    groups: dict[Hashable, list[NamedRun]] = {}
    for name, run in runs:
        task = run.task
        # Examples must be the same, in any order.
        key = task.kind, run.board.metric, task.labels, task.no_answer, frozenset(task[run.board.split])
        groups.setdefault(key, []).append((name, run))
    comparable = [_compare_group(group) for group in groups.values() if len(group) > 1]
    alone = [group[0] for group in groups.values() if len(group) == 1]
    columns = [COLUMNS[key] for key in AGREEMENT_KEYS]
    return render("compare_runs", groups=comparable, alone=alone, columns=columns)


def _compare_group(runs: Sequence[NamedRun]) -> dict[str, object]:
    first = runs[0][1]
    comparison = Comparison(first.task, first.board.split)
    rows = _compared_rows(comparison, runs)
    # Best rows are tested against best rows, and encoders against encoders, of different runs.
    by_role = [[row for row in rows if role in row.roles] for role in (BEST, ENCODER)]
    pairs = list(dict.fromkeys(pair for same_role in by_role for pair in combinations(same_role, 2)))
    tests = comparison.corrected_tests([(a.seed_group, b.seed_group) for a, b in pairs]) if pairs else []
    agreement = []
    for a, b in combinations([row.answers for row in by_role[0] if row.answers is not None], 2):
        cells = agreement_row(a, b)
        agreement.append((a.name, b.name, [as_float(cells[key]) for key in AGREEMENT_KEYS]))
    return {
        "names": ", ".join(name for name, _ in runs),
        "metric": first.board.metric,
        "split": first.board.split,
        "units": comparison.num_units,
        "of": comparison.unit_name,
        "rows": [_score_cells(comparison, row) for row in rows] if pairs else [],
        "tests": [_test_cells(a, b, test) for (a, b), test in zip(pairs, tests, strict=True)],
        "agreement": agreement,
    }


def _compared_rows(comparison: Comparison, runs: Sequence[NamedRun]) -> list[ComparedRow]:
    """The best line on inner and the encoder of every run, if their answers were saved."""
    chosen = []
    for name, run in runs:
        # All runs use the task of the comparison, so that examples have the same order.
        ordered = replace(run, task=comparison.task)
        chosen += [(name, ordered, roles, line) for roles, line in _best_and_encoder(ordered)]
    scores = []
    for index, (_, run, _, line) in enumerate(chosen):
        scores += [predictor_scores(run, row, str(index)) for row in line.rows]
    seed_groups = {group.name: group for group in comparison.seed_groups(scores)}
    rows = []
    for index, (name, run, roles, line) in enumerate(chosen):
        if str(index) in seed_groups:
            answers = row_answers(run, line.rows[0], f"{name}: {row_title(line.rows[0])}")
            rows.append(ComparedRow(name, roles, line, seed_groups[str(index)], answers))
    return rows


def _best_and_encoder(run: Run) -> list[tuple[tuple[str, ...], Line]]:
    """The best line and the encoder with their roles; one line may have both."""
    answered = [line for line in group_rows(run.board) if all((row.name, row.seed) in run.answers for row in line.rows)]
    encoder = next((line for line in answered if line.kind == ENCODER), None)
    if encoder is not None and answered[0] is encoder:
        return [((BEST, ENCODER), encoder)]
    chosen: list[tuple[tuple[str, ...], Line]] = [((BEST,), line) for line in answered[:1]]
    return chosen if encoder is None else [*chosen, ((ENCODER,), encoder)]


def _score_cells(comparison: Comparison, row: ComparedRow) -> list[str]:
    summary = comparison.summarize(row.seed_group)
    seeds = ", ".join(map(str, summary.seeds)) or MISSING
    return [row.title, " and ".join(row.roles), seeds, format_number(summary.mean), _format_interval(summary.interval)]


def _test_cells(a: ComparedRow, b: ComparedRow, test: PairedTest) -> list[str]:
    result = "ahead" if test.difference > 0 else "behind"
    if test.p_holm >= ALPHA:
        result = "not significant"
    interval = None if test.low is None or test.high is None else (test.low, test.high)
    p = format_p_value(test).removeprefix("p ")
    return [a.title, b.title, format_signed(test.difference), _format_interval(interval, format_signed), p, result]


def _format_interval(ends: tuple[float, float] | None, write: Callable[[float], str] = format_number) -> str:
    return MISSING if ends is None else f"{write(ends[0])} to {write(ends[1])}"
