"""The tables, the picture and the page of ``quality.py``, from all results so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import numpy as np

from bertvision.report.charts import write_svg
from bertvision.report.colours import LIGHT
from bertvision.report.markup import Html, tag
from bertvision.report.svg import Scale, scale_for, tick_text
from quality_methods import CONTROL_METHOD, EMBEDDINGS, RECOMMENDED, TITLES
from quality_results import Result
from quality_statistics import Comparison, Pairing, compare
from quality_tasks import GROUPS, REGIMES, TASKS
from rows import Rows
from tables import markdown

METRIC_NAMES = {"accuracy": "accuracy", "matthews_correlation": "MCC", "spearmanr": "Spearman"}
GROUP_COLOURS: Mapping[str, str] = dict(zip(GROUPS, LIGHT.values(), strict=False))
LEFT, RIGHT, STRIP, TOP, WIDTH = 290, 24, 20, 24, 800

INTRO = """# Quality of the recommendation

Is what `bertvision run` recommends better than what one would have written without it? `make bench-quality DATA=FOLDER`
measures this with the embedded encoder `minilm`, which is not tuned (`--epochs 0`), and default settings.
[Terms](../README.md#glossary).

- **recommended**: the row that the leaderboard of `bertvision run` recommends. **control**: its control.
- **embeddings + LR**: means of the last layer, scaled to length 1, and scikit-learn's `LogisticRegressionCV` (for STS-B
  `RidgeCV`). The texts of a pair are encoded apart as u and v, and the features are u, v, |u - v| and u * v.
- **last layer only**: the same without scaling to length 1, and with standardised features.
- **SetFit**: the library, with the same encoder, 20 pairs of each kind per text, at most 320 steps; single texts only.

Every method gets the same training rows, drawn by hash (8 and 64 per class, with numbers 16 and 128 rows, three draws;
2,000, two draws), and predicts the same dev. `run` cuts its validation split from these rows; the others
cross-validate. Defaults may be chosen on the *fitted* tasks; the *held-out* tasks only measure them. Scores are points
of accuracy, on CoLA Matthews' correlation (MCC) and on STS-B Spearman's correlation, as means over draws.

