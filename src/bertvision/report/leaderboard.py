"""The leaderboard as a table and as a picture, with what one must know to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertvision.core.records import CONTROL, SURE, Board, PairedTest, compared_with
from bertvision.report.charts import dot_plot
from bertvision.report.markup import (
    DASH,
    NOTHING,
    Html,
    Section,
    join,
    number,
    opened,
    percent,
    scrolling,
    section,
    tag,
)
from bertvision.runs.reader import Line, Run, best_head

MINUS = "\N{MINUS SIGN}"

WHY_CONTROL = (
    "The control refits a linear head on the last layer alone, as the other heads are fitted. What it gains over "
    "the encoder comes from refitting, not from more layers; only what a head gains beyond it can come from the layers."
)

MEMBER_SHOWN = 0.005
"""An ensemble's members of less weight than this are not listed."""


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
    basis = board.resampling_info
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


def _seeds(comparisons: Sequence[PairedTest]) -> str:
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


def _cell(found: PairedTest | None) -> Html:
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


def chance(found: PairedTest) -> str:
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


def board_section(run: Run, lines: Sequence[Line]) -> Section:
    """Who is how good, how large and how slow."""
    return section("leaderboard", "Leaderboard", *_board_reading(run, lines), _table(run, lines), _plot(run, lines))


def _board_reading(run: Run, lines: Sequence[Line]) -> list[Html]:
    """How the numbers came about."""
    split, metric = run.board.split, run.board.metric
    seeds = sorted({seed for line in lines for seed in line.seeds})
    several = len(seeds) > 1
    spread = "; the smaller numbers beneath are the lowest and the highest of them" if several else ""
    chosen = f"epochs,{' no-answer thresholds' if run.task.no_answer else ' models'} and ensemble weights"
    how = (
        f"Sorted by {metric} on inner, the {len(run.task['inner']):,} examples that were cut off the training data and "
        f"on which {chosen} were chosen. The {len(run.task[split]):,} of "
        f"{split} are only reported.{_worth(run)}"
    )
    which = f"{'Seeds' if several else 'Seed'} {', '.join(map(str, seeds))}"
    vary = (
        f"A head's line is the mean over its seeds{spread}. A seed sets the head's random start and nothing else: "
        f"encoder, states and order of batches are the same. {which}. Seconds are those of fitting one seed, of tuning "
        "for the encoder, and the sum of the members' for an ensemble."
    )
    control = (
        [tag("p", tag("strong", "Control. "), WHY_CONTROL)] if any(line.kind == "control" for line in lines) else []
    )
    return [tag("p", how), tag("p", vary), *control]


def _worth(run: Run) -> str:
    """What one example more or less right changes, where the metric is a mean over examples."""
    if run.task.kind == "span" or run.board.metric == "accuracy":
        return f" One example of {run.board.split} weighs {100 / len(run.task[run.board.split]):.2f} points."
    return ""


def _table(run: Run, lines: Sequence[Line]) -> Html:
    names = _score_names(run, lines)
    best = best_head(lines)
    rows = [_board_row(line, names, run.board.metric, line is best) for line in lines]
    foot = [] if run.baseline is None else [tag("tfoot", _baseline_row(run.baseline, names))]
    head = tag("thead", *_board_heading(run, names))
    return scrolling(tag("table", head, tag("tbody", *rows), *foot, class_="board"), "Leaderboard")


def _score_names(run: Run, lines: Sequence[Line]) -> list[str]:
    """The metric first; counts of examples are no scores."""
    seen = dict.fromkeys(name for line in lines for row in line.rows for name in row.scores)
    others = [name for name in seen if name != run.board.metric and not name.endswith("total")]
    return [run.board.metric, *others]


def _board_heading(run: Run, names: Sequence[str]) -> list[Html]:
    groups = [("", 1), ("inner", 1), (run.board.split, len(names)), ("size and time", 2)]
    above = [
        tag("th", name, colspan=span, scope="colgroup", class_="group") if name else tag("td") for name, span in groups
    ]
    scores = [_breakable(name) for name in names]
    columns = ["predictor", _breakable(run.board.metric), *scores, "parameters, % of encoder", "seconds"]
    return [tag("tr", *above), tag("tr", *(tag("th", name, scope="col") for name in columns))]


def _breakable(name: str, after: str = "_") -> Html:
    """A long name that may go on below, after a mark of its own."""
    return join(name.split(after), join([after, opened("wbr")]))


def _board_row(line: Line, names: Sequence[str], metric: str, best: bool) -> Html:
    first, *others = names
    cells = [
        tag("th", _name(line, best), scope="row"),
        tag("td", _spread(line, metric, "inner")),
        tag("td", _spread(line, first), interval_note(line.interval), _bar(line.mean(first))),
        *(tag("td", _spread(line, name)) for name in others),
        tag("td", f"{line.rows[0].parameters:,}", tag("small", f"{percent(line.rows[0].percent)} %")),
        tag("td", number(line.seconds, 1)),
    ]
    return tag("tr", *cells, class_=line.kind if line.kind in ("control", "encoder") else "best" if best else None)


def _name(line: Line, best: bool) -> Html:
    tags = ["best head on inner"] if best else []
    tags += [line.kind] if line.kind != "head" else []
    parts = [tag("code", _breakable(line.name, ",")), *(tag("span", name, class_="tag") for name in tags)]
    row = line.rows[0]
    if row.spec == "fitted" and row.members:
        pairs = zip(row.members, row.weights, strict=False)
        told = ", ".join(f"{weight:.2f} {member}" for member, weight in pairs if weight >= MEMBER_SHOWN)
        parts.append(tag("small", f"weights: {told}"))
    return join(parts, " ")


def _spread(line: Line, score: str, where: str = "scores") -> Html:
    """Mean, and lowest to highest where there are several seeds."""
    values = line.values(score, where)
    mean = number(line.mean(score, where))
    if len(values) < 2:
        return join([mean])
    return join([mean, tag("small", f"{number(min(values))}{DASH}{number(max(values))}")])


def _bar(value: float) -> Html:
    """Scores run from 0 to 100."""
    share = min(max(value, 0.0), 100.0) if value == value else 0.0
    return tag("span", tag("i", style=f"width:{share:.1f}%"), class_="meter", aria_hidden="true")


def _baseline_row(baseline: tuple[str, Mapping[str, float]], names: Sequence[str]) -> Html:
    name, scores = baseline
    told = [scores.get(score, float("nan")) for score in names]
    cells = [tag("td", number(told[0]), _bar(told[0])), *(tag("td", number(score)) for score in told[1:])]
    title = tag("th", name, " ", tag("span", "baseline", class_="tag"), scope="row")
    return tag("tr", title, tag("td", NOTHING), *cells, *(tag("td", NOTHING) for _ in range(2)))


def _plot(run: Run, lines: Sequence[Line]) -> Html:
    metric = run.board.metric
    rules = {line.name: line.mean(metric) for line in lines if line.kind == "encoder"}
    if run.baseline is not None:
        rules[f"baseline ({run.baseline[0]})"] = run.baseline[1].get(metric, float("nan"))
    known = any(line.interval for line in lines)
    luck = " The band around a mean is its 95 % interval for the luck of the examples." if known else ""
    legend = (
        f"{metric} on {run.board.split}. One mark a seed: heads are dots, the control rings, the encoder a square, "
        "ensembles diamonds; the short upright line is the mean over seeds, the long ones are the encoder and the "
        f"baseline.{luck}"
    )
    return tag("figure", dot_plot(lines, metric, rules), tag("figcaption", legend))
