"""Several runs side by side, where their scores compare: the best row and the encoder of each, tested in pairs, and
how far best rows agree.

Scores compare where metric, labels and the examples of dev are the same; then the written answers of
all runs are compared together, as the rows of one leaderboard are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from bertvision.core.records import ALPHA, PairedTest
from bertvision.evaluation.analyses.agreement import COLUMNS, side_by_side
from bertvision.evaluation.analyses.answers import Answers
from bertvision.evaluation.analyses.result import as_float
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.report.leaderboard import chance
from bertvision.report.markup import NOTHING, Html, number, signed
from bertvision.report.render import render
from bertvision.runs.reader import Line, Run, group_rows, predictor_scores, row_answers, row_title

BEST, ENCODER = "best on inner by its mean over seeds", "encoder"
Named = tuple[str, Run]
SHARES = ("both", "only_a", "only_b", "neither", "same")


@dataclass(frozen=True, eq=False)
class ComparedRow:
    """One predictor of one run."""

    run: str
    roles: tuple[str, ...]
    line: Line
    side: SeedGroup
    said: Answers | None  # by the seed that is best on inner; None where answers are neither right nor wrong

    @property
    def title(self) -> str:
        return f"{self.run}: {self.line.name}"


def comparison(runs: Sequence[Named]) -> Html:
    """A chapter for each group of runs that compare, and a line on those that do not."""
    groups: dict[Hashable, list[Named]] = {}
    for name, run in runs:
        task = run.task
        # What must be the same; in which order the examples stand does not matter.
        key = task.kind, run.board.metric, task.labels, task.no_answer, frozenset(task[run.board.split])
        groups.setdefault(key, []).append((name, run))
    several = [_group(group) for group in groups.values() if len(group) > 1]
    alone = [group[0] for group in groups.values() if len(group) == 1]
    return render("compare_runs", groups=several, alone=alone, columns=[COLUMNS[key] for key in SHARES])


def _group(runs: Sequence[Named]) -> dict[str, object]:
    first = runs[0][1]
    comparison = Comparison(first.task, first.board.split)
    parties = _parties(comparison, runs)
    # Best with best and encoder with encoder, of different runs.
    by_role = [[party for party in parties if role in party.roles] for role in (BEST, ENCODER)]
    pairs = list(dict.fromkeys(pair for same in by_role for pair in combinations(same, 2)))
    tests = comparison.corrected_tests([(a.side, b.side) for a, b in pairs]) if pairs else []
    answers = [party.said for party in by_role[0] if party.said is not None]
    return {
        "names": ", ".join(name for name, _ in runs),
        "metric": first.board.metric,
        "split": first.board.split,
        "units": comparison.num_units,
        "of": comparison.unit_name,
        "parties": [_party_row(comparison, party) for party in parties] if pairs else [],
        "tests": [_test_row(a, b, test) for (a, b), test in zip(pairs, tests, strict=True)],
        "agreement": [_agreement_row(a, b) for a, b in combinations(answers, 2)],
    }


def _parties(comparison: Comparison, runs: Sequence[Named]) -> list[ComparedRow]:
    """The best line on inner and the encoder of every run, where their answers are there."""
    # The comparison's examples for all, so that every answer stands at the same index.
    ordered = [(name, replace(run, task=comparison.task)) for name, run in runs]
    chosen = [(name, run, roles, line) for name, run in ordered for roles, line in _chosen(run)]
    rows = [
        predictor_scores(run, row, str(index)) for index, (_, run, _, line) in enumerate(chosen) for row in line.rows
    ]
    sides = {side.name: side for side in comparison.seed_groups(rows)}
    parties = []
    for index, (name, run, roles, line) in enumerate(chosen):
        if str(index) in sides:
            answers = row_answers(run, line.rows[0], f"{name}: {row_title(line.rows[0])}")
            parties.append(ComparedRow(name, roles, line, sides[str(index)], answers))
    return parties


def _chosen(run: Run) -> list[tuple[tuple[str, ...], Line]]:
    """The best line and the encoder, which may be the same one."""
    known = [line for line in group_rows(run.board) if all((row.name, row.seed) in run.answers for row in line.rows)]
    encoder = next((line for line in known if line.kind == ENCODER), None)
    if encoder is not None and known[0] is encoder:
        return [((BEST, ENCODER), encoder)]
    chosen: list[tuple[tuple[str, ...], Line]] = [((BEST,), line) for line in known[:1]]
    return chosen if encoder is None else [*chosen, ((ENCODER,), encoder)]


def _party_row(comparison: Comparison, party: ComparedRow) -> list[str]:
    summary = comparison.summarize(party.side)
    seeds = ", ".join(map(str, summary.seeds)) or NOTHING
    return [party.title, " and ".join(party.roles), seeds, number(summary.mean), _ends(summary.interval)]


def _test_row(a: ComparedRow, b: ComparedRow, test: PairedTest) -> list[str]:
    verdict = "ahead" if test.difference > 0 else "behind"
    if test.p_holm >= ALPHA:
        verdict = "not distinguishable"
    interval = None if test.low is None or test.high is None else (test.low, test.high)
    p = chance(test).removeprefix("p ")
    return [a.title, b.title, signed(test.difference), _ends(interval, signed), p, verdict]


def _agreement_row(a: Answers, b: Answers) -> tuple[str, str, list[float | None]]:
    shares = side_by_side(a, b)
    return a.name, b.name, [as_float(shares[key]) for key in SHARES]


def _ends(interval: tuple[float, float] | None, write: Callable[[float], str] = number) -> str:
    return NOTHING if interval is None else f"{write(interval[0])} to {write(interval[1])}"