Intervals (95 %) and p values compare two methods on the same rows of dev: bootstrap, and a sign-flip test (MCC and
Spearman: predictions are swapped), corrected by Holm over all comparisons with a p value on this page. They say
nothing about other tasks, and about other training rows only as much as a few draws can.
"""


def write_report(results: Sequence[Result], tables: Path, pages: Path) -> None:
    """Write quality.csv, quality_comparisons.csv and quality.svg to one folder, and quality.md to another."""
    order = {name: index for index, name in enumerate([*TASKS, *REGIMES, *TITLES])}
    results = sorted(results, key=lambda each: (order[each.task], order[each.regime], each.draw, order[each.method]))
    comparisons = compare(pairings(results))
    Rows(tables / "quality.csv", fresh=True).add(*map(_csv_row, results))
    pages.mkdir(parents=True, exist_ok=True)
    picture = tables / "quality.svg"
    rows = Rows(tables / "quality_comparisons.csv", fresh=True)
    if comparisons:
        rows.add(*map(_comparison_row, comparisons))
        write_svg(draw_differences(comparisons), picture)
    link = f"![Recommended minus embeddings + LR]({_relative(picture, pages)})\n" if comparisons else ""
    (pages / "quality.md").write_text(page(results, comparisons, link), encoding="utf-8")
    print(f"{pages / 'quality.md'}: {len(results)} results, {len(comparisons)} comparisons")
    versions = {each.facts["package"] for each in results if each.method == RECOMMENDED}
    if len(versions) > 1:
        print(f"note: recommended was measured with {len(versions)} versions of the package; use --again run")


def _relative(path: Path, folder: Path) -> str:
    return path.name if path.parent == folder else f"../../{path.as_posix()}"


def pairings(results: Iterable[Result]) -> list[Pairing]:
    """Recommended and every other method, on the draws that both have."""
    found = {(each.task, each.regime, each.method, each.draw): each for each in results}
    pairs = []
    for task, regime, rival in dict.fromkeys((task, regime, method) for task, regime, method, _ in found):
        draws = [
            draw
            for draw in range(REGIMES[regime].draws)
            if {(task, regime, RECOMMENDED, draw), (task, regime, rival, draw)} <= found.keys()
        ]
        if rival == RECOMMENDED or not draws:
            continue
        ours, theirs = ([found[task, regime, method, draw] for draw in draws] for method in (RECOMMENDED, rival))
        gold = ours[0].gold
        if not all(np.array_equal(gold, each.gold) for each in (*ours, *theirs)):
            raise ValueError(f"{task}, {regime}: results were measured on different dev rows; delete them")
        sides = [[each.predicted for each in side] for side in (ours, theirs)]
        pairs.append(Pairing(TASKS[task], regime, rival, gold, *sides))
    return pairs


def _csv_row(result: Result) -> dict[str, object]:
    task, facts = TASKS[result.task], result.facts
    return {
        "group": task.group,
        "task": result.task,
        "regime": result.regime,
        "draw": result.draw,
        "method": result.method,
        "metric": task.metric,
        "score": round(facts["score"], 3),
        "seconds": round(facts["seconds"], 1),
        "cpu_seconds": round(facts["cpu_seconds"], 1),
        "rows": facts["rows"],
        "dev_rows": len(result.gold),
        "model": facts["model"],
        "package": facts["package"],
    }


def _comparison_row(comparison: Comparison) -> dict[str, object]:
    cells = asdict(comparison)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in cells.items()}


def page(results: Sequence[Result], comparisons: Sequence[Comparison], picture: str) -> str:
    """The whole page."""
    sections = [
        INTRO,
        "## Means over tasks\n",
        "Means over the tasks for which both methods have results; the interval takes the tasks as given.\n",
        f"{means_table(comparisons)}\n",
        picture,
        "## Each task\n",
        f"{scores_table(results)}\n",
        "## Differences\n",
        "Recommended minus the other method; p after Holm's correction.\n",
        f"{differences_table(comparisons)}\n",
        "## What the other layers are worth\n",
        "Recommended minus the control, which sees the last layer only, in the same run.\n",
        f"{layers_table(comparisons)}\n",
        "## Time\n",
        "Mean seconds for training and for predicting dev, with loading; in brackets seconds of the processor.\n",
        f"{time_table(results)}\n",
    ]
    return "\n".join(section for section in sections if section.strip())


def means_table(comparisons: Sequence[Comparison]) -> str:
    """A line per group, regime and other method."""
    head = ["group", "training rows", "compared with", "tasks", "recommended", "other", "difference", "95 % interval"]
    means = [each for each in comparisons if not each.task]
    lines = []
    for group in GROUPS:
        for regime in REGIMES.values():
            for each in means:
                if (each.group, each.regime) == (group, regime.name):
                    scores = [f"{each.ours:.2f}", f"{each.theirs:.2f}", f"{each.difference:+.2f}", _interval(each)]
                    lines.append([group, regime.title, TITLES[each.rival], str(each.tasks), *scores])
    return markdown(head, lines)


def scores_table(results: Sequence[Result]) -> str:
    """A line per task and regime, a column per method: mean over draws."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in results:
        scores.setdefault((each.task, each.regime), {}).setdefault(each.method, []).append(each.facts["score"])
    lines = []
    for (task, regime), by_method in scores.items():
        cells = [f"{fmean(by_method[method]):.2f}" if method in by_method else "" for method in TITLES]
        record = TASKS[task]
        lines.append([record.group, record.title, METRIC_NAMES[record.metric], REGIMES[regime].title, *cells])
    return markdown(["group", "task", "metric", "training rows", *TITLES.values()], lines)


def differences_table(comparisons: Sequence[Comparison]) -> str:
    """A line per task, regime and other method."""
    lines = [
        [
            TASKS[each.task].title,
            REGIMES[each.regime].title,
            TITLES[each.rival],
            str(each.draws),
            f"{each.difference:+.2f}",
            _interval(each),
            _p_text(each.p_holm),
        ]
        for each in comparisons
        if each.task
    ]
    return markdown(["task", "training rows", "compared with", "draws", "difference", "95 % interval", "p"], lines)


