"""Several runs side by side, where their scores compare: the best row and the encoder of each, tested in pairs, and
how far best rows agree.

Scores compare where metric, labels and the examples of dev are the same; then the written answers of
all runs are brought before one court, as the rows of one board are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from bertvision.core.records import SURE, PairedTest
from bertvision.evaluation.analyses.agreement import COLUMNS, side_by_side
from bertvision.evaluation.analyses.answers import Said
from bertvision.evaluation.analyses.result import number_of
from bertvision.evaluation.comparison import Comparison, SeedGroup
from bertvision.report.leaderboard import chance, signed
from bertvision.report.markup import NOTHING, Html, join, number, table, tag
from bertvision.runs.reader import Line, Run, lines_of, predictor_scores, row_title, said_by

BEST, ENCODER = "best on inner by its mean over seeds", "encoder"
Named = tuple[str, Run]
SHARES = ("both", "only_a", "only_b", "neither", "same")
AGREEMENT = (
    "How often two best rows are right on the same examples, alone or not at all, and how often they say the same; "
    "with equal scores they may still be right on different examples. Of several seeds the one that is best on inner."
)


@dataclass(frozen=True, eq=False)
class Party:
    """One predictor of one run."""

    run: str
    roles: tuple[str, ...]
    line: Line
    side: SeedGroup
    said: Said | None  # by the seed that is best on inner; None where answers are neither right nor wrong

    @property
    def title(self) -> str:
        return f"{self.run}: {self.line.name}"


def joint_parts(runs: Sequence[Named]) -> list[Html]:
    """A chapter for each group of runs that compare, and a line on those that do not."""
    groups: dict[Hashable, list[Named]] = {}
    for named in runs:
        groups.setdefault(_judged_on(named[1]), []).append(named)
    parts = [part for group in groups.values() if len(group) > 1 for part in _group(group)]
    alone = [named for group in groups.values() if len(group) == 1 for named in group]
    return [*parts, *([_alone(alone)] if alone else [])]


def _judged_on(run: Run) -> Hashable:
    """What must be the same; in which order the examples stand does not matter."""
    task = run.task
    return task.kind, run.board.metric, task.labels, task.no_answer, frozenset(task[run.board.split])


def _alone(runs: Sequence[Named]) -> Html:
    told = [f"{name} ({run.board.metric} on {len(run.task[run.board.split]):,} examples)" for name, run in runs]
    return tag("p", f"Not compared, because no other run has the same metric and the same dev: {', '.join(told)}.")


def _group(runs: Sequence[Named]) -> list[Html]:
    first = runs[0][1]
    comparison = Comparison(first.task, first.board.split)
    parties = _parties(comparison, runs)
    names = ", ".join(name for name, _ in runs)
    pairs = _pairs(parties)
    if not pairs:
        return [tag("p", f"Not compared, because {first.board.metric} or the answers are not enough for it: {names}.")]
    found = comparison.corrected_tests([(a.side, b.side) for a, b in pairs])
    heads = ["predictor", "what", "seeds", first.board.metric, "95 %"]
    rows = [_row(comparison, party) for party in parties]
    return [
        tag("h2", "Side by side"),
        tag("p", _reading(comparison, first, names, len(found))),
        table(heads, rows, "Best rows and encoders", "finding"),
        table(
            ["first minus second", "difference", "95 %", "p, corrected", "verdict"],
            _tests(pairs, found),
            "Tests",
            "finding",
        ),
        *_agreement(parties),
    ]


def _parties(comparison: Comparison, runs: Sequence[Named]) -> list[Party]:
    """The best line on inner and the encoder of every run, where their answers are there."""
    # The court's examples for all, so that every answer stands at the same place.
    ordered = [(name, replace(run, task=comparison.task)) for name, run in runs]
    chosen = [(name, run, roles, line) for name, run in ordered for roles, line in _chosen(run)]
    witnesses = [
        predictor_scores(run, row, str(at)) for at, (_, run, _, line) in enumerate(chosen) for row in line.rows
    ]
    sides: Mapping[str, SeedGroup] = {side.name: side for side in comparison.seed_groups(witnesses)}
    return [
        Party(name, roles, line, sides[str(at)], said_by(run, line.rows[0], f"{name}: {row_title(line.rows[0])}"))
        for at, (name, run, roles, line) in enumerate(chosen)
        if str(at) in sides
    ]


def _chosen(run: Run) -> list[tuple[tuple[str, ...], Line]]:
    known = [line for line in lines_of(run.board) if all((row.name, row.seed) in run.answers for row in line.rows)]
    encoder = next((line for line in known if line.kind == ENCODER), None)
    if known and known[0] is encoder:
        return [((BEST, ENCODER), encoder)]
    chosen: list[tuple[tuple[str, ...], Line]] = [((BEST,), line) for line in known[:1]]
    return chosen if encoder is None else [*chosen, ((ENCODER,), encoder)]


def _pairs(parties: Sequence[Party]) -> list[tuple[Party, Party]]:
    """Best with best and encoder with encoder, of different runs."""
    by_role = [[party for party in parties if role in party.roles] for role in (BEST, ENCODER)]
    return list(dict.fromkeys(pair for some in by_role for pair in combinations(some, 2)))


def _reading(comparison: Comparison, run: Run, names: str, tests: int) -> str:
    return (
        f"{names} have the same metric and the same {run.board.split}, so that their scores compare. The best row of "
        f"each is chosen on inner. Tests pair two predictors on the same examples "
        f"({comparison.num_units:,} {comparison.unit_name}); p is "
        f"corrected by Holm over all {tests} tests of this table, and below {SURE} a difference is called real. "
        "Intervals are for the luck of the examples: they say nothing of how another tuning of the same encoder "
        "would have come out."
    )


def _row(comparison: Comparison, party: Party) -> list[object]:
    told = comparison.summarize(party.side)
    seeds = ", ".join(map(str, told.seeds)) or NOTHING
    return [party.title, " and ".join(party.roles), seeds, number(told.mean), _ends(told.interval)]


def _tests(pairs: Sequence[tuple[Party, Party]], found: Sequence[PairedTest]) -> list[list[object]]:
    rows: list[list[object]] = []
    for (a, b), one in zip(pairs, found, strict=True):
        ends = None if one.low is None or one.high is None else (one.low, one.high)
        real = "ahead" if one.difference > 0 else "behind"
        verdict = real if one.p_holm < SURE else "not distinguishable"
        names = join([tag("span", a.title), tag("small", f"minus {b.title}")])
        rows.append([names, signed(one.difference), _ends(ends, signed), chance(one).removeprefix("p "), verdict])
    return rows


def _agreement(parties: Sequence[Party]) -> list[Html]:
    """Every two best rows, example by example; nothing where answers are neither right nor wrong."""
    best = [party.said for party in parties if BEST in party.roles and party.said is not None]
    rows = [_agreement_row(a, b) for a, b in combinations(best, 2)]
    head = ["first and second", *(COLUMNS[key] for key in SHARES)]
    return [tag("p", AGREEMENT), table(head, rows, "Agreement of best rows", "finding")] if rows else []


def _agreement_row(a: Said, b: Said) -> list[object]:
    found = side_by_side(a, b)
    names = join([tag("span", a.name), tag("small", f"and {b.name}")])
    shares = [number_of(found[key]) for key in SHARES]
    return [names, *(NOTHING if share is None else number(share) for share in shares)]


def _ends(ends: tuple[float, float] | None, write: Callable[[float], str] = number) -> str:
    return NOTHING if ends is None else f"{write(ends[0])} to {write(ends[1])}"