def layers_table(comparisons: Sequence[Comparison]) -> str:
    """A line per task and group, a column per regime: recommended minus control."""
    cells = {
        (each.group, each.task, each.regime): f"{each.difference:+.2f} ({_interval(each)})"
        for each in comparisons
        if each.rival == CONTROL_METHOD
    }
    lines = []
    for group in GROUPS:
        names = [*(name for name, task in TASKS.items() if task.group == group), ""]
        for name in names:
            line = [cells.get((group, name, regime), "") for regime in REGIMES]
            if any(line):
                lines.append([group, TASKS[name].title if name else "**mean**", *line])
    return markdown(["group", "task", *(regime.title for regime in REGIMES.values())], lines)


def time_table(results: Sequence[Result]) -> str:
    """A line per method, a column per regime. The control is part of the run that recommends."""
    cells = []
    for method, title in TITLES.items():
        line = []
        for regime in REGIMES:
            facts = [each.facts for each in results if (each.method, each.regime) == (method, regime)]
            means = (fmean(fact[key] for fact in facts) for key in ("seconds", "cpu_seconds") if facts)
            line.append("{:.0f} ({:.0f})".format(*means) if facts else "")
        if any(line) and method != CONTROL_METHOD:
            cells.append([title, *line])
    return markdown(["method", *(regime.title for regime in REGIMES.values())], cells)


def _interval(comparison: Comparison) -> str:
    return f"{comparison.low:+.2f} to {comparison.high:+.2f}"


def _p_text(p: float | None) -> str:
    if p is None:
        return ""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def draw_differences(comparisons: Sequence[Comparison]) -> Html:
    """Recommended minus embeddings + LR: a strip per task and regime, and means over the tasks of a group."""
    shown = [each for group in GROUPS for each in comparisons if (each.group, each.rival) == (group, EMBEDDINGS)]
    scale = scale_for([0.0, *(end for each in shown for end in (each.low, each.high))])
    floor = TOP + STRIP * len(shown) + 6
    parts = []
    for value in scale.ticks(6):
        x = _x(scale, value)
        parts.append(tag("line", x1=x, x2=x, y1=TOP - 8, y2=floor, class_="axis" if value == 0 else "grid"))
        parts.append(tag("text", tick_text(value), x=x, y=floor + 16, text_anchor="middle"))
    parts += [_strip(each, TOP + STRIP * (index + 0.5), scale) for index, each in enumerate(shown)]
    name = "recommended minus embeddings + LR, points on dev, 95 % interval"
    parts.append(tag("text", name, x=(LEFT + WIDTH - RIGHT) / 2, y=floor + 34, text_anchor="middle", class_="name"))
    box = f"0 0 {WIDTH} {floor + 44}"
    words = "; ".join(f"{_strip_title(each)}: {each.difference:+.1f} ({_interval(each)})" for each in shown)
    return tag("svg", *parts, viewBox=box, style=f"max-width:{WIDTH}px", role="img", aria_label=f"{name}. {words}.")


def _strip(comparison: Comparison, y: float, scale: Scale) -> Html:
    colour = GROUP_COLOURS[comparison.group]
    low, middle, high = (_x(scale, value) for value in (comparison.low, comparison.difference, comparison.high))
    weight = "font-weight:bold" if not comparison.task else ""
    title = tag("text", _strip_title(comparison), x=10, y=y + 4, style=weight)
    line = tag("line", x1=low, x2=high, y1=y, y2=y, stroke=colour, stroke_width=2)
    return tag("g", title, line, tag("circle", cx=middle, cy=y, r=4.5 if comparison.task else 6, fill=colour))


def _strip_title(comparison: Comparison) -> str:
    name = TASKS[comparison.task].title if comparison.task else f"mean, {comparison.group}"
    return f"{name}, {REGIMES[comparison.regime].title}"


def _x(scale: Scale, value: float) -> float:
    return LEFT + scale.fraction(value) * (WIDTH - LEFT - RIGHT)
